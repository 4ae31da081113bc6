//! Limits, step by step beside Linux: errors, usage and grace periods have to be the same.

use super::steps::Judged;
use drystone_testkit::environment::number;

const RANDOM_STEPS: usize = 2000;

#[test]
fn limits_are_kept_as_on_linux() {
    let lines = include_str!("scenario.txt").lines();
    let scenario = lines.filter_map(|line| line.split_once(" => "));
    let (steps, expected): (Vec<_>, Vec<_>) =
        scenario.map(|(step, told)| (step.to_owned(), told.to_owned())).unzip();
    let Some(judged) = Judged::begin() else { return };
    if let Some(linux) = judged.ask_linux(&steps) {
        assert_eq!(expected, linux);
    }
    judged.take(&steps, &expected);
}

/// `DRYSTONE_SEED` makes other steps.
#[test]
fn random_steps_are_as_on_linux() {
    let seed = number("DRYSTONE_SEED").unwrap_or(4);
    eprintln!("DRYSTONE_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut steps: Vec<_> = ["0 directory p", "0 project p 2000", "0 limits 2 2000 300 400 30 40"]
        .map(str::to_owned)
        .into();
    steps.extend((0..RANDOM_STEPS).map(|_| any_step(&mut random)));
    let Some(judged) = Judged::begin() else { return };
    if let Some(expected) = judged.ask_linux(&steps) {
        judged.take(&steps, &expected);
    }
}

fn any_step(random: &mut fastrand::Rng) -> String {
    let by = if random.u32(..5) == 0 { 0 } else { 1000 };
    let mut one_of = |names: &[&'static str]| names[random.usize(..names.len())];
    let file = |one_of: &mut dyn FnMut(&[&'static str]) -> &'static str| {
        one_of(&["a", "b", "c", "d", "e", "f", "p/a", "p/b", "p/c", "p/d"])
    };
    let (name, other) = (file(&mut one_of), file(&mut one_of));
    let link = one_of(&["s", "t", "p/s"]);
    let directory = one_of(&["D", "E", "p/D"]);
    let group = one_of(&["1000", "2000"]);
    let user = if by == 0 { one_of(&["0", "1000"]) } else { "1000" };
    let owner = one_of(&["0 1000", "1 1000", "1 2000", "2 2000"]);
    let block = random.u32(..4);
    match random.u32(..40) {
        0..8 => format!("{by} create {name}"),
        8..18 => format!("{by} write {name} {block} 1"),
        18..21 => format!("{by} cut {name} {block}"),
        21..23 => format!("{by} unlink {name}"),
        23 => format!("{by} unlink {link}"),
        24..26 => format!("{by} rename {name} {other}"),
        26..28 => format!("{by} owner {name} {user} {group}"),
        28 => format!("{by} symlink {link}"),
        29..31 => format!("{by} attribute {name} {}", random.u32(1..700)),
        31..33 => "0 sync".to_owned(),
        33 => format!("0 days {}", random.u32(1..5)),
        34 => format!("{by} directory {directory}"),
        35 => format!("{by} remove-directory {directory}"),
        36 => {
            let mut days = || random.u32(1..8) * 86_400;
            format!("0 grace {} {} {}", &owner[..1], days(), days())
        }
        _ => {
            // The project always has limits: without them, `statfs` shows the image.
            let is_always = owner.starts_with('2');
            let mut soft_and_hard = |most: u32| {
                let soft = random.u32(1..most);
                [soft, soft + random.u32(..most / 2)]
                    .map(|limit| if !is_always && random.u32(..6) == 0 { 0 } else { limit })
            };
            let ([space_soft, space_hard], [soft, hard]) = (soft_and_hard(16), soft_and_hard(8));
            format!("0 limits {owner} {space_soft} {space_hard} {soft} {hard}")
        }
    }
}
