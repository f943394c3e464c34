//! Memory over time as SVG: phases shaded, a line a variant with its band, the live heap dotted below.
//!
//! Drawn twice, for a desktop and for a phone, because a drawing that is only scaled down cannot be
//! read. Lines differ by colour, by dashes, and by a label at their end. Colours are CSS variables of
//! the page, so the drawing follows its light and dark mode. Pure.

use super::drawing::{Size, escape, nice_step};
use super::timeline::{Line, Shade, Timeline};
use std::fmt::Write;

struct Axes {
    size: Size,
    end_s: f64,
    top_mb: f64,
    scale: TimeScale,
    since: &'static str,
}

/// The unit that a time axis is labelled in.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct TimeScale {
    /// Seconds of it.
    pub seconds: f64,
    /// Its name.
    pub unit: &'static str,
}

impl TimeScale {
    /// The unit for an axis of this length.
    pub fn of(end_s: f64) -> TimeScale {
        let (seconds, unit) = match end_s {
            long if long > 3.0 * 3600.0 => (3600.0, "hours"),
            middle if middle > 600.0 => (60.0, "minutes"),
            _ => (1.0, "seconds"),
        };
        TimeScale { seconds, unit }
    }
}

impl Axes {
    fn x(&self, at_s: f64) -> f64 {
        self.size.left + at_s / self.end_s * (self.size.width - self.size.left - self.size.right)
    }

    fn y(&self, mb: f64) -> f64 {
        let height = self.size.height - self.size.top - self.size.bottom;
        self.size.top + height * (1.0 - mb / self.top_mb)
    }

    fn bottom(&self) -> f64 {
        self.size.bottom_edge()
    }
}

/// Draws it; empty without a line.
pub fn draw(timeline: &Timeline, size: Size) -> String {
    if timeline.lines.is_empty() || timeline.end_s <= 0.0 {
        return String::new();
    }
    let step = nice_step(timeline.highest_mb / 5.0);
    let axes = Axes {
        size,
        end_s: timeline.end_s,
        top_mb: (timeline.highest_mb * 1.04 / step).ceil() * step,
        scale: TimeScale::of(timeline.end_s),
        since: timeline.since,
    };
    let mut svg = format!(
        "<svg class=\"plot {}\" viewBox=\"0 0 {} {}\" role=\"img\" aria-labelledby=\"plot-title-{0}\" data-left=\"{}\" data-right=\"{}\">\
         <title id=\"plot-title-{0}\">Memory over time, one line per variant; the tables below have the figures</title>",
        size.class, size.width, size.height, size.left, size.right
    );
    draw_grid(&mut svg, &axes, step);
    draw_names(&mut svg, &axes, &timeline.shades);
    // A drawing of its own, so that zooming is another view of it.
    let (left, top) = (size.left, size.top);
    let (width, height) = (size.width - size.left - size.right, axes.bottom() - size.top);
    let _ = write!(
        svg,
        "<svg class=\"data\" x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"{left} {top} {width} {height}\" preserveAspectRatio=\"none\">"
    );
    draw_shades(&mut svg, &axes, &timeline.shades);
    for line in &timeline.lines {
        draw_live(&mut svg, &axes, line);
    }
    for line in &timeline.lines {
        draw_line(&mut svg, &axes, line);
        draw_restarts(&mut svg, &axes, line);
    }
    svg.push_str("</svg>");
    draw_labels(&mut svg, &axes, &timeline.lines);
    let _ = write!(
        svg,
        "<line class=\"cross\" y1=\"{}\" y2=\"{}\" x1=\"0\" x2=\"0\" hidden=\"\"/></svg>",
        size.top,
        axes.bottom()
    );
    svg
}

fn draw_shades(svg: &mut String, axes: &Axes, shades: &[Shade]) {
    for shade in shades {
        let (from, to) = (axes.x(shade.from_s), axes.x(shade.to_s));
        let (top, height) = (axes.size.top, axes.bottom() - axes.size.top);
        let _ = write!(
            svg,
            "<rect class=\"phase {}\" x=\"{from:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"{height:.1}\"/>",
            shade.kind.label(),
            to - from,
        );
        if shade.kind.counts() {
            // Load can be told from rest without its colour.
            let _ = write!(
                svg,
                "<rect class=\"edge\" x=\"{from:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"4\"/>",
                to - from,
            );
        }
    }
}

fn draw_names(svg: &mut String, axes: &Axes, shades: &[Shade]) {
    let mut label_free_from = 0.0;
    for shade in shades {
        let (from, to) = (axes.x(shade.from_s), axes.x(shade.to_s));
        // About 6 units a letter; a name that does not fit above its phase is left to the legend.
        let width = 6.2 * shade.name.chars().count() as f64;
        if to - from >= width && from >= label_free_from {
            let middle = f64::midpoint(from, to);
            let _ = write!(
                svg,
                "<text class=\"phase-name\" x=\"{middle:.1}\" y=\"{}\">{}</text>",
                axes.size.top - 9.0,
                escape(&shade.name)
            );
            label_free_from = middle + width / 2.0;
        }
    }
}

fn draw_grid(svg: &mut String, axes: &Axes, step: f64) {
    let size = axes.size;
    let mut mb = 0.0;
    while mb <= axes.top_mb + step / 2.0 {
        let y = axes.y(mb);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"tick-y\" x=\"{}\" y=\"{:.1}\">{mb}</text>",
            size.left,
            size.width - size.right,
            size.left - 7.0,
            y + 4.0
        );
        mb += step;
    }
    let (end, scale) = (axes.end_s / axes.scale.seconds, axes.scale);
    let step = nice_step(end / if size.width < 500.0 { 4.0 } else { 8.0 });
    let mut at = 0.0;
    while at <= end {
        let _ = write!(
            svg,
            "<text class=\"tick-x\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            axes.x(at * scale.seconds),
            axes.bottom() + 17.0,
            // Sums of steps such as 0.2 are not quite round.
            (at * 1000.0).round() / 1000.0
        );
        at += step;
    }
    let _ = write!(
        svg,
        "<text class=\"unit\" x=\"{}\" y=\"{}\">MB</text><text class=\"unit end\" x=\"{}\" y=\"{}\">{} {}</text>",
        4.0,
        size.top - 9.0,
        size.width - size.right,
        size.height - 8.0,
        scale.unit,
        axes.since
    );
}

fn path(axes: &Axes, points: impl Iterator<Item = (f64, f64)>) -> String {
    let mut data = String::new();
    for (index, (at_s, mb)) in points.enumerate() {
        let command = if index == 0 { 'M' } else { 'L' };
        let _ = write!(data, "{command}{:.1} {:.1}", axes.x(at_s), axes.y(mb));
    }
    data
}

fn style(line: &Line) -> String {
    format!(
        "style=\"--c:var(--line-{})\" stroke-dasharray=\"{}\"",
        line.stroke.colour, line.stroke.dashes
    )
}

fn draw_line(svg: &mut String, axes: &Axes, line: &Line) {
    let upper = line.band.iter().map(|(at_s, _, high)| (*at_s, *high));
    let lower = line.band.iter().rev().map(|(at_s, low, _)| (*at_s, *low));
    if !line.band.is_empty() {
        let data = path(axes, upper.chain(lower));
        let _ = write!(
            svg,
            "<path class=\"band\" data-v=\"{}\" {} d=\"{data}Z\"/>",
            line.variant,
            style(line)
        );
    }
    let data = path(axes, line.median.iter().copied());
    let _ = write!(
        svg,
        "<path class=\"{}\" data-v=\"{}\" {} d=\"{data}\"/>",
        if line.best { "line best" } else { "line" },
        line.variant,
        style(line)
    );
}

fn draw_restarts(svg: &mut String, axes: &Axes, line: &Line) {
    for (at_s, text) in &line.restarts {
        let mb = super::timeline::value_at(&line.median, *at_s).unwrap_or(0.0);
        let (x, y) = (axes.x(*at_s), axes.y(mb));
        let _ = write!(
            svg,
            "<path class=\"restart\" data-v=\"{}\" style=\"--c:var(--line-{})\" d=\"M{x:.1} {:.1}V{:.1}\"><title>{}: {}</title></path>",
            line.variant,
            line.stroke.colour,
            y - 9.0,
            y + 9.0,
            escape(&line.name),
            escape(text)
        );
    }
}

fn draw_live(svg: &mut String, axes: &Axes, line: &Line) {
    let colour = format!("style=\"--c:var(--line-{})\"", line.stroke.colour);
    if line.live.len() > 1 {
        let data = path(axes, line.live.iter().copied());
        let _ =
            write!(svg, "<path class=\"live\" data-v=\"{}\" {colour} d=\"{data}\"/>", line.variant);
    }
    // What is told only at the ends of the rests is shown where it was told.
    if line.live_is_told {
        for (at_s, mb) in &line.live {
            let (x, y) = (axes.x(*at_s), axes.y(*mb));
            // A line of no length with a round end stays a dot in every view.
            let _ = write!(
                svg,
                "<path class=\"live-dot\" data-v=\"{}\" {colour} d=\"M{x:.1} {y:.1}h0\"/>",
                line.variant
            );
        }
    }
}

/// A label at the end of each line, pushed apart where lines end at the same height.
fn draw_labels(svg: &mut String, axes: &Axes, lines: &[Line]) {
    let narrow = axes.size.width < 500.0;
    let gap = if narrow { 12.0 } else { 16.0 };
    let mut labels: Vec<(f64, f64, &Line)> = lines
        .iter()
        .filter_map(|line| line.median.last().map(|(_, mb)| (axes.y(*mb), axes.y(*mb), line)))
        .collect();
    labels.sort_by(|left, right| left.0.total_cmp(&right.0));
    let lowest = axes.bottom();
    for index in 0..labels.len() {
        let above = if index == 0 { axes.size.top } else { labels[index - 1].1 + gap };
        labels[index].1 = labels[index].1.max(above);
    }
    let mut below = lowest;
    for label in labels.iter_mut().rev() {
        label.1 = label.1.min(below);
        below = label.1 - gap;
    }
    let x = axes.size.width - axes.size.right;
    for (end, at, line) in labels {
        let text = if narrow { (line.variant + 1).to_string() } else { short(&line.name) };
        let _ = write!(
            svg,
            "<path class=\"leader\" {} d=\"M{x} {end:.1}L{:.1} {at:.1}\"/>\
             <text class=\"end-label\" data-v=\"{}\" {0} x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            style(line),
            x + 8.0,
            line.variant,
            x + 11.0,
            at + 4.0,
            escape(&text)
        );
    }
}

/// A name that fits next to the plot: of a long one the beginning, which has the allocator, and the end,
/// which has the setting.
fn short(name: &str) -> String {
    const LETTERS: usize = 19;
    const END: usize = 6;
    let count = name.chars().count();
    if count <= LETTERS {
        return name.to_owned();
    }
    let start = name.chars().take(LETTERS - 1 - END);
    start.chain(['…']).chain(name.chars().skip(count - END)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::drawing::{NARROW, WIDE};
    use super::*;
    use ebb_trial::example;

    #[test]
    fn each_variant_has_a_line_a_band_a_live_heap_and_a_label() {
        let timeline = Timeline::of(&example::trial());
        for size in [WIDE, NARROW] {
            let svg = draw(&timeline, size);
            assert_eq!(svg.matches("class=\"line").count(), 2);
            assert_eq!(svg.matches("class=\"band\"").count(), 2);
            assert_eq!(svg.matches("class=\"live\"").count(), 2);
            assert_eq!(svg.matches("class=\"end-label\"").count(), 2);
            assert_eq!(svg.matches("class=\"phase ").count(), 3);
            assert_eq!(svg.matches("class=\"edge\"").count(), 1, "the burst's");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }

    #[test]
    fn a_day_is_labelled_in_hours_and_restarts_are_marked() {
        let mut timeline = Timeline::of(&example::trial());
        timeline.end_s = 86_400.0;
        timeline.lines[0].restarts = vec![(3600.0, "restarted <again>".into())];
        let svg = draw(&timeline, WIDE);
        assert!(svg.contains(">20</text>") && svg.contains("hours after readiness"), "{svg}");
        assert_eq!(svg.matches("class=\"restart\"").count(), 1);
        assert!(svg.contains("restarted &lt;again&gt;"));
    }

    #[test]
    fn labels_that_would_overlap_are_pushed_apart_and_stay_inside() {
        let mut timeline = Timeline::of(&example::trial());
        let line = timeline.lines[0].clone();
        timeline.lines = (0..9).map(|variant| Line { variant, ..line.clone() }).collect();
        let svg = draw(&timeline, WIDE);
        let mut heights: Vec<f64> = svg
            .split("class=\"end-label\"")
            .skip(1)
            .filter_map(|rest| rest.split(" y=\"").nth(1)?.split('"').next()?.parse().ok())
            .collect();
        heights.sort_by(f64::total_cmp);
        assert_eq!(heights.len(), 9);
        assert!(heights.windows(2).all(|pair| pair[1] - pair[0] >= 15.9), "{heights:?}");
        assert!(heights.iter().all(|y| *y > 0.0 && *y < WIDE.height), "{heights:?}");
    }

    #[test]
    fn nothing_measured_draws_nothing_and_names_are_escaped() {
        assert_eq!(draw(&Timeline::default(), WIDE), "");
        let mut trial = example::trial();
        trial.variants[0].name = "<b>".into();
        let svg = draw(&Timeline::of(&trial), WIDE);
        assert!(svg.contains("&lt;b&gt;") && !svg.contains("<b>"));
    }
}
