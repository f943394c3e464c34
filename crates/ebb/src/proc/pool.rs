//! Libraries of a process that have a pool of their own beside `malloc`, which no preloaded allocator replaces, and
//! a variable that makes them do without.
//!
//! Used by `ebb why` and its kin. Known by the names of mapped files; a library that is linked into another one is
//! not seen, nor a pool that the program chose by a call.

use std::ffi::OsStr;

use procfs::process::{MMapPath, MemoryMaps};

use super::environ;
use crate::facts::snapshot::Pool;

/// How Arrow is told to take malloc's memory.
const ARROW: (&str, &str) = ("ARROW_DEFAULT_MEMORY_POOL", "system");

/// The pool that these mappings of `pid` show.
pub fn of_mappings(pid: i32, maps: &MemoryMaps) -> Option<Pool> {
    let has_arrow = maps.iter().any(|map| match &map.pathname {
        MMapPath::Path(path) => path.file_name().is_some_and(is_arrow),
        _ => false,
    });
    (has_arrow && !is_told(pid, ARROW)).then_some(Pool::Arrow)
}

fn is_arrow(file: &OsStr) -> bool {
    file.to_str()
        .is_some_and(|file| file.starts_with("libarrow.so"))
}

/// Whether the process was started with that variable at that value.
fn is_told(pid: i32, (name, value): (&str, &str)) -> bool {
    let variables = environ::at_start(pid).unwrap_or_default();
    variables
        .get(OsStr::new(name))
        .is_some_and(|it| it == value)
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
