//! Libraries of a process that have a pool of their own besides `malloc`, which no preloaded allocator replaces, and
//! a variable that makes them do without.
//!
//! Used by `ebb why` and its kin. Known by the names of mapped files; a library that is linked into another one is
//! not seen, nor a pool that the program chose by a call.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use ebb_allocators::Allocator;
use procfs::process::{MMapPath, MemoryMaps};

use super::hidden::{self, Found};
use super::{environ, heap};
use crate::snapshot::{Hidden, Pool};

/// Setting that makes Arrow use malloc's memory.
const ARROW: (&str, &str) = ("ARROW_DEFAULT_MEMORY_POOL", "system");

/// The pool that these mappings of `pid` show.
pub fn of_mappings(pid: i32, maps: &MemoryMaps) -> Option<Pool> {
    let has_arrow = maps.iter().any(|map| match &map.pathname {
        MMapPath::Path(path) => path.file_name().is_some_and(is_arrow),
        _ => false,
    });
    (has_arrow && !is_set_at_start(pid, ARROW)).then_some(Pool::Arrow)
}

/// The allocators inside Arrow, and the variable from which each takes its settings.
const INSIDE_ARROW: [(Allocator, Option<&str>); 2] =
    [(Allocator::Mimalloc, None), (Allocator::Jemalloc, Some("JE_ARROW_MALLOC_CONF"))];
/// jemalloc has pages of its own from its start on, with Arrow's pool elsewhere.
const LEAST_USED: u64 = 1 << 20;

/// What Arrow's pool in `pid` holds. One that is not read is named.
pub fn of_arrow(pid: i32, maps: &MemoryMaps) -> Found {
    let files = maps.iter().filter_map(|map| match &map.pathname {
        MMapPath::Path(path) => path.file_name().is_some_and(is_arrow).then_some(path),
        _ => None,
    });
    let files: BTreeSet<&PathBuf> = files.collect();
    let mut found = Found::default();
    for file in files {
        found.extend(of_arrow_in(pid, file));
    }
    found
}

fn of_arrow_in(pid: i32, file: &Path) -> Found {
    let mut found = Found::default();
    let mut is_known = false;
    let mut reasons = Vec::new();
    for (allocator, variable) in INSIDE_ARROW {
        match heap::read_mapped(pid, allocator, file) {
            Some(Ok(Some(heap))) => {
                is_known = true;
                if heap.resident >= LEAST_USED {
                    found.heaps.push(hidden::named(heap, variable, file));
                }
            }
            Some(Ok(None)) | None => {}
            Some(Err(why)) => reasons.push(why),
        }
    }
    if !is_known && reasons.is_empty() {
        reasons.push("ebb has no reader for it".to_owned());
    }
    // A process has one of them as its pool, and the other one stays unused.
    if found.heaps.is_empty() && !reasons.is_empty() {
        found.hidden.push(Hidden {
            name: Some(Pool::Arrow.to_string()),
            file: file.display().to_string(),
            why: reasons.join("; "),
        });
    }
    found
}

fn is_arrow(file: &OsStr) -> bool {
    file.to_str().is_some_and(|file| file.starts_with("libarrow.so"))
}

fn is_set_at_start(pid: i32, (name, value): (&str, &str)) -> bool {
    let variables = environ::at_start(pid).unwrap_or_default();
    variables.get(OsStr::new(name)).is_some_and(|it| it == value)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use procfs::process::Process;

    use super::*;

    /// A library of that name, mapped by a program that was started with `variables`.
    fn pool_of(variables: &[(&str, &str)]) -> Option<Pool> {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("libarrow.so.2600");
        std::fs::write(&library, [0; 4096]).unwrap();
        let code = "import mmap, sys\n\
                    file = open(sys.argv[1], 'rb')\n\
                    held = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)\n\
                    print(flush=True); sys.stdin.read()";
        let mut child = Command::new("python3")
            .args(["-c", code])
            .arg(&library)
            .env_remove(ARROW.0)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut byte = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut byte).unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let maps = Process::new(pid).unwrap().maps().unwrap();
        let pool = of_mappings(pid, &maps);
        drop(child.stdin.take());
        child.wait().unwrap();
        pool
    }

    #[test]
    fn arrow_has_a_pool_unless_it_was_told_to_do_without() {
        assert_eq!(pool_of(&[]), Some(Pool::Arrow));
        assert_eq!(pool_of(&[(ARROW.0, "mimalloc")]), Some(Pool::Arrow));
        assert_eq!(pool_of(&[ARROW]), None);
    }

    #[test]
    fn a_process_without_such_a_library_has_none() {
        let own = i32::try_from(std::process::id()).unwrap();
        let maps = Process::new(own).unwrap().maps().unwrap();
        assert_eq!(of_mappings(own, &maps), None);
    }
}
