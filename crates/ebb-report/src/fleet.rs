//! What a fleet holds, as text and as a page, and the list of workloads to look after. Pure.

use std::fmt::Write;

use super::chart;
use super::drawing::{DASHES, NARROW, Stroke, WIDE};
use super::figures::{counted, duration, plain};
use super::timeline::{Line, Timeline};
use ebb_diagnosis::facts::fleet::{Figure, Money, Ranking, Row, Watched};
use ebb_trial::results::Unit;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

/// Hours of a month, as clouds count them.
const MONTH_HOURS: f64 = 730.0;
/// Workloads in the picture.
const LINES: usize = 6;

/// The answer and a table.
pub fn render(ranking: &Ranking, by: &str, top: usize, zone: &TimeZone) -> String {
    let mut out = format!("{}\n{}\n", ranking.sentence, time(ranking, zone));
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(headings(ranking, by));
    for row in rows(ranking, top) {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(comfy_table::CellAlignment::Right);
    }
    let _ = writeln!(out, "\n{table}");
    let more = ranking.rows.len().saturating_sub(top);
    if more > 0 {
        let _ = writeln!(out, "{more} more rows: --top, --json");
    }
    for caution in &ranking.cautions {
        let _ = writeln!(out, "! {caution}");
    }
    out
}

/// "2026-11-17 14:00 to 2026-11-24 14:00, a value every 5 min".
fn time(ranking: &Ranking, zone: &TimeZone) -> String {
    let text = |seconds: f64| {
        let at = Timestamp::from_second(seconds as i64).unwrap_or_default();
        at.to_zoned_datetime(zone.clone()).strftime("%Y-%m-%d %H:%M").to_string()
    };
    format!(
        "{} to {}, a value every {}; shorter peaks may be missed",
        text(ranking.from_s),
        text(ranking.to_s),
        duration(ranking.step_s)
    )
}

fn has_price(ranking: &Ranking) -> bool {
    ranking.rows.iter().any(|row| row.saving.is_some())
}

fn headings(ranking: &Ranking, by: &str) -> Vec<String> {
    let columns = ["MB held, mean", "at own peaks", "at node peaks", "OOM kills", "scale-outs", "data, looks"];
    let money = has_price(ranking).then_some("saved per month");
    let all = std::iter::once(by).chain(columns).chain(money);
    all.map(str::to_owned).collect()
}

/// The rows of the table, all workloads together first.
fn rows(ranking: &Ranking, top: usize) -> Vec<Vec<String>> {
    let has_price = has_price(ranking);
    let all = std::iter::once(&ranking.all).chain(ranking.rows.iter().take(top));
    all.map(|row| cells(row, has_price)).collect()
}

fn cells(row: &Row, has_price: bool) -> Vec<String> {
    let mut cells = vec![
        format!("{}\n{}", row.name, counted(row.containers, "container")),
        figure(&row.mean, row),
        figure(&row.own_peaks, row),
        figure(&row.node_peaks, row),
        events(row.oom_kills, row.oom_kills_holding),
        events(row.scale_outs as f64, row.scale_outs_holding as f64),
        format!("{:.0} %\n{:.0} looks", 100.0 * row.share_of_time, row.looks),
    ];
    if has_price {
        cells.push(row.saving.map_or("not known".to_owned(), |it| money(&it)));
    }
    cells
}

fn figure(figure: &Figure, row: &Row) -> String {
    if row.share_looked == 0.0 {
        return "not read".to_owned();
    }
    let mb = |bytes: f64| plain(bytes, Unit::Bytes);
    let interval = figure.interval.map_or(String::new(), |(low, high)| format!("\n{} … {}", mb(low), mb(high)));
    format!("{}{interval}", mb(figure.bytes))
}

fn events(count: f64, holding: f64) -> String {
    let holding = if holding > 0.0 { format!("\n{holding:.0} holding") } else { String::new() };
    format!("{count:.0}{holding}")
}

fn money(money: &Money) -> String {
    let month = |per_hour: f64| plain(per_hour * MONTH_HOURS, Unit::PerSecond);
    let without = month(money.without_change_per_hour);
    format!("{}\n{without} without change", month(money.per_hour))
}

/// The page: the answer, the first workloads in one picture, the table.
pub fn render_page(ranking: &Ranking, by: &str, top: usize, zone: &TimeZone) -> Result<String, String> {
    page(ranking, by, top, zone).map_err(|error| error.to_string())
}

fn page(ranking: &Ranking, by: &str, top: usize, zone: &TimeZone) -> Result<String, minijinja::Error> {
    let line = |(variant, row): (usize, &Row)| Line {
        variant,
        name: row.name.clone(),
        stroke: Stroke { colour: variant, dashes: DASHES[variant % DASHES.len()] },
        best: variant == 0,
        ..Line::of_one(row.course.clone())
    };
    let lines = ranking.rows.iter().take(LINES).enumerate().map(line);
    let timeline = Timeline::of_lines(lines.collect(), "since the beginning");
    let legend =
        timeline.lines.iter().map(|line| json!({ "variant": line.variant, "name": line.name, "stroke": line.stroke }));
    let wide = chart::draw(&timeline, WIDE)?;
    let contents = json!({
        "script": include_str!("page/page.js"),
        "sentence": ranking.sentence,
        "cautions": ranking.cautions,
        "time": time(ranking, zone),
        "more": ranking.rows.len().saturating_sub(top),
        "data": (!wide.is_empty()).then(|| super::html::data(&timeline)),
        "wide": wide,
        "narrow": chart::draw(&timeline, NARROW)?,
        "legend": legend.collect::<Vec<Value>>(),
        "headings": headings(ranking, by),
        "rows": rows(ranking, top),
    });
    super::html::fill(include_str!("page/fleet.html"), contents)
}

/// The list of workloads to look after.
pub fn render_list(list: &[Watched]) -> String {
    if list.is_empty() {
        return "No live heap grows, every preloaded allocator serves, and no retention came back.\n".to_owned();
    }
    let entry = |watched: &Watched| format!("{}\n  {}\n  next, {}\n", watched.name, watched.evidence, watched.next);
    list.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_diagnosis::facts::fleet::Reason;

    fn ranking() -> Ranking {
        let row = Row {
            name: "shop/<api>".into(),
            containers: 3,
            mean: Figure { bytes: 300e6, interval: Some((250e6, 350e6)) },
            oom_kills: 2.0,
            oom_kills_holding: 1.0,
            share_of_time: 1.0,
            share_looked: 1.0,
            looks: 7.0,
            saving: Some(Money { per_hour: 0.1, without_change_per_hour: 0.0, containers: 3 }),
            course: vec![(0.0, 300.0), (3600.0, 310.0)],
            ..Row::default()
        };
        let unread = Row { name: "unread".into(), containers: 1, ..Row::default() };
        Ranking {
            sentence: "0.3 GB are returnable.".into(),
            to_s: 3600.0,
            step_s: 300.0,
            rows: vec![row, unread],
            cautions: vec!["no data for 9 % of the time".into()],
            ..Ranking::default()
        }
    }

    #[test]
    fn the_table_has_intervals_events_and_what_is_not_known() {
        let text = render(&ranking(), "workload", 1, &TimeZone::UTC);
        for expected in [
            "0.3 GB are returnable.\n1970-01-01 00:00 to 1970-01-01 01:00, a value every 5 min 00 s",
            "250.0 … 350.0",
            "1 holding",
            "7 looks",
            "73.0",
            "1 more rows: --top, --json",
            "! no data for 9 %",
        ] {
            assert!(text.contains(expected), "{expected} is not in\n{text}");
        }
        assert!(render(&ranking(), "workload", 9, &TimeZone::UTC).contains("not read"));
    }

    #[test]
    fn the_page_is_whole_and_names_are_escaped() {
        let page = render_page(&ranking(), "workload", 9, &TimeZone::UTC).unwrap();
        for expected in ["<!doctype html>", "<wbr>&lt;api&gt;", "class=\"plot wide\"", "not read", "</html>"] {
            assert!(page.contains(expected), "{expected} is not in\n{page}");
        }
        for network in ["http://", "https://", "src=", "url(", "NaN", "<api>"] {
            assert!(!page.contains(network), "{network} in the page");
        }
        assert!(render_page(&Ranking::default(), "node", 9, &TimeZone::UTC).is_ok());
    }

    #[test]
    fn a_list_says_what_to_do_next() {
        let watched = Watched {
            name: "shop/api".into(),
            reason: Reason::NotInCharge,
            evidence: "it does not serve".into(),
            next: "on a node: ebb check PID".into(),
        };
        let text = render_list(&[watched]);
        assert_eq!(text, "shop/api\n  it does not serve\n  next, on a node: ebb check PID\n");
        assert!(render_list(&[]).starts_with("No live heap grows"));
    }
}
