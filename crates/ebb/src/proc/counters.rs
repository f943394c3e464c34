//! The counters that a process on ebbmalloc publishes, read out of its memory without stopping it.
//!
//! Used by trials for the live heap. The page lies in the library's own writable data; where it is
//! is looked up once a process, because the libraries of a process do not move.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ebb_stats::{HEADER_BYTES, NAMES, Snapshot};
use procfs::process::{MMPermissions, MMapPath, Process};

/// Header and counters.
const PAGE_BYTES: usize = HEADER_BYTES + NAMES.len() * size_of::<u64>();
/// More data than the library has: a bigger mapping is somebody else's file of that name.
const MOST_DATA_BYTES: u64 = 4 << 20;
/// What every file of the library has in its name.
const LIBRARY: &str = "libebbmalloc";

/// Reads the counters of processes, and remembers where they lie.
#[derive(Debug, Default)]
pub struct Counters {
    /// By process and the time it started, since numbers are used again; `None` where it has none.
    places: Mutex<HashMap<(i32, u64), Option<u64>>>,
}

impl Counters {
    /// The counters of `pid`, if it publishes any that are not older than `age`. They are written at
    /// purges, so those of a process that has had nothing to give back for long say nothing of now.
    pub fn read(&self, pid: i32, age: Duration) -> Option<Snapshot> {
        let started = Process::new(pid).ok()?.stat().ok()?.starttime;
        let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
        let place = self.place(pid, started, &memory)?;
        let mut bytes = [0; PAGE_BYTES];
        memory.read_exact_at(&mut bytes, place).ok()?;
        let snapshot = Snapshot::from_bytes(&bytes).ok()?;
        is_fresh(&snapshot, pid, now_ms(), age).then_some(snapshot)
    }

    fn place(&self, pid: i32, started: u64, memory: &File) -> Option<u64> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        *places
            .entry((pid, started))
            .or_insert_with(|| find(pid, memory))
    }
}

/// A child of a fork has its parent's page until it publishes its own.
fn is_fresh(snapshot: &Snapshot, pid: i32, now_ms: u64, age: Duration) -> bool {
    snapshot.process_id == u64::try_from(pid).unwrap_or(0)
        && u128::from(now_ms.saturating_sub(snapshot.published_ms)) <= age.as_millis()
}

/// The clock of [`Snapshot::published_ms`].
fn now_ms() -> u64 {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
        .map(|now| Duration::from(now).as_millis() as u64)
        .unwrap_or(u64::MAX)
}

fn find(pid: i32, memory: &File) -> Option<u64> {
    let maps = Process::new(pid).ok()?.maps().ok()?;
    maps.into_iter()
        .filter(|map| match &map.pathname {
            MMapPath::Path(path) => path
                .file_name()
                .is_some_and(|name| name.to_string_lossy().contains(LIBRARY)),
            _ => false,
        })
        .filter(|map| {
            map.perms
                .contains(MMPermissions::READ | MMPermissions::WRITE)
        })
        .find_map(|map| {
            let (from, to) = map.address;
            let mut bytes = vec![0; usize::try_from((to - from).min(MOST_DATA_BYTES)).ok()?];
            memory.read_exact_at(&mut bytes, from).ok()?;
            Some(from + ebb_stats::find(&bytes)? as u64)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_another_process_or_of_long_ago_are_not_believed() {
        let snapshot = Snapshot {
            process_id: 7,
            published_ms: 1000,
            live_bytes: 1,
            ..Snapshot::default()
        };
        let age = Duration::from_secs(2);
        assert!(is_fresh(&snapshot, 7, 2900, age));
        assert!(!is_fresh(&snapshot, 8, 2900, age), "the page of a parent");
        assert!(!is_fresh(&snapshot, 7, 3100, age));
    }

    #[test]
    fn a_process_without_the_library_has_none() {
        assert_eq!(
            Counters::default().read(std::process::id() as i32, Duration::MAX),
            None
        );
    }
}
