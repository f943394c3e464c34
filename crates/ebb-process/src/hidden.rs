//! Allocators in mapped files that are not in charge of `malloc`: inside an extension of Python's, in a library of a
//! program, in a file that was deleted or replaced since it was mapped.
//!
//! Used by `ebb why` and its kin where a process has much memory that no reader found. Where there is a reader
//! that fits, its figures are part of the heap; else the allocator is named, and its memory is not told apart.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use procfs::process::{MMPermissions, MMapPath, MemoryMaps};

use super::charge::mapped_file;
use super::heap;
use super::inside::{self, Inside};
use super::root::Root;
use crate::snapshot::{Heap, Hidden};

/// Bytes of texts that are searched in all files of a process: 1 GB took 0.6 s of CPU on a virtual AMD EPYC.
const MOST_BYTES: u64 = 1 << 30;

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// The heaps of the allocators that a reader knows.
    pub heaps: Vec<Heap>,
    /// The others.
    pub hidden: Vec<Hidden>,
}

/// What the search of a file came to.
type Inspected = Result<Option<Inside>, &'static str>;

/// Files that were searched: workers have the same ones, and a process that is watched has them at each look.
#[derive(Debug, Default)]
pub struct Searched(Mutex<BTreeMap<(u64, u64, i64), Inspected>>);

impl Searched {
    /// Searches the programs and libraries that `pid` has mapped, except files whose names are known (`is_known`).
    pub fn find(&self, pid: i32, maps: &MemoryMaps, is_known: impl Fn(&Path) -> bool) -> Found {
        let root = Root::of(pid);
        let mut found = Found::default();
        let mut seen = BTreeSet::new();
        let mut budget = MOST_BYTES;
        for map in &maps.0 {
            let MMapPath::Path(name) = &map.pathname else {
                continue;
            };
            let executes = map.perms.contains(MMPermissions::EXECUTE);
            if !executes || is_known(name) || !seen.insert(name.clone()) {
                continue;
            }
            let file = mapped_file(pid, &root, map);
            let inside = match &file {
                Some(file) => self.inside(file, &mut budget),
                None => Err("it was deleted or replaced since it was mapped, and only root can open the mapped file"),
            };
            found.add(pid, name, inside);
        }
        found
    }

    fn inside(&self, file: &Path, budget: &mut u64) -> Inspected {
        let search = |budget| inside::in_library(file, budget);
        let Ok(data) = fs::metadata(file) else {
            return search(budget);
        };
        let key = (data.dev(), data.ino(), data.mtime());
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known().get(&key) {
            return *found;
        }
        // Not while others wait: the file system may not answer.
        let found = search(budget);
        *known().entry(key).or_insert(found)
    }
}

impl Found {
    /// Adds what `other` found.
    pub fn extend(&mut self, other: Self) {
        self.heaps.extend(other.heaps);
        self.hidden.extend(other.hidden);
    }

    /// Adds what the mapped file `name` of `pid` has inside.
    fn add(&mut self, pid: i32, name: &Path, inside: Inspected) {
        let (allocator, why) = match inside {
            Ok(None) => return,
            Ok(Some(inside)) => {
                let why = match read(pid, inside, name) {
                    Some(Ok(heap)) => return self.heaps.extend(heap),
                    Some(Err(why)) => why,
                    None => "ebb has no reader for it".to_owned(),
                };
                (Some(inside.to_string()), why)
            }
            Err(why) => (None, why.to_owned()),
        };
        self.hidden.push(Hidden { name: allocator, file: name.display().to_string(), why });
    }
}

/// What the allocator in the mapped file `name` holds: nothing where it has not served a request; `None` without a reader.
fn read(pid: i32, inside: Inside, name: &Path) -> Option<Result<Option<Heap>, String>> {
    let read = heap::read_mapped(pid, inside.allocator()?, &PathBuf::from(name))?;
    Some(read.map(|heap| heap.map(|heap| named(heap, inside.settings_variable(), name))))
}

/// The same heap with the file in its name, and the variable from which it takes its settings.
pub fn named(heap: Heap, variable: Option<&str>, file: &Path) -> Heap {
    Heap {
        reader: format!("{} in {}", heap.reader, short(file)),
        settings_variable: variable.map(str::to_owned),
        ..heap
    }
}

fn short(name: &Path) -> String {
    let file = name.file_name().unwrap_or(name.as_os_str());
    file.to_string_lossy().into_owned()
}
