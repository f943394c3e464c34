//! Two periods of a recording, as text and as a page. Pure.

use std::fmt::Write;

use super::chart;
use super::drawing::{DASHES, NARROW, Stroke, WIDE};
use super::figures::signed;
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
    let time =
        |at: Timestamp| at.to_zoned_datetime(zone.clone()).strftime("%Y-%m-%d %H:%M").to_string();
    format!(
        "{} to {}, {} records, {}",
        time(period.from),
        time(period.to),
        period.records,
        period.allocators.join(", ")
    )
}

/// The rows of the table, as text.
fn rows(comparison: &Comparison) -> Vec<[String; 4]> {
    let (before, after) = (&comparison.before, &comparison.after);
    let mut rows: Vec<[String; 4]> = comparison.levels.iter().map(level).collect();
    let pair = |name: &str, of: &dyn Fn(&Period) -> String| {
        [name.to_owned(), of(before), of(after), String::new()]
    };
    let unknown = || "not known".to_owned();
    rows.push(pair("highest", &|it| it.highest.map_or_else(unknown, |bytes| mb(bytes as f64))));
    rows.push(pair("drift per day", &|it| {
        let Some(drift) = it.drift else { return "too short".to_owned() };
        let [middle, low, high] =
            [drift.per_day, drift.low, drift.high].map(|it| signed(it, Unit::Bytes));
        format!("{middle}\n{low} … {high}")
    }));
    if before.near_limit.is_some() || after.near_limit.is_some() {
        rows.push(pair("time above 90 % of the limit", &|it| {
            it.near_limit.map_or("no limit".to_owned(), |share| format!("{:.1} %", share * 100.0))
        }));
    }
    rows.push(pair("OOM kills", &|it| {
        it.oom_kills.map_or_else(unknown, |kills| kills.to_string())
    }));
    rows.push(pair("restarts", &|it| it.restarts.to_string()));
    if before.most_replicas.max(after.most_replicas) > 1 {
        rows.push(pair("replicas, mean (most)", &|it| {
            format!("{:.1} ({})", it.replicas, it.most_replicas)
        }));
    }
    if let Some(autoscaled) = &comparison.autoscale {
        let outcomes = [&autoscaled.before, &autoscaled.after];
        for (name, of) in super::autoscale::FIGURES {
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
        let _ =
            write!(difference, "\n{} … {}", signed(low, Unit::Bytes), signed(high, Unit::Bytes));
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

fn page(
    comparison: &Comparison,
    records: [&[Record]; 2],
    zone: &TimeZone,
) -> Result<String, minijinja::Error> {
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
    let since =
        if comparison.same_hours { "since midnight" } else { "since the period's beginning" };
    Timeline::of_lines(lines.collect(), since)
}

#[cfg(test)]
mod tests;
