//! Heaps of jemalloc, musl, mimalloc and tcmalloc in the terms that all readers share, and which mapped file
//! they lie in.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ebb_inspect::holdings::Unsupported;
use ebb_inspect::{Holdings, Target, Unreadable, jemalloc, mimalloc, musl, tcmalloc};

use super::classes::classes;
use crate::charge::name_when_mapped;
use crate::inside::Inside;
use crate::look;
use crate::not_read::NotRead;
use crate::snapshot::Heap;

type Reader = fn(&Target, &Path) -> Result<Holdings, Unsupported>;

fn reader(allocator: &str) -> Option<Reader> {
    Some(match allocator {
        "jemalloc" => jemalloc::read,
        "mimalloc" => mimalloc::read,
        "musl" => musl::read,
        "tcmalloc" => tcmalloc::read,
        _ => return None,
    })
}

/// Reads what the `allocator` in the file that `pid` has mapped as `name` holds: nothing where it has not been used.
pub fn read_mapped(pid: i32, allocator: &str, name: &Path) -> Option<Result<Option<Heap>, String>> {
    let reader = reader(allocator)?;
    let read =
        Target::open(pid).map_err(Unsupported::from).and_then(|target| reader(&target, name));
    Some(match read {
        Ok(holdings) => Ok(Some(of_holdings(holdings))),
        Err(Unsupported::NotThere(_)) => Ok(None),
        Err(error) => Err(error.to_string()),
    })
}

/// Reads what `allocator`, which lies in `file`, holds in process `pid`; `None` for one without a reader.
pub fn read(pid: i32, allocator: &str, file: &Path) -> Option<Result<Heap, NotRead>> {
    let reader = reader(allocator)?;
    let read = || -> Result<Holdings, Unsupported> {
        let target = look::open(pid)?;
        let mapped = mapped(&target, file)?;
        reader(&target, &mapped)
    };
    let variable = match allocator {
        "jemalloc" => Some("MALLOC_CONF"),
        _ => None,
    };
    Some(read().map_err(|error| not_read(pid, &error)).map(|holdings| Heap {
        settings_variable: variable.map(str::to_owned),
        ..of_holdings(holdings)
    }))
}

/// The same of an allocator inside the program of `pid`.
pub fn read_inside(pid: i32, inside: Inside) -> Option<Result<Heap, NotRead>> {
    let program = PathBuf::from(format!("/proc/{pid}/exe"));
    let read = read(pid, inside.allocator()?.name(), &program)?;
    Some(read.map(|heap| Heap {
        settings_variable: inside.settings_variable().map(str::to_owned),
        ..heap
    }))
}

/// The name by which `target` has mapped `file`, which is a path of ours, maybe into another root.
fn mapped(target: &Target, file: &Path) -> Result<PathBuf, Unsupported> {
    let same = |data: &fs::Metadata| (data.dev(), data.ino());
    let wanted = fs::metadata(file).ok().map(|data| same(&data));
    let mappings = target.mappings()?;
    let files: BTreeSet<&Path> = mappings.iter().filter_map(|mapping| mapping.file()).collect();
    // A file that was replaced on disk is still mapped by its name.
    let by_name = files.iter().find(|path| **path == file || name_when_mapped(path) == file);
    let program = target.process().exe().ok();
    let by_file = || {
        files.iter().find(|path| {
            let is_program = program.as_deref() == Some(**path);
            let seen = match is_program {
                true => PathBuf::from(format!("/proc/{}/exe", target.pid())),
                false => target.path_of(path),
            };
            wanted.is_some() && fs::metadata(seen).ok().map(|data| same(&data)) == wanted
        })
    };
    let found = by_name.or_else(by_file);
    found
        .map(|path| path.to_path_buf())
        .ok_or_else(|| Unsupported::Contradicts(format!("{} is unmapped", file.display())))
}

fn not_read(pid: i32, error: &Unsupported) -> NotRead {
    let refused = Unsupported::Unreadable(Unreadable::Refused);
    NotRead::of(pid, error, *error == refused)
}

/// The parts of `holdings` as the parts of a heap.
pub(super) fn of_holdings(holdings: Holdings) -> Heap {
    let ledger = &holdings.ledger;
    let mut notes = Vec::new();
    if !holdings.settings.is_empty() {
        let settings = holdings.settings.iter();
        let settings: Vec<String> =
            settings.map(|(name, value)| format!("{name}:{value}")).collect();
        notes.push(format!("settings in force: {}", settings.join(",")));
    }
    if holdings.missing > 0 {
        notes.push(format!(
            "up to {:.1} MB of its memory were not found",
            holdings.missing as f64 / 1e6
        ));
    }
    if holdings.torn > 0 {
        notes.push(format!(
            "the heap changed while it was read: {} places were skipped",
            holdings.torn
        ));
    }
    Heap {
        reader: holdings.reader,
        resident: ledger.system.resident,
        live: ledger.live.resident,
        pinned: ledger.free.resident,
        cached: ledger.cached.resident,
        // What it gave back is absent, but for huge pages that were put there again.
        kept: ledger.kept.resident + ledger.returned.resident,
        lazy: ledger.lazy.resident,
        metadata: ledger.overhead.resident,
        missing: holdings.missing,
        free_not_resident: (ledger.free.bytes - ledger.free.resident)
            + (ledger.kept.bytes - ledger.kept.resident)
            + (ledger.lazy.bytes - ledger.lazy.resident)
            + (ledger.returned.bytes - ledger.returned.resident),
        arenas: holdings.arenas,
        error: holdings.error,
        notes,
        classes: classes(&holdings.sizes),
        settings: holdings.settings,
        ..Heap::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_inspect::{Line, holdings::Ledger};

    #[test]
    fn the_parts_add_up_to_what_is_resident() {
        let line = |resident| Line { chunks: 1, bytes: resident + 10, resident };
        let heap = of_holdings(Holdings {
            reader: "jemalloc 5.3.0".into(),
            ledger: Ledger {
                system: line(127),
                live: line(1),
                cached: line(2),
                free: line(4),
                kept: line(8),
                lazy: line(16),
                returned: line(32),
                overhead: line(64),
            },
            ..Holdings::default()
        });
        let parts = heap.live + heap.pinned + heap.cached + heap.kept + heap.lazy + heap.metadata;
        assert_eq!(parts, heap.resident);
        assert_eq!(heap.free_not_resident, 40);
    }
}
