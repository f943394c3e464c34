//! What stands where: the three tables of a trial, independent of how they are drawn.
//!
//! Memory, cost, and the differences to the first variant. Used by all three renderings, so that the
//! terminal, the Markdown and the page never say different things.

use super::table::{Cell, Row, Table, no_figure};
use super::{figures, latency, notes};
use ebb_allocators::Allocator;
use ebb_trial::results::against::{Against, Change};
use ebb_trial::results::sureness::Reading;
use ebb_trial::results::{Autoscale, Column, Difference, Figure, Trial, Unit, Variant};

const MEMORY: [Column; 10] = [
    Column::Baseline,
    Column::Peak,
    Column::AfterRest,
    Column::Typical,
    Column::Floor,
    Column::Growth,
    Column::Reclaimable,
    Column::Live,
    Column::Cgroup,
    Column::Slope,
];
const COST: [Column; 9] = [
    Column::Cpu,
    Column::CpuSystem,
    Column::PageFaults,
    Column::Refaults,
    Column::Throughput,
    Column::P50,
    Column::P99,
    Column::HealthMax,
    Column::Throttled,
];
const DIFFERENCE: [Column; 10] = [
    Column::Peak,
    Column::AfterRest,
    Column::Typical,
    Column::Floor,
    Column::Cpu,
    Column::CpuSystem,
    Column::PageFaults,
    Column::Refaults,
    Column::Throughput,
    Column::P99,
];

/// All tables of a trial.
pub fn of(trial: &Trial) -> Vec<Table> {
    let mut tables = vec![
        table(
            trial,
            "Memory",
            &format!("{} of the process tree in MB; {}", trial.metric.label(), spread(trial)),
            &MEMORY,
            absolute,
        ),
        table(
            trial,
            "Cost",
            &format!("{}; {}{}", cpu_caption(trial), spread(trial), notes::disturbed(trial)),
            &COST,
            absolute,
        ),
    ];
    if let Some(first) = trial.variants.first().filter(|_| trial.variants.len() > 1) {
        let title = format!("Difference to {}", first.name);
        let mut difference = table(
            trial,
            &title,
            &format!("{}{}", interval_caption(trial), notes::disturbed(trial)),
            &DIFFERENCE,
            self::difference(trial),
        );
        difference.rows.remove(0);
        tables.push(difference);
    }
    if let Some(tuned) = &trial.tuned {
        for table in &mut tables {
            // Best first; what gave no figure keeps its place at the end.
            let place = |row: &Row| tuned.order.iter().position(|name| *name == row.name);
            table.rows.sort_by_key(|row| place(row).unwrap_or(usize::MAX));
        }
    }
    tables.retain(Table::has_figures);
    tables.extend(latencies(trial));
    tables.extend(trial.against.as_ref().map(|against| changes(trial, against, &DIFFERENCE)));
    tables.extend(trial.autoscale.as_ref().map(|autoscale| autoscaled(trial, autoscale)));
    tables
}

/// What an autoscaler would have done.
fn autoscaled(trial: &Trial, autoscale: &Autoscale) -> Table {
    let rows = trial.variants.iter().filter_map(|variant| {
        let outcome = autoscale.variants.get(&variant.name)?;
        let cell = |(_, of): &figures::Figure| Cell::figure(of(outcome), None);
        Some(Row::of(trial, &variant.name, figures::FIGURES.iter().map(cell)))
    });
    Table {
        title: "Autoscaler".to_owned(),
        caption: format!(
            "simulated from the run with the middle number of replicas: HPA or KEDA with {} to {} replicas, and VPA",
            autoscale.settings.min, autoscale.settings.max
        ),
        columns: figures::FIGURES.iter().map(|(name, _)| (*name).to_owned()).collect(),
        rows: rows.collect(),
    }
}

/// The distribution of latencies, where loads tell it.
fn latencies(trial: &Trial) -> Option<Table> {
    let distributions = latency::of(trial);
    let rows = distributions.iter().map(|distribution| {
        let cell = |(_, quantile): &(&str, f64)| match distribution.quantile(*quantile) {
            Some(ms) => Cell::figure(figures::plain(ms, Unit::Milliseconds), None),
            None => no_figure("–"),
        };
        Row::of(trial, &distribution.name, latency::QUANTILES.iter().map(cell))
    });
    let rows: Vec<Row> = rows.collect();
    (!rows.is_empty()).then(|| Table {
        title: "Latency".to_owned(),
        caption: format!(
            "milliseconds, over all requests of all complete runs, from the loads' histograms{}",
            notes::disturbed(trial)
        ),
        columns: latency::QUANTILES.iter().map(|(name, _)| (*name).to_owned()).collect(),
        rows,
    })
}

fn most_runs(trial: &Trial) -> u32 {
    trial.variants.iter().filter_map(|variant| variant.summary.as_ref()).map(|summary| summary.runs).max().unwrap_or(0)
}

fn cpu_caption(trial: &Trial) -> String {
    match &trial.canary {
        None => "CPU time from readiness to the end of the last phase".to_owned(),
        Some(canary) => format!("CPU time in a window of {}", figures::duration(canary.window_s)),
    }
}

fn spread(trial: &Trial) -> &'static str {
    if trial.canary.is_some() {
        "median, with the lowest and highest window below"
    } else if most_runs(trial) > 1 {
        "median, with the lowest and highest run below"
    } else {
        "one run, direction only"
    }
}

fn interval_caption(trial: &Trial) -> String {
    if trial.canary.is_some() {
        return "median of the differences per window, with the 95 % bootstrap interval below".into();
    }
    match most_runs(trial) {
        0 | 1 => "one run, direction only".into(),
        2..=4 => {
            "difference of medians, with the 95 % bootstrap interval below, which is rough with fewer than five runs"
                .into()
        }
        _ => "difference of medians, with the 95 % bootstrap interval below".into(),
    }
}

fn table(trial: &Trial, title: &str, caption: &str, columns: &[Column], cell: fn(&Figure, Unit) -> Cell) -> Table {
    // A column that no variant has is left out, except where that is news: malloc_trim was not measured, a
    // load's summary was not read, somebody did not live to the rest.
    let unread = trial.variants.iter().any(Variant::has_unread_loads);
    let oom = trial.variants.iter().any(|variant| notes::oom_kills_in_words(variant).is_some());
    let has = |column: &&Column| {
        (**column == Column::Reclaimable && trial.canary.is_none())
            || (**column == Column::AfterRest && oom)
            || (**column == Column::Throughput && unread)
            || trial.variants.iter().any(|variant| variant.figure(**column).is_some())
    };
    let columns: Vec<Column> = columns.iter().filter(has).copied().collect();
    let rows = trial.variants.iter().map(|variant| {
        let cell = |column: &Column| match (variant.figure(*column), column) {
            (Some(figure), Column::Slope) => with_own_interval(cell(figure, column.unit()), variant),
            (Some(figure), _) => cell(figure, column.unit()),
            (None, _) => missing(variant, *column),
        };
        Row::of(trial, &variant.name, columns.iter().map(cell))
    });
    Table {
        title: title.to_owned(),
        caption: caption.to_owned(),
        rows: rows.collect(),
        columns: columns.iter().map(|column| column.label().to_owned()).collect(),
    }
}

pub(super) fn difference(trial: &Trial) -> fn(&Figure, Unit) -> Cell {
    if notes::is_disturbed(trial) { versus_disturbed } else { versus }
}

/// A median with its spread.
pub(super) fn absolute(figure: &Figure, unit: Unit) -> Cell {
    let spread = || format!("{}–{}", figures::plain(figure.min, unit), figures::plain(figure.max, unit));
    Cell::figure(figures::plain(figure.median, unit), (figure.n > 1).then(spread))
}

/// A slope has an interval of its own, which is printed where there is only one run.
fn with_own_interval(cell: Cell, variant: &Variant) -> Cell {
    let mut runs = variant.complete();
    let (Some(run), None) = (runs.next(), runs.next()) else {
        return cell;
    };
    let hourly = |bytes_per_s: f64| figures::signed(bytes_per_s * 3600.0, Unit::BytesPerHour);
    let interval = run.slope.map(|slope| format!("{} … {}", hourly(slope.low), hourly(slope.high)));
    Cell { detail: interval, ..cell }
}

fn versus(figure: &Figure, unit: Unit) -> Cell {
    let Some(difference) = figure.versus_first else {
        return no_figure("–");
    };
    difference_cell(&difference, unit)
}

/// The same where times are not to be trusted: no reading of an interval is.
fn versus_disturbed(figure: &Figure, unit: Unit) -> Cell {
    let mut cell = versus(figure, unit);
    let is_time = matches!(unit, Unit::Seconds | Unit::PerSecond | Unit::Milliseconds);
    if is_time && cell.is_figure {
        let interval = figure.versus_first.and_then(|difference| interval_in_words(&difference, unit));
        cell.detail = Some(match interval {
            Some(interval) => format!("{interval}, disturbed"),
            None => "disturbed".to_owned(),
        });
    }
    cell
}

fn interval_in_words(difference: &Difference, unit: Unit) -> Option<String> {
    let (low, high) = difference.interval?;
    Some(format!("{} … {}", figures::signed(low, unit), figures::signed(high, unit)))
}

/// A difference with its interval; what the interval does not show to be one is called so.
fn difference_cell(difference: &Difference, unit: Unit) -> Cell {
    let interval =
        interval_in_words(difference, unit).map(|interval| match difference.reading.and_then(Reading::label) {
            Some(reading) => format!("{interval}, {reading}"),
            None => interval,
        });
    Cell::figure(figures::signed(difference.value, unit), interval)
}

fn missing(variant: &Variant, column: Column) -> Cell {
    if let (None, Column::AfterRest, Some(kills)) = (&variant.summary, column, notes::oom_kills_in_words(variant)) {
        return Cell { detail: Some(kills), ..no_figure("OOM-killed") };
    }
    let text = match (&variant.summary, column) {
        (None, _) => "–",
        // malloc_trim belongs to glibc: the question does not arise for the others.
        (Some(_), Column::Throughput) if variant.has_unread_loads() => "not read",
        (Some(_), Column::Reclaimable) if variant.allocator != Allocator::Glibc.name() => "n/a",
        (Some(_), _) => "not measured",
    };
    no_figure(text)
}

/// What changed since an earlier trial in those of `columns` that either has.
fn changes(trial: &Trial, against: &Against, columns: &[Column]) -> Table {
    let has = |column: &Column| against.variants.iter().any(|changes| changes.columns.contains_key(column));
    let columns: Vec<Column> = columns.iter().copied().filter(has).collect();
    let rows = against.variants.iter().map(|changes| {
        let cell = |column: &Column| match changes.columns.get(column) {
            Some(change) => change_cell(change, column.unit()),
            None => no_figure("not measured"),
        };
        Row::of(trial, &changes.name, columns.iter().map(cell))
    });
    Table {
        title: format!("Against {}", against.started),
        caption: format!(
            "then → now, with the 95 % interval of the difference below; better or worse from {} %{}",
            (against.threshold_share * 1000.0).round() / 10.0,
            notes::disturbed(trial)
        ),
        rows: rows.collect(),
        columns: columns.iter().map(|column| column.label().to_owned()).collect(),
    }
}

fn change_cell(change: &Change, unit: Unit) -> Cell {
    let interval = interval_in_words(&change.difference, unit).unwrap_or_else(|| "one run".to_owned());
    let (before, now) = (figures::plain(change.before, unit), figures::plain(change.now, unit));
    let detail = format!("{interval}, {}", change.judgement.label());
    Cell::figure(format!("{before} → {now}"), Some(detail))
}
