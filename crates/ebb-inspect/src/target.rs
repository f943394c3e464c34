//! A process as it is read: its mappings, its memory, its program.

use std::io;
use std::path::{Path, PathBuf};

use procfs::ProcError;
use procfs::process::{MMPermissions, MMapPath, MemoryMap, Process, VmFlags};

use crate::file::NamedFile;
use crate::memory::Unreadable;
use crate::memory::process::ProcessMemory;

/// A running process.
#[derive(Debug)]
pub struct Target {
    process: Process,
    memory: ProcessMemory,
}

/// What the kernel says of huge pages in a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HugePagesOf {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Bytes in transparent huge pages.
    pub(crate) resident: u64,
    /// Whether the process asked for them (MADV_HUGEPAGE).
    pub(crate) advised: bool,
}

/// What a mapping shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Nothing: memory of its own, also where the kernel knows a name for it.
    Anonymous,
    /// The area that brk moves.
    Heap,
    /// The first thread's stack.
    Stack,
    /// A file, by the name that it had when it was mapped.
    File(PathBuf),
    /// The kernel's own: vdso and the like, or shared memory of System V.
    Other,
}

/// One mapping of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its first address.
    pub start: u64,
    /// The first address after it.
    pub end: u64,
    /// Whether it may be read.
    pub readable: bool,
    /// Whether it may be written.
    pub writable: bool,
    /// Whether it may be executed.
    pub executable: bool,
    /// Whether writes are seen by others.
    pub shared: bool,
    /// Whether its pages are locked in memory (mlock): MADV_DONTNEED is refused for them.
    pub locked: bool,
    /// Offset in the file.
    pub offset: u64,
    /// What backs the mapping.
    pub backing: Backing,
}

impl Mapping {
    /// Bytes of address space.
    pub fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Whether it has no byte.
    pub fn is_empty(&self) -> bool {
        self.end <= self.start
    }

    /// Whether `address` lies in it.
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Whether it is the process's own memory that may be read and written.
    pub fn is_own_data(&self) -> bool {
        self.readable && self.writable && !self.shared
    }

    /// The file's path.
    pub fn file(&self) -> Option<&Path> {
        match &self.backing {
            Backing::File(path) => Some(path),
            _ => None,
        }
    }
}

impl From<MemoryMap> for Mapping {
    fn from(map: MemoryMap) -> Self {
        let may = |permission| map.perms.contains(permission);
        Self {
            start: map.address.0,
            end: map.address.1,
            readable: may(MMPermissions::READ),
            writable: may(MMPermissions::WRITE),
            executable: may(MMPermissions::EXECUTE),
            shared: may(MMPermissions::SHARED),
            // `maps` has no flags of this kind, `smaps` has.
            locked: map.extension.vm_flags.contains(VmFlags::LO),
            offset: map.offset,
            backing: match map.pathname {
                MMapPath::Path(path) => Backing::File(path),
                MMapPath::Heap => Backing::Heap,
                MMapPath::Stack => Backing::Stack,
                MMapPath::Anonymous | MMapPath::TStack(_) => Backing::Anonymous,
                // A name that the process gave (prctl): [anon:glibc: malloc].
                MMapPath::Other(name) if name.starts_with("anon") => Backing::Anonymous,
                _ => Backing::Other,
            },
        }
    }
}

impl Target {
    /// Opens process `pid`.
    pub fn open(pid: i32) -> Result<Self, Unreadable> {
        Ok(Self { process: Process::new(pid).map_err(reason)?, memory: ProcessMemory::open(pid)? })
    }

    /// The same process, of whose memory nothing is read from `until` on.
    pub fn until(self, until: std::time::Instant) -> Self {
        Self { memory: self.memory.until(until), ..self }
    }

    /// The kernel's id of the process.
    pub fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// The process's files under `/proc`.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Its memory.
    pub fn memory(&self) -> &ProcessMemory {
        &self.memory
    }

    /// Its mappings, in the order of addresses.
    pub fn mappings(&self) -> Result<Vec<Mapping>, Unreadable> {
        // Only `smaps` tells which are locked. It takes longer, and of a large process the lock of its mappings as well.
        let status = self.process.status().map_err(reason)?;
        let (locked, resident) = (status.vmlck.unwrap_or(0), status.vmrss.unwrap_or(0));
        let is_large = resident * 1024 > crate::LONG_WALK_BYTES;
        let (all, nearly_none) = (locked >= resident / 2, locked < resident / 100);
        let by_maps = locked == 0 || (is_large && (all || nearly_none));
        let maps = if by_maps { self.process.maps() } else { self.process.smaps() };
        let maps = maps.map_err(reason)?;
        let mut maps: Vec<Mapping> = maps.into_iter().map(Mapping::from).collect();
        if by_maps && locked > 0 && all {
            maps.iter_mut().for_each(|mapping| mapping.locked = true);
        }
        // Without an address space: a zombie.
        if maps.is_empty() {
            return Err(Unreadable::Gone);
        }
        Ok(maps)
    }

    /// Which of its mappings have huge pages, or may. A walk over huge pages is short.
    pub(crate) fn huge_pages(&self) -> Result<Vec<HugePagesOf>, Unreadable> {
        let maps = self.process.smaps().map_err(reason)?;
        let huge = maps.into_iter().map(|map| HugePagesOf {
            start: map.address.0,
            end: map.address.1,
            resident: map.extension.map.get("AnonHugePages").copied().unwrap_or(0),
            advised: map.extension.vm_flags.contains(VmFlags::HG),
        });
        Ok(huge.filter(|it| it.advised || it.resident > 0).collect())
    }

    /// The file that a mapping shows: the one that was mapped, also if another has its name now. Where that takes
    /// a right that we have not, the one that has its name.
    pub fn open_mapped(&self, mapping: &Mapping) -> io::Result<NamedFile> {
        let (start, end) = (mapping.start, mapping.end);
        let by_mapping = format!("/proc/{}/map_files/{start:x}-{end:x}", self.pid());
        NamedFile::open(Path::new(&by_mapping)).or_else(|_| {
            let path = mapping.file().ok_or(io::ErrorKind::NotFound)?;
            NamedFile::open(&self.path_of(path))
        })
    }

    /// Where a file that the process knows as `path` is for us: through its own root, because it may be
    /// in a container.
    pub fn path_of(&self, path: &Path) -> PathBuf {
        let relative = path.strip_prefix("/").unwrap_or(path);
        Path::new("/proc").join(self.pid().to_string()).join("root").join(relative)
    }
}

/// What an error of `/proc` says of a process.
pub fn reason(error: ProcError) -> Unreadable {
    match error {
        ProcError::NotFound(_) => Unreadable::Gone,
        ProcError::PermissionDenied(_) => Unreadable::Refused,
        ProcError::Io(error, _) => Unreadable::from_io(&error),
        other => Unreadable::Other(other.to_string()),
    }
}
