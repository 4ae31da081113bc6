//! Pieces of SVG.
//!
//! The crate `plotters` (with what it needs four crates and three seconds of compiling) would save thirty lines
//! of `curves`, but it has no words that show under the pointer, so the bars would need this module all the
//! same, and it puts the legend over the curves.

use std::fmt::Write;

/// Colours that differ for most eyes (Okabe and Ito), dark enough on white.
pub const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b58900", "#56b4e9", "#7a4fbf", "#444444"];

/// The n-th colour.
pub fn colour(place: usize) -> &'static str {
    COLOURS[place % COLOURS.len()]
}

/// Escapes text for markup.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            _ => escaped.push(character),
        }
    }
    escaped
}

/// The position of a text relative to its point.
#[derive(Clone, Copy)]
pub enum Anchor {
    /// It begins there.
    Start,
    /// Its middle is there.
    Middle,
    /// It ends there.
    End,
}

/// A picture in the making.
pub struct Picture {
    body: String,
    width: f64,
    height: f64,
    title: String,
}

impl Picture {
    /// An empty one.
    pub fn new(width: f64, height: f64, title: &str) -> Picture {
        Picture { body: String::new(), width, height, title: escape(title) }
    }

    /// A straight line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: &str) {
        let _ = writeln!(
            self.body,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{stroke}\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    /// A curve through points, with a mark at each.
    pub fn curve(&mut self, points: &[(f64, f64)], stroke: &str, is_dashed: bool) {
        let mut path = String::new();
        for (place, (x, y)) in points.iter().enumerate() {
            let _ = write!(path, "{}{x:.1} {y:.1}", if place == 0 { "M" } else { "L" });
        }
        let (dashes, width) =
            if is_dashed { (" stroke-dasharray=\"5 4\"", 1.4) } else { ("", 2.2) };
        let _ = writeln!(
            self.body,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"{width}\"{dashes}/>"
        );
        let fill = if is_dashed { "#fff" } else { stroke };
        for (x, y) in points {
            let _ = writeln!(
                self.body,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{fill}\" stroke=\"{stroke}\"/>"
            );
        }
    }

    /// A filled rectangle, with words that show under the pointer.
    pub fn bar(&mut self, at: (f64, f64), size: (f64, f64), fill: &str, words: &str) {
        let _ = writeln!(
            self.body,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{fill}\">\
             <title>{}</title></rect>",
            at.0,
            at.1,
            size.0,
            size.1,
            escape(words)
        );
    }

    /// A text.
    pub fn text(&mut self, at: (f64, f64), anchor: Anchor, fill: &str, words: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let _ = writeln!(
            self.body,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" fill=\"{fill}\">{}</text>",
            at.0,
            at.1,
            escape(words)
        );
    }

    /// The picture.
    pub fn finish(self) -> String {
        let Picture { body, width, height, title } = self;
        format!(
            "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" font-size=\"11\" \
             font-family=\"system-ui, sans-serif\">\n<title>{title}</title>\n{body}</svg>\n"
        )
    }
}
