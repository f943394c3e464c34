//! The figures of the dashboard, added up entry by entry.

use crate::journal::Entry;
use std::collections::BTreeMap;

/// Seconds in an hour.
const HOUR_S: u64 = 3600;

/// What the log comes to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overview {
    /// All requests.
    pub requests: u64,
    /// Visits that broke a rule, by rule.
    pub by_rule: BTreeMap<String, u64>,
    /// By what was answered.
    pub by_status: BTreeMap<u16, u64>,
    /// By hour, as the number of hours since 1970.
    pub by_hour: BTreeMap<u64, u64>,
    /// By path, without the query.
    pub by_path: BTreeMap<String, u64>,
}

impl Overview {
    /// Of entries that are all in memory.
    pub fn of(entries: &[Entry]) -> Overview {
        let mut overview = Overview::default();
        for entry in entries {
            overview.add(entry);
        }
        overview
    }

    /// Counts one more.
    pub fn add(&mut self, entry: &Entry) {
        self.requests += 1;
        if let Some(rule) = &entry.rule {
            count(&mut self.by_rule, rule, 1);
        }
        *self.by_status.entry(entry.status).or_default() += 1;
        *self.by_hour.entry(entry.at / HOUR_S).or_default() += 1;
        let path = entry.path.split('?').next().unwrap_or_default();
        count(&mut self.by_path, path, 1);
    }

    /// Adds what another one has counted.
    pub fn merge(&mut self, other: &Overview) {
        self.requests += other.requests;
        for (rule, more) in &other.by_rule {
            count(&mut self.by_rule, rule, *more);
        }
        for (path, more) in &other.by_path {
            count(&mut self.by_path, path, *more);
        }
        for (status, more) in &other.by_status {
            *self.by_status.entry(*status).or_default() += more;
        }
        for (hour, more) in &other.by_hour {
            *self.by_hour.entry(*hour).or_default() += more;
        }
    }

    /// The most frequent paths.
    pub fn top_paths(&self, most: usize) -> Vec<(&str, u64)> {
        let mut paths: Vec<(&str, u64)> = self.by_path.iter().map(|(path, count)| (path.as_str(), *count)).collect();
        paths.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        paths.truncate(most);
        paths
    }
}

fn count(counts: &mut BTreeMap<String, u64>, name: &str, more: u64) {
    match counts.get_mut(name) {
        Some(count) => *count += more,
        None => {
            counts.insert(name.to_owned(), more);
        }
    }
}
