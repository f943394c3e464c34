//! Which file a process takes its `malloc` from: the first object in the loader's order that
//! defines it. That is the order in which symbols are looked up, so it tells a library that is in
//! charge from one that is merely mapped.
//!
//! Used by `ebb run --verify`, `ebb check`, and by trials, which discard a run whose preload was not active. The
//! order is read from the loader's own list (`r_debug`) in the memory of the process; where that is
//! not allowed or in swap, from the mapped files, if these leave no doubt.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use procfs::process::{MMapPath, MemoryMap, Process};

use super::elf::Elf;
use super::root::Root;

mod link_map;

pub use link_map::Unreadable;
pub(super) use link_map::{io_reason, reason};

/// Where a process takes its `malloc` from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MallocSource {
    /// This file. It may be the program itself, or the libc.
    File(PathBuf),
    /// The program is statically linked: what it has, it has inside.
    Static,
    /// No object defines it, so it is not called.
    Nobody,
}

impl MallocSource {
    /// Whether `library` is that file, by whatever path or link.
    pub fn is(&self, library: &Path) -> bool {
        match self {
            MallocSource::File(path) => same_file(path, library),
            MallocSource::Static | MallocSource::Nobody => false,
        }
    }

    /// Whether that file is a C library, so no allocator was put before it.
    pub fn is_libc(&self) -> bool {
        match self {
            MallocSource::File(path) => is_c_library(path),
            MallocSource::Static | MallocSource::Nobody => false,
        }
    }
}

/// Whether the process has the file `library` mapped, by whatever path or link.
pub fn maps_contain(pid: i32, library: &Path) -> Result<bool, Unreadable> {
    Ok(mapped_files(pid)?.iter().any(|path| same_file(path, library)))
}

/// Between two looks at a process that is being started.
const STEP: Duration = Duration::from_millis(5);

/// As [`malloc_source`], of a process that may be being started: it gets so long to load its libraries.
pub fn started_malloc_source(pid: i32, patience: Duration) -> Result<MallocSource, Unreadable> {
    let until = Instant::now() + patience;
    loop {
        match malloc_source(pid) {
            Err(Unreadable::Starting) if Instant::now() < until => sleep(STEP),
            found => return found,
        }
    }
}

/// Where the process takes its `malloc` from.
pub fn malloc_source(pid: i32) -> Result<MallocSource, Unreadable> {
    let (process, own, program) = open(pid)?;
    if own.is_static() {
        return Ok(MallocSource::Static);
    }
    let root = Root::of(pid);
    match link_map::objects(&process, &own, &program) {
        Ok(objects) => {
            let replaced = Replaced::of(&process, &root);
            first_definer(&objects, &own, |object| {
                let path = &object.path;
                replaced.open(path, || match own_descriptor(&process, object) {
                    Some(path) => path,
                    None => here(&root, path),
                })
            })
        }
        Err(Unreadable::Permission | Unreadable::Swapped) => only_definer(pid, &own, &program),
        Err(error) => Err(error),
    }
}

/// The entries of the environment that the process has now.
pub(super) fn environment_strings(process: &Process) -> Result<Vec<Vec<u8>>, Unreadable> {
    let (process, own, program) = open(process.pid())?;
    if own.is_static() {
        return Err(Unreadable::Other("it is statically linked".to_owned()));
    }
    let root = Root::of(process.pid());
    let objects = link_map::objects(&process, &own, &program)?;
    // The first that defines it counts, as for every symbol: a program may have a copy of its own.
    let address = objects.iter().find_map(|object| {
        let at = super::elf::data_symbol(&here(&root, &object.path), ENVIRON)?;
        Some(object.base.wrapping_add(at))
    });
    let address = address.ok_or_else(|| Unreadable::Other("its libc has no environ".to_owned()))?;
    link_map::strings(&process, &own, address)
}

/// libc's names of the variable that holds the environment.
const ENVIRON: &[&str] = &["environ", "__environ"];

/// The process, the facts of its program, and the program's name. Through /proc, so that a program
/// that was replaced on disk is still the one that runs.
fn open(pid: i32) -> Result<(Process, Elf, PathBuf), Unreadable> {
    let process = Process::new(pid).map_err(reason)?;
    let program = process.exe().map_err(reason)?;
    let own = Elf::read(Path::new(&format!("/proc/{pid}/exe")))
        .map_err(|error| Unreadable::Other(format!("{}: {error}", program.display())))?;
    if u32::from(own.machine.bits) != usize::BITS {
        return Err(Unreadable::Bits(own.machine.bits));
    }
    Ok((process, own, program))
}

/// Where a file that a process names lies for us, links followed: one file, one name.
fn here(root: &Root, path: &Path) -> PathBuf {
    let unresolved = || root.folder().join(path.strip_prefix("/").unwrap_or(path));
    root.resolve(path).unwrap_or_else(|_| unresolved())
}

/// Where a library is opened that a process has loaded from one of its descriptors (`carried`), closed or not.
fn own_descriptor(process: &Process, object: &link_map::Object) -> Option<PathBuf> {
    let name = object.path.strip_prefix("/proc/self").ok()?;
    let maps = process.maps().ok()?;
    let map = maps.iter().find(|map| map.address.0 == object.base && map.offset == 0)?;
    let pid = process.pid();
    let descriptor = Path::new("/proc").join(pid.to_string()).join(name);
    let is_mapped = fs::metadata(&descriptor).is_ok_and(|it| it.ino() == map.inode);
    if is_mapped { Some(descriptor) } else { mapped_file(pid, &Root::of(pid), map) }
}

/// The first of `objects`, which are in the loader's order, that defines `malloc`; `open` tells where a file is opened.
fn first_definer(
    objects: &[link_map::Object],
    program: &Elf,
    open: impl Fn(&link_map::Object) -> PathBuf,
) -> Result<MallocSource, Unreadable> {
    let mut files = objects.iter().map(open);
    match files.find(|path| defines_malloc(path)) {
        Some(path) => Ok(MallocSource::File(path)),
        // The loader's list starts with the program alone and grows.
        None if objects.len() < 2 && !program.needed.is_empty() => Err(Unreadable::Starting),
        None => Ok(MallocSource::Nobody),
    }
}

/// The answer from mapped files alone: the program comes first in every order, a libc after what was
/// preloaded; between two others only the order would tell.
fn only_definer(pid: i32, own: &Elf, program: &Path) -> Result<MallocSource, Unreadable> {
    if own.defines.malloc && !own.is_loader() {
        return Ok(MallocSource::File(here(&Root::of(pid), program)));
    }
    let (libc, others): (Vec<PathBuf>, Vec<PathBuf>) =
        mapped_files(pid)?.into_iter().filter(|path| defines_malloc(path)).partition(|path| is_c_library(path));
    match (others.as_slice(), libc.first()) {
        ([only], _) => Ok(MallocSource::File(only.clone())),
        ([], Some(libc)) => Ok(MallocSource::File(libc.clone())),
        ([], None) => Err(Unreadable::Starting),
        _ => Err(Unreadable::Order),
    }
}

/// How the kernel ends the name of a mapped file that has lost it.
const DELETED: &str = " (deleted)";

/// Where the file that `map` shows can be opened: the one that was mapped, also if it was deleted or another one has
/// its name now. `None` where we lack the right to open it.
pub fn mapped_file(pid: i32, root: &Root, map: &MemoryMap) -> Option<PathBuf> {
    let MMapPath::Path(name) = &map.pathname else {
        return None;
    };
    if !name.to_string_lossy().ends_with(DELETED) {
        return Some(here(root, name));
    }
    let (start, end) = map.address;
    let by_mapping = PathBuf::from(format!("/proc/{pid}/map_files/{start:x}-{end:x}"));
    fs::metadata(&by_mapping).is_ok().then_some(by_mapping)
}

/// The name without what the kernel adds where the file has lost it.
pub fn name_when_mapped(path: &Path) -> PathBuf {
    let name = path.to_string_lossy();
    PathBuf::from(name.strip_suffix(DELETED).unwrap_or(&name))
}

/// The mapped files of a process that were deleted or replaced, by the name that they had: where each can be opened.
struct Replaced(BTreeMap<PathBuf, PathBuf>);

impl Replaced {
    fn of(process: &Process, root: &Root) -> Self {
        let maps = process.maps().map(|maps| maps.0).unwrap_or_default();
        let files = maps.iter().filter_map(|map| match &map.pathname {
            MMapPath::Path(name) if name.to_string_lossy().ends_with(DELETED) => {
                Some((name_when_mapped(name), mapped_file(process.pid(), root, map)?))
            }
            _ => None,
        });
        Self(files.collect())
    }

    /// Where `path` is opened, which is at `otherwise` unless it was replaced.
    fn open(&self, path: &Path, otherwise: impl Fn() -> PathBuf) -> PathBuf {
        self.0.get(path).cloned().unwrap_or_else(otherwise)
    }
}

fn mapped_files(pid: i32) -> Result<BTreeSet<PathBuf>, Unreadable> {
    let maps = Process::new(pid).and_then(|process| process.maps()).map_err(reason)?;
    let root = Root::of(pid);
    Ok(maps
        .into_iter()
        .filter_map(|map| match map.pathname {
            MMapPath::Path(path) => Some(here(&root, &path)),
            _ => None,
        })
        .collect())
}

fn defines_malloc(path: &Path) -> bool {
    Elf::read(path).is_ok_and(|elf| elf.defines.malloc)
}

fn is_c_library(path: &Path) -> bool {
    let soname = Elf::read(path).ok().and_then(|elf| elf.soname);
    let named = |name: &str| {
        name == "libc.so"
            || name.starts_with("libc.so.")
            || name.starts_with("libc.musl-")
            // glibc's loader had a malloc of its own until 2.31.
            || name.starts_with("ld-linux")
    };
    match soname {
        Some(soname) => named(&soname),
        // musl's own build gives its libc no soname.
        None => path
            .file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| named(name) || name.starts_with("ld-musl-")),
    }
}

fn same_file(one: &Path, other: &Path) -> bool {
    one == other
        || match (fs::metadata(one), fs::metadata(other)) {
            (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_takes_malloc_from_its_libc() {
        let own = i32::try_from(std::process::id()).unwrap();
        let source = malloc_source(own).unwrap();
        assert!(source.is_libc(), "{source:?}");
        let MallocSource::File(libc) = source else {
            panic!("a file");
        };
        assert_eq!(maps_contain(own, &libc), Ok(true));
        assert_eq!(maps_contain(own, Path::new("/no/such.so")), Ok(false));
    }

    #[test]
    fn the_map_alone_gives_the_same_answer() {
        let own = i32::try_from(std::process::id()).unwrap();
        let program = std::env::current_exe().unwrap();
        let elf = Elf::read(&program).unwrap();
        assert_eq!(only_definer(own, &elf, &program), malloc_source(own));
    }

    #[test]
    fn a_process_that_is_gone_is_said_to_be() {
        let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        child.wait().unwrap();
        assert_eq!(malloc_source(pid), Err(Unreadable::Gone));
        assert_eq!(maps_contain(pid, Path::new("/x")), Err(Unreadable::Gone));
    }
}
