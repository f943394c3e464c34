//! Two periods of a recording: from records to levels with intervals and one sentence. Used by `ebb diff DIR`.
//!
//! Restarts and replicas change all the time, so memory is that of one replica: the mean of those in a record. Windows of
//! one hour give the levels (a period shorter than six hours is cut into twelve), and the same hours of the day are compared
//! ([`ebb_statistics::periods`]).

mod lives;
mod words;

use std::collections::BTreeMap;

use crate::facts::periods::{Comparison, Drift, Figure, Level, Period};
use ebb_process::record::{Record, Replica};
use ebb_statistics::Reading;
use ebb_statistics::periods::{self as statistics, Change, Window};
use jiff::Timestamp;

const HOUR: f64 = 3600.0;
const DAY: f64 = 86_400.0;
/// With a shorter period windows are no hours.
const LEAST_FOR_HOURS: f64 = 6.0 * HOUR;
/// Windows of such a period, and their records at least.
const FEW_WINDOWS: f64 = 12.0;
const LEAST_RECORDS: f64 = 3.0;
/// A window counts with this part of its records: those at the ends of a period are cut.
const LEAST_OF_WINDOW: f64 = 0.5;
/// Changes up to this part of the level do not matter,
const SMALL_SHARE: f64 = 0.02;
/// and none of less than 1 MB.
const SMALL_BYTES: f64 = 1e6;
/// Near the limit.
const NEAR: f64 = 0.9;
/// Records further apart than so many times the planned time have a gap between them.
const GAP: f64 = 2.5;

/// Compares; the records are in order. `None` where a period has no record with memory.
pub fn compare(before: &[Record], after: &[Record]) -> Option<Comparison> {
    let window_s = window_s(before, after);
    let per_day = (window_s == HOUR).then_some((DAY / HOUR) as u32);
    let [earlier, later] = [before, after].map(|it| windows(it, window_s, mean_of_replicas));
    let change = |figure| {
        let pick = |windows: &[Values]| windows.iter().map(|it| it.pick(figure)).collect();
        let (before, after): (Vec<Window>, Vec<Window>) = (pick(&earlier), pick(&later));
        let change = statistics::change(&before, &after, per_day)?;
        Some((change, statistics::ends(&before, &after, per_day, &change)))
    };
    let figures = [Figure::Typical, Figure::Floor, Figure::Peak];
    let changes: Vec<(Change, Option<i64>)> = figures.into_iter().map(change).collect::<Option<_>>()?;
    let levels: Vec<Level> = figures.iter().zip(&changes).map(|(figure, (change, _))| level(*figure, change)).collect();
    let main = levels.iter().position(Level::is_real);
    let [before, after] = [before, after].map(|records| period(records, window_s, per_day));
    let sustained_s = main.map(|main| match (changes[main].1, later.first()) {
        (Some(ended), Some(first)) => (ended - first.number) as f64 * window_s,
        _ => after.seconds,
    });
    let same_hours = changes[0].0.same_hours;
    let target = after.target.clone();
    let mut comparison = Comparison {
        target,
        sentence: String::new(),
        cautions: words::cautions(&before, &after, same_hours, per_day.is_some()),
        before,
        after,
        window_s,
        same_hours,
        levels,
        sustained_s,
        autoscale: None,
    };
    comparison.sentence = words::sentence(&comparison);
    Some(comparison)
}

/// Hours, or a twelfth of a short period.
fn window_s(before: &[Record], after: &[Record]) -> f64 {
    let shorter = seconds(before).min(seconds(after));
    if shorter >= LEAST_FOR_HOURS {
        return HOUR;
    }
    (shorter / FEW_WINDOWS).max(LEAST_RECORDS * every_s(before).max(every_s(after)))
}

fn every_s(records: &[Record]) -> f64 {
    records.last().map_or(60.0, |record| record.every_s)
}

/// From the first to the last record.
fn seconds(records: &[Record]) -> f64 {
    match (records.first(), records.last()) {
        (Some(first), Some(last)) => last.at_s() - first.at_s(),
        _ => 0.0,
    }
}

/// The memory of one replica, where all could be read.
pub fn mean_of_replicas(record: &Record) -> Option<f64> {
    let total: u64 = record.replicas.iter().map(|replica| replica.rss).sum::<Option<u64>>()?;
    (total > 0).then(|| total as f64 / record.replicas.len() as f64)
}

/// The figures of a window.
struct Values {
    number: i64,
    typical: f64,
    floor: f64,
    peak: f64,
}

impl Values {
    fn pick(&self, figure: Figure) -> Window {
        let value = match figure {
            Figure::Typical => self.typical,
            Figure::Floor => self.floor,
            Figure::Peak => self.peak,
        };
        Window { number: self.number, value }
    }
}

fn windows(records: &[Record], window_s: f64, memory: impl Fn(&Record) -> Option<f64>) -> Vec<Values> {
    let mut found: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
    for record in records {
        if let Some(memory) = memory(record) {
            found.entry((record.at_s() / window_s).floor() as i64).or_default().push(memory);
        }
    }
    let whole = window_s / every_s(records);
    let is_whole = |values: &Vec<f64>| values.len() as f64 >= LEAST_OF_WINDOW * whole;
    if found.values().any(is_whole) {
        found.retain(|_, values| is_whole(values));
    }
    let of = |(number, values): (i64, Vec<f64>)| {
        Some(Values {
            number,
            typical: ebb_statistics::median(&values)?,
            floor: values.iter().copied().reduce(f64::min)?,
            peak: values.iter().copied().reduce(f64::max)?,
        })
    };
    found.into_iter().filter_map(of).collect()
}

fn level(figure: Figure, change: &Change) -> Level {
    let small = SMALL_BYTES.max(SMALL_SHARE * change.before);
    Level {
        figure,
        before: change.before,
        after: change.before + change.change,
        change: change.change,
        interval: change.interval,
        reading: change.interval.map(|interval| Reading::of(interval, small)),
    }
}

fn period(records: &[Record], window_s: f64, per_day: Option<u32>) -> Period {
    let present = || records.iter().filter(|record| !record.replicas.is_empty());
    let time = |record: Option<&Record>| record.map_or_else(Timestamp::default, |it| it.at);
    let replicas: Vec<f64> = present().map(|record| record.replicas.len() as f64).collect();
    let every_s = every_s(records);
    let gaps = records.windows(2).map(|pair| pair[1].at_s() - pair[0].at_s() - every_s);
    let near: Vec<bool> = present().filter_map(is_near_limit).collect();
    Period {
        target: records.last().map_or(String::new(), |record| record.target.clone()),
        from: time(records.first()),
        to: time(records.last()),
        seconds: seconds(records),
        records: records.len(),
        absent_s: (records.len() - present().count()) as f64 * every_s,
        gaps_s: gaps.filter(|gap| *gap > (GAP - 1.0) * every_s).sum(),
        allocators: allocators(records),
        replicas: replicas.iter().sum::<f64>() / replicas.len().max(1) as f64,
        most_replicas: replicas.iter().copied().fold(0.0, f64::max) as usize,
        highest: present().flat_map(|record| &record.replicas).filter_map(|it| it.rss).max(),
        drift: drift(records, window_s, per_day),
        near_limit: (!near.is_empty()).then(|| near.iter().filter(|near| **near).count() as f64 / near.len() as f64),
        oom_kills: lives::oom_kills(records),
        restarts: lives::restarts(records),
    }
}

/// The most frequent first.
fn allocators(records: &[Record]) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for replica in records.iter().flat_map(|record| &record.replicas) {
        *counts.entry(replica.allocator.as_deref().unwrap_or("not known")).or_default() += 1;
    }
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts.into_iter().map(|(name, _)| name.to_owned()).collect()
}

/// Whether a replica uses nearly all that its limit allows; `None` without a limit.
fn is_near_limit(record: &Record) -> Option<bool> {
    let share = |replica: &Replica| {
        let group = replica.cgroup.as_ref()?;
        let limit = group.limit.filter(|limit| *limit > 0)?;
        let usage = group.limit_usage.or(group.usage)?;
        // An ancestor's figure has the files of others.
        let own = group.usage == group.limit_usage || group.limit_usage.is_none();
        let files = group.inactive_file.filter(|_| own).unwrap_or(0);
        Some(usage.saturating_sub(files) as f64 / limit as f64)
    };
    let shares: Vec<f64> = record.replicas.iter().filter_map(share).collect();
    (!shares.is_empty()).then(|| shares.iter().any(|share| *share > NEAR))
}

/// Of the replica that was there for the longest time: after a restart memory begins anew.
fn drift(records: &[Record], window_s: f64, per_day: Option<u32>) -> Option<Drift> {
    let (life, records) = lives::longest(records)?;
    let memory = |record: &Record| {
        let replica = record.replicas.iter().find(|it| it.life() == life)?;
        replica.rss.map(|rss| rss as f64)
    };
    let floors: Vec<Window> = windows(records, window_s, memory).iter().map(|it| it.pick(Figure::Floor)).collect();
    let slope = statistics::drift(&floors, per_day)?;
    let per_day = |per_window: f64| per_window * DAY / window_s;
    Some(Drift {
        per_day: per_day(slope.bytes_per_s),
        low: per_day(slope.low),
        high: per_day(slope.high),
        life_s: seconds(records),
    })
}

#[cfg(test)]
mod tests;
