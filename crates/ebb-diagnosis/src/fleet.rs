//! What held memory costs a fleet, by workload: from usage and returnable memory over time to figures with intervals. Used by
//! `ebb fleet`.
//!
//! All figures come from values of the same moments, so that what a container holds is never subtracted from the usage of
//! another moment. Peaks between two moments are missed.

mod watch;

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::fleet::{Figure, Group, History, Money, Ranking, Row};

pub use watch::watch_list;

/// The vertical autoscaler's margin above a peak, and the least that it gives a pod.
const MARGIN: f64 = 1.15;
const FLOOR: f64 = (250 << 20) as f64;
/// Held memory below this, or below this part of the usage, is not worth a change of allocator (as in a trial's verdict).
const WORTH_BYTES: f64 = 8e6;
const WORTH_SHARE: f64 = 0.10;
const DAY: f64 = 86_400.0;
/// With fewer days the windows are parts of the time.
const LEAST_DAYS: f64 = 4.0;
const FEW_WINDOWS: usize = 12;
/// Data that are missing for a larger part are worth a caution.
const MISSING: f64 = 0.05;

/// Ranks the rows by what they hold. `price` is of one GB (10^9 bytes) per hour.
pub fn rank(history: &History, price: Option<f64>) -> Ranking {
    let mut names: BTreeMap<&str, Vec<&Group>> = BTreeMap::new();
    for group in history.groups.iter().filter(|group| !group.usage.is_empty()) {
        names.entry(&group.name).or_default().push(group);
    }
    let groups: Vec<&Group> = names.values().flatten().copied().collect();
    let nodes = usage_of_nodes(history, &groups);
    let mut rows: Vec<Row> =
        names.iter().map(|(name, groups)| row(history, Some(name), groups, &nodes, price)).collect();
    rows.sort_by(|left, right| right.mean.bytes.total_cmp(&left.mean.bytes));
    let all = row(history, None, &groups, &nodes, price);
    let peaks = nodes.values().fold(0.0, |sum, usage| sum + highest(usage.iter().copied()));
    Ranking {
        sentence: sentence(&all, &rows, peaks),
        from_s: history.from_s,
        to_s: history.from_s + history.step_s * history.times.saturating_sub(1) as f64,
        step_s: history.step_s,
        node_peaks_bytes: peaks,
        cautions: cautions(&all, &rows, history),
        all,
        rows,
    }
}

type Nodes<'a> = BTreeMap<&'a str, Vec<f64>>;

/// The usage of each node over time, the sum over its groups.
fn usage_of_nodes<'a>(history: &History, groups: &[&'a Group]) -> Nodes<'a> {
    let mut nodes = Nodes::new();
    for group in groups {
        let usage = nodes.entry(group.node.as_str()).or_insert_with(|| vec![0.0; history.times]);
        group.usage.points().for_each(|(at, bytes)| usage[at] += bytes);
    }
    nodes
}

fn highest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max)
}

/// What returnable memory is of a moment's usage: a look that is older than a burst must not make it negative.
fn held(group: &Group, at: usize, usage: f64) -> f64 {
    group.returnable.at(at).unwrap_or(0.0).clamp(0.0, usage)
}

fn row(history: &History, name: Option<&str>, groups: &[&Group], nodes: &Nodes, price: Option<f64>) -> Row {
    let (usage, returnable) = sums(history, groups);
    let is_holding = |at: usize| {
        let held = returnable[at];
        held >= WORTH_BYTES.max(WORTH_SHARE * usage[at])
    };
    // The moment itself, or the one before: a kill ends what was held.
    let was_holding = |at: usize| is_holding(at) || at.checked_sub(1).is_some_and(is_holding);
    let is_mine = |of: &str| name.is_none_or(|name| name == of);
    let kills = || history.oom_kills.iter().filter(|event| is_mine(&event.name));
    let scaled: Vec<usize> =
        history.replicas.iter().filter(|(of, _)| is_mine(of)).flat_map(|(_, it)| rises(it)).collect();
    let known = usage.iter().filter(|bytes| **bytes > 0.0).count();
    // By bytes: most containers are small, and are never read.
    let (all, looked) = groups.iter().fold((0.0, 0.0), |(all, looked), group| {
        let points = || group.usage.points();
        let known = points().filter(|(at, _)| group.returnable.at(*at).is_some());
        (points().fold(all, |sum, it| sum + it.1), known.fold(looked, |sum, it| sum + it.1))
    });
    let peaks: Vec<Peak> = groups.iter().map(|group| peak(group)).collect();
    let lower: Vec<f64> = peaks.iter().map(Peak::lower).collect();
    Row {
        name: name.unwrap_or("all").to_owned(),
        containers: groups.len(),
        nodes: groups.iter().map(|group| &group.node).collect::<BTreeSet<_>>().len(),
        allocators: groups.iter().flat_map(|it| it.allocators.clone()).collect::<BTreeSet<_>>().into_iter().collect(),
        mean: mean(history, &usage, &returnable),
        own_peaks: sum_of(&lower),
        at_own_peaks_bytes: peaks.iter().fold(0.0, |sum, peak| sum + peak.held),
        node_peaks: sum_of(&drops_of_nodes(history, groups, nodes)),
        oom_kills: kills().fold(0.0, |sum, event| sum + event.count),
        oom_kills_holding: kills().filter(|it| was_holding(it.at)).fold(0.0, |sum, it| sum + it.count),
        scale_outs: scaled.len(),
        scale_outs_holding: scaled.iter().filter(|at| was_holding(**at)).count(),
        share_of_time: known as f64 / history.times.max(1) as f64,
        share_looked: looked / all.max(1.0),
        looks: groups.iter().fold(0.0, |sum, group| sum + group.looks),
        saving: price.and_then(|price| saving(groups, &peaks, price)),
        course: course(history, &usage, &returnable),
    }
}

/// Usage and returnable memory of all groups together.
fn sums(history: &History, groups: &[&Group]) -> (Vec<f64>, Vec<f64>) {
    let (mut usage, mut returnable) = (vec![0.0; history.times], vec![0.0; history.times]);
    for group in groups {
        for (at, bytes) in group.usage.points() {
            usage[at] += bytes;
            returnable[at] += held(group, at, bytes);
        }
    }
    (usage, returnable)
}

/// Returnable memory over the moments at which anything ran; the interval is from days, or parts of a shorter time.
fn mean(history: &History, usage: &[f64], returnable: &[f64]) -> Figure {
    let span = history.step_s * history.times as f64;
    let windows = if span >= LEAST_DAYS * DAY { (span / DAY) as usize } else { FEW_WINDOWS };
    let known: Vec<(usize, f64)> = (0..history.times)
        .filter(|at| usage[*at] > 0.0)
        .map(|at| (at * windows / history.times, returnable[at]))
        .collect();
    let of = |values: &[(usize, f64)]| values.iter().map(|it| it.1).sum::<f64>() / values.len().max(1) as f64;
    let parts: Vec<f64> = known.chunk_by(|left, right| left.0 == right.0).map(of).collect();
    Figure { bytes: of(&known), interval: ebb_statistics::mean_interval(&parts) }
}

/// A sum with an interval from its parts: containers or nodes.
fn sum_of(parts: &[f64]) -> Figure {
    let count = parts.len() as f64;
    let interval = ebb_statistics::mean_interval(parts);
    Figure {
        bytes: parts.iter().fold(0.0, |sum, part| sum + part),
        interval: interval.map(|(low, high)| (low * count, high * count)),
    }
}

/// The highest usage of a container.
struct Peak {
    usage: f64,
    /// What was returnable then.
    held: f64,
    /// The highest usage without returnable memory.
    needed: f64,
}

impl Peak {
    fn lower(&self) -> f64 {
        self.usage - self.needed
    }
}

fn peak(group: &Group) -> Peak {
    let mut peak = Peak { usage: 0.0, held: 0.0, needed: 0.0 };
    for (at, usage) in group.usage.points() {
        let held = held(group, at, usage);
        if usage > peak.usage {
            (peak.usage, peak.held) = (usage, held);
        }
        peak.needed = peak.needed.max(usage - held);
    }
    peak
}

/// By how much the highest usage of each node falls if these groups hold nothing.
fn drops_of_nodes(history: &History, groups: &[&Group], nodes: &Nodes) -> Vec<f64> {
    let mut by_node: BTreeMap<&str, Vec<&Group>> = BTreeMap::new();
    for group in groups {
        by_node.entry(&group.node).or_default().push(group);
    }
    let drop = |(node, groups): (&str, Vec<&Group>)| {
        let usage = nodes.get(node)?;
        let (_, returnable) = sums(history, &groups);
        let without = usage.iter().zip(&returnable).map(|(usage, held)| usage - held);
        Some(highest(usage.iter().copied()) - highest(without))
    };
    by_node.into_iter().filter_map(drop).collect()
}

/// The times at which a value rose.
fn rises(course: &crate::facts::fleet::Course) -> Vec<usize> {
    let points: Vec<(usize, f64)> = course.points().collect();
    points.windows(2).filter(|pair| pair[1].1 > pair[0].1).map(|pair| pair[1].0).collect()
}

/// Of the containers whose request is known; `None` without any.
fn saving(groups: &[&Group], peaks: &[Peak], price: f64) -> Option<Money> {
    let mut money = Money { per_hour: 0.0, without_change_per_hour: 0.0, containers: 0 };
    for (group, peak) in groups.iter().zip(peaks) {
        let Some(request) = group.request_bytes else { continue };
        let room = |peak: f64| (request - (MARGIN * peak).max(FLOOR)).max(0.0) / 1e9 * price;
        money.per_hour += room(peak.needed);
        money.without_change_per_hour += room(peak.usage);
        money.containers += 1;
    }
    (money.containers > 0).then_some(money)
}

fn course(history: &History, usage: &[f64], returnable: &[f64]) -> Vec<(f64, f64)> {
    let known = (0..history.times).filter(|at| usage[*at] > 0.0);
    known.map(|at| (at as f64 * history.step_s, returnable[at] / 1e6)).collect()
}

fn in_words(bytes: f64) -> String {
    if bytes < 1e9 { format!("{:.0} MB", bytes / 1e6) } else { format!("{:.1} GB", bytes / 1e9) }
}

fn sentence(all: &Row, rows: &[Row], peaks: f64) -> String {
    let Some(first) = rows.first().filter(|_| all.mean.bytes >= WORTH_BYTES) else {
        return "Nothing to gain: less than 8 MB are returnable.".to_owned();
    };
    format!(
        "{} are returnable on average, most of it in {} ({:.0} %); without it the peaks of {} nodes fall by {} of {} ({:.0} %).",
        in_words(all.mean.bytes),
        first.name,
        100.0 * first.mean.bytes / all.mean.bytes,
        all.nodes,
        in_words(all.node_peaks.bytes),
        in_words(peaks),
        100.0 * all.node_peaks.bytes / peaks.max(1.0),
    )
}

fn cautions(all: &Row, rows: &[Row], history: &History) -> Vec<String> {
    let mut cautions = history.cautions.clone();
    let missing = 1.0 - all.share_of_time;
    if missing > MISSING {
        cautions.push(format!("no data for {:.0} % of the time", 100.0 * missing));
    }
    let unread = 1.0 - all.share_looked;
    if unread > MISSING {
        cautions.push(format!(
            "no look yet at the heaps of {:.0} % of the memory, which count as not returnable",
            100.0 * unread
        ));
    }
    let never: Vec<&str> = rows.iter().filter(|row| row.share_looked == 0.0).map(|row| row.name.as_str()).collect();
    if let [first, rest @ ..] = never.as_slice() {
        let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
        cautions.push(format!("never read: {first}{more}"));
    }
    cautions
}

#[cfg(test)]
mod tests;
