//! The counters that a process on ebbmalloc publishes, read out of its memory without stopping it; and where it says
//! that its heap lies.
//!
//! Used by trials for the live heap, and by `heap`. The page lies in the library's own writable data, or in the
//! program's where the allocator is linked in; where it is is looked up once a process, because neither moves.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ebb_stats::note::{self, Version};
use ebb_stats::{HEADER_BYTES, NAMES, Snapshot, Unreadable, layout, profile};
use procfs::process::{MMPermissions, MMapPath, MemoryMaps, Process};

use super::charge::{self, MallocSource};
use super::elf::Elf;
use super::inside::is_ebbmalloc;
use super::memory::Memory;
use super::root::Root;

/// Header and counters.
const PAGE_BYTES: usize = HEADER_BYTES + NAMES.len() * size_of::<u64>();
/// More data than the library has: a bigger mapping is somebody else's file of that name.
const MOST_DATA_BYTES: u64 = 4 << 20;
/// What a file of the library has in its name, if it was not renamed.
const LIBRARY: &str = "libebbmalloc";

/// Reads the counters of processes, and remembers where they lie.
#[derive(Debug, Default)]
pub struct Counters {
    /// By process and the time it started, since numbers are used again; `None` where it has none.
    places: Mutex<HashMap<(i32, u64), Option<Place>>>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    address: u64,
    /// None for an allocator that is too old or too new.
    layout: Option<layout::Place>,
    /// Address of the heap profile's switch; none for an allocator that is too old.
    switch: Option<u64>,
    in_program: bool,
    /// By the note of its file; none before there was one.
    version: Option<Version>,
}

impl Counters {
    /// The counters of `pid`, if it publishes any that are not older than `age`. They are written at
    /// purges, so those of a process that has had nothing to return for long say nothing of now.
    pub fn read(&self, pid: i32, age: Duration) -> Option<Snapshot> {
        let (memory, place) = self.open(pid)?;
        let mut bytes = [0; PAGE_BYTES];
        memory.read(&mut bytes, place.address).ok()?;
        let snapshot = Snapshot::from_bytes(&bytes).ok()?;
        is_fresh(&snapshot, pid, monotonic_ms(), age).then_some(snapshot)
    }

    /// Why [`Counters::read`] can read nothing of an ebbmalloc of another version.
    pub fn other_version(&self, pid: i32) -> Option<Unreadable> {
        let (memory, place) = self.open(pid)?;
        let mut bytes = [0; PAGE_BYTES];
        memory.read(&mut bytes, place.address).ok()?;
        let unreadable = Snapshot::from_bytes(&bytes).err()?;
        matches!(unreadable, Unreadable::OtherVersion(_)).then_some(unreadable)
    }

    /// Whether they are a part of the process's program, published or not: it was built with the Rust
    /// crate or the archive.
    pub fn are_in_program(&self, pid: i32) -> bool {
        self.open(pid).is_some_and(|(_, place)| place.in_program)
    }

    /// Where the heap lies and how it is laid out, published or not.
    pub fn layout(&self, pid: i32) -> Option<layout::Place> {
        self.open(pid)?.1.layout
    }

    /// Where the switch of its heap profile is; none for an allocator that is too old or too new.
    pub fn switch(&self, pid: i32) -> Option<u64> {
        self.open(pid)?.1.switch
    }

    /// The allocator's version, published counters or not.
    pub fn version(&self, pid: i32) -> Option<Version> {
        self.open(pid)?.1.version
    }

    /// Looks for those of `pid` again: it may have loaded the library since.
    pub fn forget(&self, pid: i32) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.retain(|(of, _), _| *of != pid);
    }

    /// The memory of a process that has counters, and where they are.
    fn open(&self, pid: i32) -> Option<(Memory, Place)> {
        let started = Process::new(pid).ok()?.stat().ok()?.starttime;
        let memory = Memory::open(pid).ok()?;
        let place = self.place(pid, started, &memory)?;
        Some((memory, place))
    }

    fn place(&self, pid: i32, started: u64, memory: &Memory) -> Option<Place> {
        let known = || self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = known().get(&(pid, started)) {
            return *place;
        }
        // Not while others wait: the process may not answer.
        let found = find(pid, memory);
        *known().entry((pid, started)).or_insert(found)
    }
}

/// Whether the kernel refuses us the memory of `pid`, so that it cannot be seen whether there are any.
pub fn are_closed(pid: i32) -> bool {
    Memory::open(pid).is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
}

/// Whether all returnable memory has had the time to be returned. The purger writes the counters while it has work, so
/// that free memory in old ones shares its pages with live blocks.
pub fn have_settled(snapshot: &Snapshot) -> bool {
    is_settled(snapshot, monotonic_ms())
}

fn is_settled(snapshot: &Snapshot, now_ms: u64) -> bool {
    // A page is returned when it was idle at two ticks running.
    now_ms.saturating_sub(snapshot.published_ms) > snapshot.idle_time_ms.saturating_mul(2)
}

/// A child of a fork has its parent's page until it publishes its own.
fn is_fresh(snapshot: &Snapshot, pid: i32, now_ms: u64, age: Duration) -> bool {
    snapshot.process_id == u64::try_from(pid).unwrap_or(0)
        && u128::from(now_ms.saturating_sub(snapshot.published_ms)) <= age.as_millis()
}

/// The clock of [`Snapshot::published_ms`].
pub(crate) fn monotonic_ms() -> u64 {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
        .map(|now| Duration::from(now).as_millis() as u64)
        .unwrap_or(u64::MAX)
}

/// In the data of the library, or of a program that has the allocator linked in.
fn find(pid: i32, memory: &Memory) -> Option<Place> {
    let process = Process::new(pid).ok()?;
    let program = process.exe().ok();
    let maps = process.maps().ok()?;
    let find = |may_have: &dyn Fn(&Path) -> bool| find_in(&maps, memory, program.as_deref(), may_have);
    let is_named = |path: &Path| {
        let name = path.file_name().map(OsStr::to_string_lossy);
        name.is_some_and(|name| name.contains(LIBRARY))
    };
    find(&|path| program.as_deref() == Some(path) || is_named(path)).or_else(|| {
        let (library, root) = (renamed(pid)?, Root::of(pid));
        find(&|path| root.resolve(path).is_ok_and(|path| path == library))
    })
}

/// In the data of files that `may_have` it.
fn find_in(
    maps: &MemoryMaps,
    memory: &Memory,
    program: Option<&Path>,
    may_have: &dyn Fn(&Path) -> bool,
) -> Option<Place> {
    maps.iter().filter(|map| map.perms.contains(MMPermissions::READ | MMPermissions::WRITE)).find_map(|map| {
        let MMapPath::Path(path) = &map.pathname else {
            return None;
        };
        if !may_have(path) {
            return None;
        }
        let (from, to) = map.address;
        let mut bytes = vec![0; usize::try_from((to - from).min(MOST_DATA_BYTES)).ok()?];
        memory.read_all_but_swapped(&mut bytes, from).ok()?;
        let address = from + ebb_stats::find(&bytes)? as u64;
        let (layout, in_program) = (layout::find(&bytes), program == Some(path));
        let switch = profile::find(&bytes).map(|at| from + at as u64);
        let version = version_in(maps, memory, &map.pathname);
        Some(Place { address, layout, switch, in_program, version })
    })
}

/// The version in the first page of the file `name`, where its notes lie.
fn version_in(maps: &MemoryMaps, memory: &Memory, name: &MMapPath) -> Option<Version> {
    let first = maps.iter().find(|map| map.pathname == *name && map.offset == 0)?;
    let mut bytes = [0; 4096];
    memory.read_all_but_swapped(&mut bytes, first.address.0).ok()?;
    note::find(&bytes)
}

/// The library under another name, as it lies for programs that are linked to jemalloc, if it is in charge.
fn renamed(pid: i32) -> Option<PathBuf> {
    let MallocSource::File(path) = charge::malloc_source(pid).ok()? else {
        return None;
    };
    let elf = Elf::read(&path).ok()?;
    is_ebbmalloc(&path, &elf).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_another_process_or_of_long_ago_are_not_believed() {
        let snapshot = Snapshot { process_id: 7, published_ms: 1000, live_bytes: 1, ..Snapshot::default() };
        let age = Duration::from_secs(2);
        assert!(is_fresh(&snapshot, 7, 2900, age));
        assert!(!is_fresh(&snapshot, 8, 2900, age), "the page of a parent");
        assert!(!is_fresh(&snapshot, 7, 3100, age));
    }

    #[test]
    fn what_is_free_in_old_counters_did_not_go_back() {
        let mut snapshot = Snapshot { published_ms: 1000, idle_time_ms: 500, ..Snapshot::default() };
        assert!(!is_settled(&snapshot, 2000));
        assert!(is_settled(&snapshot, 2001));
        snapshot.idle_time_ms = u64::MAX;
        assert!(!is_settled(&snapshot, 1 << 40), "it never goes back");
    }

    #[test]
    fn a_process_without_the_library_has_none() {
        assert_eq!(Counters::default().read(std::process::id() as i32, Duration::MAX), None);
    }
}
