//! What the drawings of a page share: sizes, colours and patterns of lines, round steps of an axis, their templates.
//!
//! The template engine of the page draws, and these files compute coordinates. Weighed against it: plotters (no classes or
//! CSS variables, so no dark mode and no zoom by the page's script), charming (JavaScript from a network), poloto (its own
//! axes, no bands or phases), svg (a builder, as long as the markup itself).

use ebb_allocators::Allocator;
use ebb_trial::results::Variant;
use minijinja::Environment;
use minijinja::value::Serde;
use serde::Serialize;

/// Patterns of the lines; the first is solid.
pub const DASHES: [&str; 8] = ["", "7 3", "10 3 2 3", "4 2", "14 4", "12 3 2 3 2 3", "20 3", "6 2 6 6"];

/// Number of colours that the page defines as `--line-0` and so on.
#[cfg(test)]
pub const COLOURS: usize = 9;
/// The colour of an allocator, on every page: a reader of two pages must not learn it twice.
const OF_ALLOCATORS: [(Allocator, usize); 6] = [
    (Allocator::Glibc, 0),
    (Allocator::Ebbmalloc, 2),
    (Allocator::Jemalloc, 1),
    (Allocator::Mimalloc, 3),
    (Allocator::Tcmalloc, 4),
    (Allocator::Musl, 6),
];
/// The colours of all others, in the order in which they come.
const OF_OTHERS: [usize; 3] = [5, 7, 8];

/// How the line of a variant is drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Stroke {
    pub colour: usize,
    pub dashes: &'static str,
}

/// The strokes of all variants, in their order: the colour is the allocator's, the pattern tells its variants
/// apart, and, as far as there are patterns, all lines.
pub fn strokes(variants: &[Variant]) -> Vec<Stroke> {
    let mut others: Vec<&str> = Vec::new();
    let mut strokes: Vec<Stroke> = Vec::new();
    for variant in variants {
        let allocator = variant.allocator.as_str();
        let known = OF_ALLOCATORS.iter().find(|(known, _)| known.name() == allocator);
        let colour = known.map_or_else(
            || {
                let place = others.iter().position(|name| *name == allocator);
                let place = place.unwrap_or_else(|| {
                    others.push(allocator);
                    others.len() - 1
                });
                OF_OTHERS[place % OF_OTHERS.len()]
            },
            |(_, colour)| *colour,
        );
        let used = |dashes: &str, same: bool| {
            let with = strokes.iter().filter(|it| it.dashes == dashes);
            with.filter(|it| !same || it.colour == colour).count()
        };
        let dashes = DASHES.into_iter().min_by_key(|dashes| (used(dashes, true), used(dashes, false)));
        strokes.push(Stroke { colour, dashes: dashes.unwrap_or_default() });
    }
    strokes
}

/// A size of the drawing, in its own units, which are CSS pixels where it is not scaled.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Size {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
    /// The class that the page shows or hides it by.
    pub(super) class: &'static str,
}

/// For a desktop: labels at the ends of the lines.
pub const WIDE: Size =
    Size { width: 1040.0, height: 440.0, left: 56.0, right: 178.0, top: 34.0, bottom: 44.0, class: "wide" };
/// For a phone: short labels at the ends, the legend has the names.
pub const NARROW: Size =
    Size { width: 358.0, height: 330.0, left: 40.0, right: 22.0, top: 26.0, bottom: 40.0, class: "narrow" };

impl Size {
    /// Where the plot ends.
    pub(super) fn bottom_edge(self) -> f64 {
        self.height - self.bottom
    }

    /// Whether there is room for short labels only.
    pub(super) fn is_narrow(self) -> bool {
        self.width < 500.0
    }
}

/// 1, 2 or 5 times a power of ten, not below `rough`.
pub(super) fn nice_step(rough: f64) -> f64 {
    let power = 10_f64.powf(rough.max(1e-3).log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|step| *step >= rough).unwrap_or(power * 10.0)
}

/// To one decimal: more would only make the page bigger.
pub(super) fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// The data of an SVG path through points of a drawing.
pub(super) fn path(points: impl Iterator<Item = (f64, f64)>) -> String {
    let parts = points.enumerate().map(|(index, (x, y))| {
        let command = if index == 0 { 'M' } else { 'L' };
        format!("{command}{x} {y}")
    });
    parts.collect()
}

/// Fills in the template of a drawing; what is put in is escaped.
pub(super) fn fill(template: &str, contents: &serde_json::Value) -> Result<String, minijinja::Error> {
    // The name's ending switches escaping on.
    Environment::new().render_named_str("drawing.html", template, Serde(contents))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocator_has_one_colour_whatever_is_compared() {
        let variant = |(name, allocator): &(&str, &str)| Variant::new(name, allocator);
        let strokes_of = |names: &[(&str, &str)]| strokes(&names.iter().map(variant).collect::<Vec<_>>());
        let one = strokes_of(&[("glibc", "glibc"), ("ebbmalloc", "ebbmalloc")]);
        let other = strokes_of(&[
            ("jemalloc", "jemalloc"),
            ("ebbmalloc", "ebbmalloc"),
            ("own", "/opt/own.so"),
            ("jemalloc-1000", "jemalloc"),
        ]);
        assert_eq!(one[1].colour, other[1].colour);
        assert_eq!(other[0].colour, other[3].colour);
        let colours: std::collections::BTreeSet<usize> = other.iter().map(|stroke| stroke.colour).collect();
        assert_eq!(colours.len(), 3, "another file has a colour of its own");
        let dashes: std::collections::BTreeSet<&str> = other.iter().map(|stroke| stroke.dashes).collect();
        assert_eq!(dashes.len(), 4, "no two lines have one pattern");
        let all = OF_ALLOCATORS.iter().map(|(_, colour)| *colour);
        let mut all: Vec<usize> = all.chain(OF_OTHERS).collect();
        all.sort_unstable();
        assert_eq!(all, (0..COLOURS).collect::<Vec<_>>());
    }

    #[test]
    fn steps_are_round_numbers() {
        assert_eq!((nice_step(103.0), nice_step(0.7), nice_step(20.0)), (200.0, 1.0, 20.0));
    }
}
