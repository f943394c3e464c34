//! The workloads to look after: growth, an allocator that does not serve, retention that came back.

use std::collections::BTreeMap;

use super::{DAY, FEW_WINDOWS, WORTH_BYTES, WORTH_SHARE, sums};
use crate::facts::fleet::{Course, Group, History, InCharge, Reason, Watched};
use ebb_statistics::periods::{self, Window};

const HOUR: f64 = 3600.0;
/// A day's wave can be told from growth from so many days on.
const LEAST_DAYS: f64 = 2.0;
/// A window has so many values at least.
const LEAST_VALUES: f64 = 3.0;
/// Growth per day below this, or below this part of the live heap, does not matter.
const SMALL_BYTES: f64 = 1e6;
const SMALL_SHARE: f64 = 0.02;
/// From so many containers on the interval is from their slopes, and not the widest of theirs.
const ENOUGH: usize = 5;
/// It is back where it is so many times what it was under ebbmalloc.
const IS_BACK: f64 = 2.0;

/// By name, then by reason.
pub fn watch_list(history: &History) -> Vec<Watched> {
    let mut names: BTreeMap<&str, Vec<&Group>> = BTreeMap::new();
    for group in &history.groups {
        names.entry(&group.name).or_default().push(group);
    }
    let none = InCharge::default();
    names
        .into_iter()
        .flat_map(|(name, groups)| {
            let in_charge = history.in_charge.get(name).unwrap_or(&none);
            let found = [
                grows(history, &groups).map(|it| (Reason::LiveHeapGrows, it)),
                not_in_charge(in_charge).map(|it| (Reason::NotInCharge, it)),
                is_back(history, &groups, in_charge).map(|it| (Reason::RetentionIsBack, it)),
            ];
            found.into_iter().flatten().map(move |(reason, evidence)| Watched {
                name: name.to_owned(),
                reason,
                evidence,
                next: next(reason).to_owned(),
            })
        })
        .collect()
}

fn next(reason: Reason) -> &'static str {
    match reason {
        Reason::LiveHeapGrows => "on a node: ebb why PID --watch 10m; ebb profile PID names the functions",
        Reason::NotInCharge => "on a node: ebb check PID says why",
        Reason::RetentionIsBack => "on a node: ebb check PID and ebb why PID",
    }
}

/// Bytes per day.
#[derive(Clone, Copy)]
struct Growth {
    middle: f64,
    low: f64,
    high: f64,
}

fn grows(history: &History, groups: &[&Group]) -> Option<String> {
    // Of lives that are over nothing can be done.
    let last = history.times.saturating_sub(1 + history.times / FEW_WINDOWS);
    let alive = |group: &&&Group| group.live.points().next_back().is_some_and(|(at, _)| at >= last);
    let alive: Vec<(Growth, f64)> = groups
        .iter()
        .filter(alive)
        .filter_map(|group| Some((growth(history, &group.live)?, group.live.points().next_back()?.1)))
        .collect();
    let middles: Vec<f64> = alive.iter().map(|it| it.0.middle).collect();
    let middle = ebb_statistics::median(&middles)?;
    let (low, high) = match ebb_statistics::paired_interval(&middles) {
        Some(interval) if alive.len() >= ENOUGH => interval,
        _ => alive
            .iter()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), (it, _)| (low.min(it.low), high.max(it.high))),
    };
    let live: Vec<f64> = alive.iter().map(|it| it.1).collect();
    let live = ebb_statistics::median(&live)?;
    let matters = middle >= SMALL_BYTES.max(SMALL_SHARE * live);
    (low > 0.0 && matters).then(|| {
        format!(
            "live heap {:+.1} MB per day and container ({:+.1} … {:+.1}), {:.0} MB now, {} containers",
            middle / 1e6,
            low / 1e6,
            high / 1e6,
            live / 1e6,
            alive.len()
        )
    })
}

/// Of the floors of windows: of hours in a life of two days, of twelfths in a shorter one.
fn growth(history: &History, live: &Course) -> Option<Growth> {
    let (first, last) = (live.points().next()?.0, live.points().next_back()?.0);
    let span = (last - first) as f64 * history.step_s;
    let is_long = span >= LEAST_DAYS * DAY && history.step_s <= HOUR;
    let window_s = if is_long { HOUR } else { (span / FEW_WINDOWS as f64).max(LEAST_VALUES * history.step_s) };
    let mut floors: BTreeMap<i64, f64> = BTreeMap::new();
    for (at, bytes) in live.points() {
        let number = ((at - first) as f64 * history.step_s / window_s) as i64;
        let floor = floors.entry(number).or_insert(bytes);
        *floor = floor.min(bytes);
    }
    let windows: Vec<Window> = floors.into_iter().map(|(number, value)| Window { number, value }).collect();
    let slope = periods::drift(&windows, is_long.then_some((DAY / HOUR) as u32))?;
    let per_day = DAY / window_s;
    Some(Growth { middle: slope.bytes_per_s * per_day, low: slope.low * per_day, high: slope.high * per_day })
}

fn not_in_charge(in_charge: &InCharge) -> Option<String> {
    let InCharge { not, containers, .. } = in_charge;
    (*not > 0).then(|| format!("the preloaded allocator does not serve {not} of {containers} containers"))
}

fn is_back(history: &History, groups: &[&Group], in_charge: &InCharge) -> Option<String> {
    let (first, last) = in_charge.ebbmalloc?;
    let (usage, returnable) = sums(history, groups);
    let mean = |values: &[f64], range: std::ops::Range<usize>| {
        let known: Vec<f64> = range.filter(|at| usage[*at] > 0.0).map(|at| values[at]).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    };
    let recent = history.times - (history.times / FEW_WINDOWS).max(1)..history.times;
    let then = mean(&returnable, first..(last + 1).min(recent.start))?;
    let (now, used) = (mean(&returnable, recent.clone())?, mean(&usage, recent.clone())?);
    let is_back = now >= WORTH_BYTES.max(WORTH_SHARE * used) && now >= IS_BACK * then;
    let who = if last >= recent.start { "ebbmalloc still serves" } else { "ebbmalloc serves no longer" };
    is_back.then(|| format!("{:.0} MB returnable, {:.0} MB while ebbmalloc served; {who}", now / 1e6, then / 1e6))
}
