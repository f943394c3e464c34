//! What the drawings of a page share: sizes, patterns of lines, round steps of an axis.

/// Patterns of the lines, in the order of the variants; the first is solid.
pub const DASHES: [&str; 5] = ["", "7 3", "10 3 2 3", "4 2", "14 4"];

/// Number of colours that the page defines as `--line-0` and so on.
pub const COLOURS: usize = 9;

/// A size of the drawing, in its own units, which are CSS pixels where it is not scaled.
#[derive(Debug, Clone, Copy)]
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
pub const WIDE: Size = Size {
    width: 1040.0,
    height: 440.0,
    left: 56.0,
    right: 178.0,
    top: 34.0,
    bottom: 44.0,
    class: "wide",
};
/// For a phone: short labels at the ends, the legend has the names.
pub const NARROW: Size = Size {
    width: 358.0,
    height: 330.0,
    left: 40.0,
    right: 22.0,
    top: 26.0,
    bottom: 40.0,
    class: "narrow",
};

impl Size {
    /// Where the plot ends.
    pub(super) fn bottom_edge(self) -> f64 {
        self.height - self.bottom
    }
}

/// 1, 2 or 5 times a power of ten, not below `rough`.
pub(super) fn nice_step(rough: f64) -> f64 {
    let power = 10_f64.powf(rough.max(1e-3).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= rough)
        .unwrap_or(power * 10.0)
}

/// Text within SVG.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_numbers() {
        assert_eq!(
            (nice_step(103.0), nice_step(0.7), nice_step(20.0)),
            (200.0, 1.0, 20.0)
        );
    }
}
