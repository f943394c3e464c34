//! The language runtime of a process that has a heap of its own besides `malloc`.
//!
//! Used by `ebb why` and its kin. Most are known by the name of the program or of a library that is
//! mapped; Go by a section that its linker puts into every program, also into stripped ones.

use std::path::Path;

use ebb_inspect::file::NamedFile;
use object::{Object, ReadCache};
use procfs::process::{MMapPath, MemoryMaps};

use crate::snapshot::Runtime;

/// What Go's linker leaves in every program; the first since 1.13.
const GO_SECTIONS: [&str; 2] = [".go.buildinfo", ".note.go.buildid"];

/// The runtime that these mappings show.
pub fn of_mappings(maps: &MemoryMaps) -> Option<Runtime> {
    maps.0.iter().find_map(|map| match &map.pathname {
        MMapPath::Path(path) => of_name(path.file_name()?.to_str()?),
        _ => None,
    })
}

/// The runtime that a program or library of that name is.
pub fn of_name(name: &str) -> Option<Runtime> {
    let starts = |prefix: &str| name.starts_with(prefix);
    let version = |prefix: &str| {
        let rest = name.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '.'))
    };
    if starts("libjvm.so") {
        Some(Runtime::Jvm)
    // `t`: without a global lock.
    } else if version("python") || starts("libpython") || is_free_threaded(name) {
        Some(Runtime::Cpython)
    } else if version("ruby") || starts("libruby") {
        Some(Runtime::Ruby)
    } else if name == "node" || name == "nodejs" || starts("libnode.so") || starts("libv8") {
        Some(Runtime::V8)
    } else {
        None
    }
}

/// `python3.13t`.
fn is_free_threaded(name: &str) -> bool {
    let version = name.strip_prefix("python").and_then(|it| it.strip_suffix('t'));
    version.is_some_and(|it| it.starts_with('3') && it.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

/// Whether the program at `path` was made by Go's linker.
pub fn is_go(path: &Path) -> bool {
    let Ok(file) = NamedFile::open(path) else {
        return false;
    };
    let data = ReadCache::new(file);
    object::File::parse(&data)
        .is_ok_and(|program| GO_SECTIONS.iter().any(|name| program.section_by_name(name).is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_are_known_by_the_names_of_their_files() {
        assert_eq!(of_name("python3.11"), Some(Runtime::Cpython));
        assert_eq!(of_name("libpython3.11.so.1.0"), Some(Runtime::Cpython));
        assert_eq!(of_name("python3.14t"), Some(Runtime::Cpython));
        assert_eq!(of_name("python-config"), None);
        assert_eq!(of_name("node"), Some(Runtime::V8));
        assert_eq!(of_name("node_exporter"), None);
        assert_eq!(of_name("libjvm.so"), Some(Runtime::Jvm));
        assert_eq!(of_name("ruby3.1"), Some(Runtime::Ruby));
    }

    #[test]
    fn this_program_was_not_made_by_go() {
        assert!(!is_go(&std::env::current_exe().unwrap()));
        assert!(!is_go(Path::new("/no/such/program")));
    }
}
