//! Memory over time as SVG: phases shaded, one line per variant with its band, the live heap dotted below.
//!
//! Drawn twice, for a desktop and for a phone, because a drawing that is only scaled down cannot be
//! read. Lines differ by colour, by dashes, and by a label at their end. Here are the coordinates; the markup is the
//! template `page/chart.svg`. Pure.

use super::drawing::{Size, fill, nice_step, path, tenths};
use super::timeline::{Line, PhaseBand, Timeline, value_at};
use serde_json::{Value, json};

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

struct Axes {
    size: Size,
    end_s: f64,
    top_mb: f64,
}

impl Axes {
    fn x(&self, at_s: f64) -> f64 {
        tenths(self.size.left + at_s / self.end_s * (self.size.width - self.size.left - self.size.right))
    }

    fn y(&self, mb: f64) -> f64 {
        let height = self.size.bottom_edge() - self.size.top;
        tenths(self.size.top + height * (1.0 - mb / self.top_mb))
    }

    fn path(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        path(points.map(|(at_s, mb)| (self.x(at_s), self.y(mb))))
    }
}

/// Draws it; empty without a line.
pub fn draw(timeline: &Timeline, size: Size) -> Result<String, minijinja::Error> {
    if timeline.lines.is_empty() || timeline.end_s <= 0.0 {
        return Ok(String::new());
    }
    let step = nice_step(timeline.highest_mb / 5.0);
    let top_mb = (timeline.highest_mb * 1.04 / step).ceil() * step;
    let axes = Axes { size, end_s: timeline.end_s, top_mb };
    let scale = TimeScale::of(timeline.end_s);
    let time_step = nice_step(timeline.end_s / scale.seconds / if size.is_narrow() { 4.0 } else { 8.0 });
    let ticks_y = (0..=(top_mb / step).round() as u32).map(|tick| {
        let mb = f64::from(tick) * step;
        json!({ "at": axes.y(mb), "text": mb.to_string() })
    });
    let ticks_x = (0..=(timeline.end_s / scale.seconds / time_step) as u32).map(|tick| {
        let at = f64::from(tick) * time_step;
        // Multiples of steps such as 0.2 are not quite round.
        json!({ "at": axes.x(at * scale.seconds), "text": ((at * 1000.0).round() / 1000.0).to_string() })
    });
    let shades = timeline.shades.iter().map(|shade| {
        let from = axes.x(shade.from_s);
        let width = tenths(axes.x(shade.to_s) - from);
        json!({ "from": from, "width": width, "kind": shade.kind.label(), "counts": shade.kind.counts() })
    });
    let contents = json!({
        "size": size,
        "ticks_y": ticks_y.collect::<Vec<_>>(),
        "ticks_x": ticks_x.collect::<Vec<_>>(),
        "unit": format!("{} {}", scale.unit, timeline.since),
        "names": names(&axes, &timeline.shades),
        "shades": shades.collect::<Vec<_>>(),
        "lines": timeline.lines.iter().map(|line| paths(&axes, line)).collect::<Vec<_>>(),
        "labels": labels(&axes, &timeline.lines),
    });
    fill(include_str!("page/chart.svg"), &contents)
}

/// The names above the phases; one that does not fit above its phase is left to the legend.
fn names(axes: &Axes, shades: &[PhaseBand]) -> Vec<Value> {
    let mut free_from = 0.0;
    let mut names = Vec::new();
    for shade in shades {
        let (from, to) = (axes.x(shade.from_s), axes.x(shade.to_s));
        // About 6 units a letter.
        let width = 6.2 * shade.name.chars().count() as f64;
        if to - from >= width && from >= free_from {
            let middle = f64::midpoint(from, to);
            names.push(json!({ "at": tenths(middle), "text": shade.name }));
            free_from = middle + width / 2.0;
        }
    }
    names
}

/// What is drawn of a variant.
fn paths(axes: &Axes, line: &Line) -> Value {
    let upper = line.band.iter().map(|(at_s, _, high)| (*at_s, *high));
    let lower = line.band.iter().rev().map(|(at_s, low, _)| (*at_s, *low));
    let restarts = line.restarts.iter().map(|(at_s, text)| {
        let mb = value_at(&line.median, *at_s).unwrap_or(0.0);
        json!({ "x": axes.x(*at_s), "y": axes.y(mb), "text": text })
    });
    // A live heap that is known only at the ends of rests is shown there.
    let known = line.live.iter().filter(|_| line.live_is_known);
    let live = (line.live.len() > 1).then(|| axes.path(line.live.iter().copied()));
    json!({
        "variant": line.variant,
        "name": line.name,
        "colour": line.stroke.colour,
        "dashes": line.stroke.dashes,
        "best": line.best,
        "band": axes.path(upper.chain(lower)),
        "median": axes.path(line.median.iter().copied()),
        "restarts": restarts.collect::<Vec<_>>(),
        "live": live,
        "dots": known.map(|point| axes.path([*point].into_iter())).collect::<Vec<_>>(),
    })
}

/// A label at the end of each line, pushed apart where lines end at the same height.
fn labels(axes: &Axes, lines: &[Line]) -> Vec<Value> {
    let narrow = axes.size.is_narrow();
    let gap = if narrow { 12.0 } else { 16.0 };
    let mut labels: Vec<(f64, f64, &Line)> =
        lines.iter().filter_map(|line| line.median.last().map(|(_, mb)| (axes.y(*mb), axes.y(*mb), line))).collect();
    labels.sort_by(|left, right| left.0.total_cmp(&right.0));
    let mut above = axes.size.top - gap;
    for label in &mut labels {
        label.1 = label.1.max(above + gap);
        above = label.1;
    }
    let mut below = axes.size.bottom_edge();
    for label in labels.iter_mut().rev() {
        label.1 = label.1.min(below);
        below = label.1 - gap;
    }
    let label = |(end, at, line): (f64, f64, &Line)| {
        let text = if narrow { (line.variant + 1).to_string() } else { short(&line.name) };
        json!({
            "end": end,
            "at": tenths(at),
            "variant": line.variant,
            "colour": line.stroke.colour,
            "dashes": line.stroke.dashes,
            "text": text,
        })
    };
    labels.into_iter().map(label).collect()
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
            let svg = draw(&timeline, size).unwrap();
            for (class, count) in [
                ("\"line", 2),
                ("\"band\"", 2),
                ("\"live\"", 2),
                ("\"end-label\"", 2),
                ("\"phase ", 3),
                ("\"edge\"", 1),
            ] {
                assert_eq!(svg.matches(&format!("class={class}")).count(), count, "{class}");
            }
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }

    #[test]
    fn a_day_is_labelled_in_hours_and_restarts_are_marked() {
        let mut timeline = Timeline::of(&example::trial());
        timeline.end_s = 86_400.0;
        timeline.lines[0].restarts = vec![(3600.0, "restarted <again>".into())];
        let svg = draw(&timeline, WIDE).unwrap();
        assert!(svg.contains(">20</text>") && svg.contains("hours after readiness"), "{svg}");
        assert_eq!(svg.matches("class=\"restart\"").count(), 1);
        assert!(svg.contains("restarted &lt;again&gt;"));
    }

    #[test]
    fn labels_that_would_overlap_are_pushed_apart_and_stay_inside() {
        let mut timeline = Timeline::of(&example::trial());
        let line = timeline.lines[0].clone();
        timeline.lines = (0..9).map(|variant| Line { variant, ..line.clone() }).collect();
        let svg = draw(&timeline, WIDE).unwrap();
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
        assert_eq!(draw(&Timeline::default(), WIDE).unwrap(), "");
        let mut trial = example::trial();
        trial.variants[0].name = "<b>".into();
        let svg = draw(&Timeline::of(&trial), WIDE).unwrap();
        assert!(svg.contains("&lt;b&gt;") && !svg.contains("<b>"));
    }
}
