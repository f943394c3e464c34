//! Heaps of jemalloc, musl, mimalloc and tcmalloc in the terms that all readers share, and which mapped file
//! they lie in.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ebb_allocators::{Allocator, Settings};
use ebb_inspect::{Heap, Target, Unsupported, jemalloc, mimalloc, musl, tcmalloc};

use crate::charge::name_when_mapped;
use crate::inside::Inside;
use crate::look;
use crate::look::NotRead;

type Reader = fn(&Target, &Path) -> Result<Heap, Unsupported>;

fn reader(allocator: Allocator) -> Option<Reader> {
    match allocator {
        Allocator::Jemalloc => Some(jemalloc::read),
        Allocator::Mimalloc => Some(mimalloc::read),
        Allocator::Musl => Some(musl::read),
        Allocator::Tcmalloc => Some(tcmalloc::read),
        Allocator::Ebbmalloc | Allocator::Glibc => None,
    }
}

/// Reads what the `allocator` in the file that `pid` has mapped as `name` holds: nothing where it has not served a request,
/// `None` for one without a reader.
pub fn read_mapped(pid: i32, allocator: Allocator, name: &Path) -> Option<Result<Option<Heap>, String>> {
    let reader = reader(allocator)?;
    let read = Target::open(pid).map_err(Unsupported::from).and_then(|target| reader(&target, name));
    Some(match read {
        Ok(heap) => Ok(Some(with_notes(heap))),
        Err(Unsupported::NotThere(_)) => Ok(None),
        Err(error) => Err(error.to_string()),
    })
}

/// Reads what `allocator`, which lies in `file`, holds in process `pid`; `None` for one without a reader.
pub fn read(pid: i32, allocator: Allocator, file: &Path) -> Option<Result<Heap, NotRead>> {
    let reader = reader(allocator)?;
    let read = || -> Result<Heap, Unsupported> {
        let target = look::open(pid)?;
        let mapped = mapped(&target, file)?;
        reader(&target, &mapped)
    };
    let variable = match allocator.settings() {
        Settings::Variable(name) => Some(name),
        Settings::Prefix(_) | Settings::None(_) => None,
    };
    Some(
        read()
            .map_err(|error| NotRead::of(pid, error))
            .map(|heap| Heap { settings_variable: variable.map(str::to_owned), ..with_notes(heap) }),
    )
}

/// The same of an allocator inside the program of `pid`; `None` for one without a reader.
pub fn read_inside(pid: i32, inside: Inside) -> Option<Result<Heap, NotRead>> {
    let program = PathBuf::from(format!("/proc/{pid}/exe"));
    let read = read(pid, inside.allocator()?, &program)?;
    Some(read.map(|heap| Heap { settings_variable: inside.settings_variable().map(str::to_owned), ..heap }))
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
            let seen =
                if is_program { PathBuf::from(format!("/proc/{}/exe", target.pid())) } else { target.path_of(path) };
            wanted.is_some() && fs::metadata(seen).ok().map(|data| same(&data)) == wanted
        })
    };
    let found = by_name.or_else(by_file);
    found
        .map(|path| path.to_path_buf())
        .ok_or_else(|| Unsupported::Contradicts(format!("{} is unmapped", file.display())))
}

/// `heap` with what its reader found out, in words.
pub(super) fn with_notes(mut heap: Heap) -> Heap {
    if !heap.settings.is_empty() {
        let settings = heap.settings.iter();
        let settings: Vec<String> = settings.map(|(name, value)| format!("{name}:{value}")).collect();
        heap.notes.push(format!("settings in force: {}", settings.join(",")));
    }
    if heap.missing > 0 {
        heap.notes.push(format!("up to {:.1} MB of its memory were not found", heap.missing as f64 / 1e6));
    }
    if heap.torn > 0 {
        heap.notes.push(format!("the heap changed while it was read: {} places were skipped", heap.torn));
    }
    heap
}
