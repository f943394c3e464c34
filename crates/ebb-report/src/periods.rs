//! Two periods of a recording, as text and as a page. Pure.

use std::fmt::Write;

use super::chart;
use super::drawing::{DASHES, NARROW, Stroke, WIDE};
use super::figures::{FIGURES, signed};
use super::timeline::{Line, Timeline};
use ebb_diagnosis::facts::periods::{Comparison, Figure, Level, Period};
use ebb_diagnosis::periods::mean_of_replicas;
use ebb_process::record::Record;
use ebb_trial::results::Unit;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

/// The answer and a table.
pub fn render(comparison: &Comparison, zone: &TimeZone) -> String {
    let mut out = format!("{}\n\n", comparison.sentence);
    for (name, period) in sides(comparison) {
        let _ = writeln!(out, "{name}: {}", in_words(period, zone));
    }
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["MB per replica", "before", "after", "difference"]);
    for row in rows(comparison) {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(comfy_table::CellAlignment::Right);
    }
    let _ = writeln!(out, "\n{table}");
    for caution in &comparison.cautions {
        let _ = writeln!(out, "! {caution}");
    }
    out
}

fn sides(comparison: &Comparison) -> [(&'static str, &Period); 2] {
    [("Before", &comparison.before), ("After", &comparison.after)]
}

/// "2026-11-24 14:00 to 2026-11-25 07:00, 1020 records, glibc".
fn in_words(period: &Period, zone: &TimeZone) -> String {
    let time = |at: Timestamp| at.to_zoned_datetime(zone.clone()).strftime("%Y-%m-%d %H:%M").to_string();
    format!(
        "{} to {}, {} records, {}",
        time(period.from),
        time(period.to),
        period.records,
        period.allocators.join(", ")
    )
}

fn rows(comparison: &Comparison) -> Vec<[String; 4]> {
    let (before, after) = (&comparison.before, &comparison.after);
    let mut rows: Vec<[String; 4]> = comparison.levels.iter().map(level).collect();
    let pair = |name: &str, of: &dyn Fn(&Period) -> String| [name.to_owned(), of(before), of(after), String::new()];
    let unknown = || "not known".to_owned();
    rows.push(pair("highest", &|it| it.highest.map_or_else(unknown, |bytes| mb(bytes as f64))));
    rows.push(pair("drift per day", &|it| {
        let Some(drift) = it.drift else { return "too short".to_owned() };
        let [middle, low, high] = [drift.per_day, drift.low, drift.high].map(|it| signed(it, Unit::Bytes));
        format!("{middle}\n{low} … {high}")
    }));
    if before.near_limit.is_some() || after.near_limit.is_some() {
        rows.push(pair("time above 90 % of the limit", &|it| {
            it.near_limit.map_or("no limit".to_owned(), |share| format!("{:.1} %", share * 100.0))
        }));
    }
    rows.push(pair("OOM kills", &|it| it.oom_kills.map_or_else(unknown, |kills| kills.to_string())));
    rows.push(pair("restarts", &|it| it.restarts.to_string()));
    if before.most_replicas.max(after.most_replicas) > 1 {
        rows.push(pair("replicas, mean (most)", &|it| format!("{:.1} ({})", it.replicas, it.most_replicas)));
    }
    if let Some(autoscaled) = &comparison.autoscale {
        let outcomes = [&autoscaled.before, &autoscaled.after];
        for (name, of) in FIGURES {
            let [before, after] = outcomes.map(of);
            rows.push([format!("simulated: {name}"), before, after, String::new()]);
        }
    }
    rows
}

fn mb(bytes: f64) -> String {
    super::figures::plain(bytes, Unit::Bytes)
}

fn level(level: &Level) -> [String; 4] {
    let name = match level.figure {
        Figure::Typical => "typical",
        Figure::Floor => "floor",
        Figure::Peak => "peak",
    };
    let mut difference = signed(level.change, Unit::Bytes);
    if let Some((low, high)) = level.interval {
        let _ = write!(difference, "\n{} … {}", signed(low, Unit::Bytes), signed(high, Unit::Bytes));
    }
    if let Some(label) = level.reading.and_then(|reading| reading.label()) {
        let _ = write!(difference, "\n{label}");
    }
    [name.to_owned(), mb(level.before), mb(level.after), difference]
}

/// The page: the answer, both periods in one picture, the table.
pub fn render_page(
    comparison: &Comparison,
    before: &[Record],
    after: &[Record],
    zone: &TimeZone,
) -> Result<String, String> {
    page(comparison, [before, after], zone).map_err(|error| error.to_string())
}

fn page(comparison: &Comparison, records: [&[Record]; 2], zone: &TimeZone) -> Result<String, minijinja::Error> {
    let timeline = timeline(comparison, records, zone);
    let legend = timeline.lines.iter().zip(sides(comparison)).map(|(line, (_, period))| {
        json!({ "variant": line.variant, "name": line.name, "stroke": line.stroke, "about": in_words(period, zone) })
    });
    let wide = chart::draw(&timeline, WIDE)?;
    let contents = json!({
        "script": include_str!("page/page.js"),
        "comparison": comparison,
        "data": (!wide.is_empty()).then(|| super::html::data(&timeline)),
        "wide": wide,
        "narrow": chart::draw(&timeline, NARROW)?,
        "legend": legend.collect::<Vec<Value>>(),
        "rows": rows(comparison),
    });
    super::html::fill(include_str!("page/periods.html"), contents)
}

/// Both periods over the same hours: where hours are compared, each begins at the midnight before its first record.
fn timeline(comparison: &Comparison, records: [&[Record]; 2], zone: &TimeZone) -> Timeline {
    let midnight = |at: Timestamp| {
        let day = at.to_zoned_datetime(zone.clone()).start_of_day();
        day.map_or(at, |day| day.timestamp())
    };
    let begin = |records: &[Record]| {
        let first = records.first().map_or_else(Timestamp::default, |it| it.at);
        if comparison.same_hours { midnight(first) } else { first }
    };
    let lines = records.into_iter().enumerate().map(|(variant, records)| {
        let begin = begin(records).as_millisecond() as f64 / 1e3;
        let points = records.iter().filter_map(|record| {
            let at_s = record.at_s() - begin;
            Some((at_s, mean_of_replicas(record)? / 1e6))
        });
        Line {
            variant,
            name: ["before", "after"][variant].to_owned(),
            stroke: Stroke { colour: [0, 2][variant], dashes: DASHES[variant] },
            best: variant == 1,
            ..Line::of_one(points.collect())
        }
    });
    let since = if comparison.same_hours { "since midnight" } else { "since the period's beginning" };
    Timeline::of_lines(lines.collect(), since)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_diagnosis::facts::autoscale::{Outcome, Settings, Target, Vertical};
    use ebb_diagnosis::facts::periods::Autoscaled;
    use ebb_diagnosis::periods::compare;
    use ebb_process::record::{FORMAT, Replica};

    /// Two days at 400 MB, then 17 hours at 200 MB, in looks of ten minutes.
    fn records() -> (Vec<Record>, Vec<Record>) {
        let begin: Timestamp = "2026-11-22T14:00:00Z".parse().unwrap();
        let record = |number: i64| {
            let (rss, allocator) = if number < 288 { (400, "glibc") } else { (200, "<ebbmalloc>") };
            let replica = Replica {
                pid: if number < 288 { 7 } else { 8 },
                started: 1,
                processes: 1,
                rss: Some((rss + number as u64 % 6) * 1_000_000),
                anon: None,
                swap: None,
                allocator: Some(allocator.into()),
                cgroup: None,
            };
            Record {
                format: FORMAT,
                at: begin + jiff::SignedDuration::from_mins(10 * number),
                every_s: 600.0,
                target: "app".into(),
                replicas: vec![replica],
            }
        };
        ((0..288).map(record).collect(), (288..390).map(record).collect())
    }

    #[test]
    fn the_answer_comes_first_then_times_of_the_zone_and_the_table() {
        let (before, after) = records();
        let mut comparison = compare(&before, &after).unwrap();
        let outcome = |replicas| Outcome {
            target: 300_000_000,
            replicas,
            most: 4,
            started: 3,
            changes: Vec::new(),
            vertical: Vertical { request: 500_000_000, lower: 400_000_000, upper: 900_000_000, restarts: 2 },
        };
        let settings = Settings { target: Target::Utilization(0.7), request: None, min: 1, max: 20 };
        comparison.autoscale = Some(Autoscaled { settings, before: outcome(3.25), after: outcome(1.0) });
        let zone = TimeZone::fixed(jiff::tz::offset(1));
        let text = render(&comparison, &zone);
        assert!(text.starts_with("The memory of app is 50 % lower (50 to 50 %), sustained over 17 h"), "{text}");
        for expected in [
            "Before: 2026-11-22 15:00 to 2026-11-24 14:50, 288 records, glibc",
            "After: 2026-11-24 15:00 to 2026-11-25 07:50, 102 records, <ebbmalloc>",
            "typical",
            "\u{2212}200.0",
            "highest",
            "drift per day",
            "OOM kills",
            "not known",
            "simulated: replicas, mean (most)",
            "3.2 (4)",
            "500.0 (400.0 … 900.0)",
        ] {
            assert!(text.contains(expected), "{expected} is not in\n{text}");
        }
        assert!(!text.contains("90 % of the limit"), "there is none: {text}");
    }

    #[test]
    fn the_page_has_both_periods_in_one_picture_and_needs_no_network() {
        let (before, after) = records();
        let comparison = compare(&before, &after).unwrap();
        let page = render_page(&comparison, &before, &after, &TimeZone::UTC).unwrap();
        for expected in [
            "<!doctype html>",
            "50 % lower",
            "class=\"plot wide\"",
            "class=\"plot narrow\"",
            "hours since midnight",
            "&lt;ebbmalloc&gt;",
            "the same hours lie above each other",
            "</html>",
        ] {
            assert!(page.contains(expected), "{expected}");
        }
        assert_eq!(page.matches("<path class=\"line").count(), 6, "two lines, for two screens and the legend");
        for network in ["http://", "https://", "src=", "@import", "url(", "NaN", "<ebbmalloc>"] {
            assert!(!page.contains(network), "{network} in the page");
        }
    }
}
