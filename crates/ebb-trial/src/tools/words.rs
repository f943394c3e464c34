//! Words and times of a load tool's summary.

pub(super) fn word_after<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(label)?;
    rest.lines().next()?.split_whitespace().next()
}

/// The lines `  [X] rest` below a heading: the text in the brackets, and the text after them.
pub(super) fn bracketed_after<'a>(text: &'a str, heading: &str) -> Vec<(&'a str, &'a str)> {
    let Some((_, below)) = text.split_once(heading) else {
        return Vec::new();
    };
    let lines = below.lines().skip(1).map_while(|line| line.strip_prefix("  ["));
    lines.filter_map(|line| line.split_once(']')).map(|(inside, rest)| (inside, rest.trim())).collect()
}

/// A length of time as tools in Go and C write it, in milliseconds: `612.34µs`, `47.18ms`, `1m3.2s`.
pub(super) fn millis(text: &str) -> Option<f64> {
    let mut total = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !(letter.is_ascii_digit() || letter == '.'))?;
        let value: f64 = rest[..digits].parse().ok()?;
        let unit_end = rest[digits..].find(|letter: char| letter.is_ascii_digit()).map_or(rest.len(), |at| digits + at);
        total += value
            * match &rest[digits..unit_end] {
                "ns" => 1e-6,
                "us" | "µs" => 1e-3,
                "ms" => 1.0,
                "s" => 1e3,
                "m" => 60e3,
                "h" => 3600e3,
                _ => return None,
            };
        rest = &rest[unit_end..];
    }
    (!text.is_empty()).then_some(total)
}
