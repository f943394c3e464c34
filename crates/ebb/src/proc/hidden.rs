//! Allocators in mapped files that are not in charge of `malloc`: inside an extension of Python's, in a library of a
//! program, in a file that was deleted or replaced since it was mapped.
//!
//! Used by `ebb why` and its kin where a process has much memory that no reader found. Where there is a reader
//! that fits, its figures are part of the heap; else the allocator is named, and its memory is not told apart.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use procfs::process::{MMPermissions, MMapPath, MemoryMap, MemoryMaps};

use super::charge::mapped_file;
use super::heap;
use super::inside::{self, Inside};
use super::root::Root;
use crate::facts::snapshot::{Heap, Hidden};

/// Bytes of texts that are searched in all files of a process: 1 GB took 0.6 s of CPU on a virtual Xeon.
const MOST_BYTES: u64 = 1 << 30;

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// What the readers say of those that they know.
    pub heaps: Vec<Heap>,
    /// The others.
    pub hidden: Vec<Hidden>,
}

/// Searches the programs and libraries that `pid` has mapped, but for those that `is_known` tells by their names.
pub fn find(pid: i32, maps: &MemoryMaps, is_known: impl Fn(&Path) -> bool) -> Found {
    let root = Root::of(pid);
    let mut found = Found::default();
    let mut seen = BTreeSet::new();
    let mut budget = MOST_BYTES;
    for map in &maps.0 {
        let MMapPath::Path(name) = &map.pathname else {
            continue;
        };
        // Another name of a file that is known counts as well.
        let executes = map.perms.contains(MMPermissions::EXECUTE);
        if !executes || is_known(name) || !seen.insert(name.clone()) {
            continue;
        }
        look(pid, &root, map, name, &mut budget, &mut found);
    }
    found
}

fn look(pid: i32, root: &Root, map: &MemoryMap, name: &Path, budget: &mut u64, found: &mut Found) {
    let hidden = |allocator: Option<String>, why: &str| Hidden {
        name: allocator,
        file: name.display().to_string(),
        why: why.to_owned(),
    };
    let Some(file) = mapped_file(pid, root, map) else {
        let why =
            "it was deleted or replaced since it was mapped, and opening what is mapped takes root";
        found.hidden.push(hidden(None, why));
        return;
    };
    match inside::in_library(&file, budget) {
        Ok(None) => {}
        Ok(Some(inside)) => match read(pid, inside, name) {
            Some(Ok(Some(heap))) => found.heaps.push(heap),
            Some(Ok(None)) => {}
            Some(Err(why)) => found.hidden.push(hidden(Some(inside.to_string()), &why)),
            None => found
                .hidden
                .push(hidden(Some(inside.to_string()), "no reader knows it")),
        },
        Err(why) => found.hidden.push(hidden(None, why)),
    }
}

/// What the allocator in the mapped file `name` holds: nothing where it has not served a request; `None` without a reader.
fn read(pid: i32, inside: Inside, name: &Path) -> Option<Result<Option<Heap>, String>> {
    let read = heap::read_mapped(pid, inside.allocator()?, &PathBuf::from(name))?;
    Some(read.map(|heap| {
        heap.map(|heap| Heap {
            reader: format!("{} in {}", heap.reader, short(name)),
            settings_variable: inside.settings_variable().map(str::to_owned),
            ..heap
        })
    }))
}

fn short(name: &Path) -> String {
    let file = name.file_name().unwrap_or(name.as_os_str());
    file.to_string_lossy().into_owned()
}
