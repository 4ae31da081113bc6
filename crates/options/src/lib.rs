//! Setters for option types: the same style in all packages of Drystone.
//!
//! An option type is `#[non_exhaustive]`, so that options can be added later. Its fields are public and hold the
//! documentation; [`setters!`] gives each a setter that can be chained. It is made by `default()`, or by `new` if it
//! has options that nobody can choose for the caller.
#![forbid(unsafe_code)]

/// Gives fields of an option type setters that can be chained.
///
/// List each field with the type that its setter takes. It is turned `into` the field's: `impl Into<Option<u32>>` takes a
/// number, and an option of one.
///
/// ```
/// /// How to paint.
/// #[derive(Clone, Debug, Default)]
/// #[non_exhaustive]
/// pub struct PaintOptions {
///     /// Paint both sides.
///     pub both_sides: bool,
///     /// How many coats; as many as are needed unless said.
///     pub coats: Option<u32>,
/// }
///
/// drystone_options::setters! {
///     PaintOptions {
///         both_sides: bool,
///         coats: impl Into<Option<u32>>,
///     }
/// }
///
/// let options = PaintOptions::default().both_sides(true).coats(2);
/// assert_eq!((options.both_sides, options.coats), (true, Some(2)));
/// ```
#[macro_export]
macro_rules! setters {
    ($options:ident { $($name:ident: $type:ty),* $(,)? }) => {
        impl $options {
            $(
                #[doc = concat!(
                    "Sets [`", stringify!($name), "`](field@", stringify!($options), "::", stringify!($name), ")."
                )]
                #[must_use]
                pub fn $name(mut self, $name: $type) -> $options {
                    self.$name = $name.into();
                    self
                }
            )*
        }
    };
}
