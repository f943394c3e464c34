//! Files that another process names: programs and libraries that it has mapped, or says that it has.
//!
//! Every reader opens them here. What always holds: a pipe, a device or a file of the kernel (`/proc`, `/sys`) is refused
//! before it is opened, so that the opening neither waits nor does anything; a path through `/proc/PID/root` stays in that root,
//! whatever links appear in it meanwhile; and a file of any size costs a bounded amount of memory.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open as open_at, openat2};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::sys::statfs::{
    BPF_FS_MAGIC, CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC, FsType, PROC_SUPER_MAGIC, SECURITYFS_MAGIC,
    SYSFS_MAGIC, TRACEFS_MAGIC, fstatfs,
};

use crate::exact::usize_of;

/// Bytes that are read of a file: programs with all that debuggers need have less in the parts that are read.
const MOST_BYTES: u64 = 1 << 30;
/// A file whose size is more than this times its room on disk, compression included, is one of holes.
const MOST_COMPRESSED: u64 = 16;
/// What the kernel shows as files. Reading some of them waits, or takes what is read away.
const OF_THE_KERNEL: [FsType; 8] = [
    PROC_SUPER_MAGIC, SYSFS_MAGIC, TRACEFS_MAGIC, DEBUGFS_MAGIC, SECURITYFS_MAGIC, BPF_FS_MAGIC, CGROUP_SUPER_MAGIC,
    CGROUP2_SUPER_MAGIC,
];

/// Small reads are served from pieces of so many bytes: parsers read a table of names name by name.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces that are kept of a file.
const MOST_PIECES: usize = 32;

/// A regular file. At most 1 GiB of it is read.
#[derive(Debug)]
pub struct NamedFile {
    file: File,
    left: Cell<u64>,
    /// Where `Read` goes on.
    at: Cell<u64>,
    /// What small reads fetched, by number of the piece.
    pieces: RefCell<BTreeMap<u64, Vec<u8>>>,
}

impl NamedFile {
    /// Opens what is at `path`; see the head of this file for what is refused.
    pub fn open(path: &Path) -> io::Result<Self> {
        let found = find(path)?;
        let meta = fstat(&found)?;
        if meta.st_mode & SFlag::S_IFMT.bits() != SFlag::S_IFREG.bits() {
            return Err(io::Error::other("is not a regular file"));
        }
        let of = fstatfs(&found)?.filesystem_type();
        if OF_THE_KERNEL.contains(&of) {
            return Err(io::Error::other("is a file of the kernel"));
        }
        // Of the same file, not of the same name. A lease that its owner does not give up makes it fail, not wait.
        let by_number = format!("/proc/self/fd/{}", found.as_raw_fd());
        let flags = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
        let open = |path: &Path| File::options().read(true).custom_flags(flags).open(path);
        let file = match open(by_number.as_ref()) {
            // There is no /proc, or no second descriptor: by its name, if that leads to the same file still.
            Err(error) if matches!(errno_of(&error), Errno::ENOENT | Errno::EMFILE) => {
                drop(found);
                let file = open(path)?;
                let now = file.metadata()?;
                if (now.dev(), now.ino()) != (meta.st_dev, meta.st_ino) {
                    return Err(io::Error::other("was replaced meanwhile"));
                }
                file
            }
            opened => opened?,
        };
        let (left, at) = (Cell::new(MOST_BYTES), Cell::new(0));
        Ok(Self { file, left, at, pieces: RefCell::default() })
    }

    /// All of it, if it is not larger than `most` bytes.
    pub fn read_all(path: &Path, most: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        Self::open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > most {
            return Err(io::Error::other(format!("is larger than {most} bytes")));
        }
        Ok(bytes)
    }

    /// The text in it, if it is not larger than `most` bytes.
    pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
        let not_text = |_| io::Error::other("is not UTF-8");
        String::from_utf8(Self::read_all(path, most)?).map_err(not_text)
    }
}

impl FileExt for NamedFile {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        self.count(self.file.read_at(out, offset)?)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl NamedFile {
    fn count(&self, read: usize) -> io::Result<usize> {
        let left = self.left.get().checked_sub(read as u64);
        self.left.set(left.ok_or_else(|| io::Error::other("is too large"))?);
        Ok(read)
    }

    /// Reads from where it is to the end of the piece there at most.
    fn read_piece(&self, out: &mut [u8]) -> io::Result<usize> {
        let at = self.at.get();
        let (number, within) = (at / PIECE_BYTES as u64, usize_of(at % PIECE_BYTES as u64));
        let mut pieces = self.pieces.borrow_mut();
        if pieces.len() == MOST_PIECES && !pieces.contains_key(&number) {
            pieces.clear();
        }
        let piece = match pieces.entry(number) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let mut bytes = vec![0; PIECE_BYTES];
                let read = self.file.read_at(&mut bytes, at - within as u64)?;
                bytes.truncate(read);
                new.insert(bytes)
            }
        };
        let rest = piece.get(within..).unwrap_or_default();
        let len = out.len().min(rest.len());
        out[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }
}

impl Read for &NamedFile {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read =
            if out.len() < PIECE_BYTES { self.read_piece(out)? } else { self.file.read_at(out, self.at.get())? };
        self.at.set(self.at.get().saturating_add(read as u64));
        self.count(read)
    }
}

impl Seek for &NamedFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (from, by) = match to {
            SeekFrom::Start(at) => (at, 0),
            SeekFrom::Current(by) => (self.at.get(), by),
            // Parsers ask for the size so, and allocate what its tables say within it.
            SeekFrom::End(by) => {
                let meta = self.file.metadata()?;
                let on_disk = meta.blocks().saturating_mul(512);
                (meta.len().min(on_disk.saturating_mul(MOST_COMPRESSED).max(MOST_BYTES)), by)
            }
        };
        let at = from.checked_add_signed(by).ok_or(io::ErrorKind::InvalidInput)?;
        self.at.set(at);
        Ok(at)
    }
}

impl Read for NamedFile {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        (&*self).read(out)
    }
}

impl Seek for NamedFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}

fn errno_of(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or_default())
}

/// The file at `path`, not opened for anything.
fn find(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    if let Some((root, inside)) = through_root(path) {
        let root = open_at(&root, flags | OFlag::O_DIRECTORY, Mode::empty())?;
        let resolve = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        let name = CString::new(inside.as_os_str().as_bytes())?;
        match openat2(&root, name.as_c_str(), OpenHow::new().flags(flags).resolve(resolve)) {
            // Sandboxes that lack the call: as the name leads.
            Err(Errno::ENOSYS | Errno::EPERM) => {}
            found => return Ok(found?),
        }
    }
    Ok(open_at(path, flags, Mode::empty())?)
}

/// `/proc/PID/root` and what follows it, if something does.
fn through_root(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut parts = path.components();
    let head: PathBuf = parts.by_ref().take(4).collect();
    let names: Vec<_> = head.components().collect();
    let is = |at: usize, name: &str| names.get(at) == Some(&Component::Normal(name.as_ref()));
    let rest = parts.as_path();
    (is(1, "proc") && is(3, "root") && !rest.as_os_str().is_empty()).then(|| (head, rest.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use object::ReadCacheOps as _;

    use super::*;

    fn error(path: &Path) -> String {
        NamedFile::open(path).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        for path in [&pipe, folder.path(), Path::new("/dev/zero"), Path::new("/dev/tty")] {
            assert_eq!(error(path), "is not a regular file", "{}", path.display());
        }
        for path in ["/proc/kmsg", "/proc/self/cmdline", "/sys/kernel/mm/transparent_hugepage/enabled"] {
            assert!(error(Path::new(path)).contains("file of the kernel"), "{path}");
        }
        assert!(NamedFile::open(Path::new("/proc/self/exe")).is_ok());
        assert!(NamedFile::open(Path::new("/no/such/file")).is_err());
    }

    #[test]
    fn a_link_in_the_root_of_a_process_leads_to_no_file_outside() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("inside"), "inside").unwrap();
        for (link, to) in
            [("absolute", "/etc/passwd"), ("relative", "../../../../../../etc/passwd"), ("good", "/inside")]
        {
            symlink(to, folder.path().join(link)).unwrap();
        }
        let root = open_at(folder.path(), OFlag::O_PATH, Mode::empty()).unwrap();
        let found = |name: &str| {
            let how = OpenHow::new().flags(OFlag::O_PATH).resolve(ResolveFlag::RESOLVE_IN_ROOT);
            openat2(&root, name, how).is_ok()
        };
        assert!(found("good") && !found("absolute") && !found("relative"));
        // The same through /proc, where the root is ours.
        let through = Path::new("/proc/self/root").join(folder.path().strip_prefix("/").unwrap());
        assert!(NamedFile::open(&through.join("relative")).is_ok());
        let (root, rest) = through_root(&through).unwrap();
        assert_eq!((root, rest), ("/proc/self/root".into(), folder.path().strip_prefix("/").unwrap().to_owned()));
        assert!(through_root(Path::new("/proc/1/root")).is_none());
        assert!(through_root(Path::new("/proc/1/exe")).is_none());
    }

    fn read(file: &mut NamedFile, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        Seek::seek(file, SeekFrom::Start(at as u64)).unwrap();
        Read::read_exact(file, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn reads_of_any_size_at_any_place_see_the_bytes_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bytes");
        let bytes: Vec<u8> = (0..3 * PIECE_BYTES as u32 + 5).map(|at| (at % 251) as u8).collect();
        fs::write(&path, &bytes).unwrap();
        let mut file = NamedFile::open(&path).unwrap();
        for at in [0, 7, PIECE_BYTES - 3, PIECE_BYTES, 3 * PIECE_BYTES - 1] {
            for len in [1, 6, 300, PIECE_BYTES - 1, PIECE_BYTES, 2 * PIECE_BYTES] {
                let end = (at + len).min(bytes.len());
                assert!(read(&mut file, at, end - at) == bytes[at..end], "{len} bytes at {at}");
                assert_eq!(file.stream_position().unwrap(), end as u64);
            }
        }
        assert_eq!(Seek::seek(&mut file, SeekFrom::End(2)).unwrap(), bytes.len() as u64 + 2);
        assert_eq!(Read::read(&mut file, &mut [0; 9]).unwrap(), 0);
        assert!(Seek::seek(&mut file, SeekFrom::Current(-(1 << 40))).is_err());
        // More than the pieces that are kept.
        let large = File::create(&path).unwrap();
        let places = (0..2 * MOST_PIECES).map(|piece| piece * PIECE_BYTES);
        places.clone().for_each(|at| large.write_all_at(&at.to_ne_bytes(), at as u64).unwrap());
        let mut file = NamedFile::open(&path).unwrap();
        places.for_each(|at| assert_eq!(read(&mut file, at, 8), at.to_ne_bytes()));
        assert!(file.pieces.borrow().len() <= MOST_PIECES);
    }

    #[test]
    fn a_file_of_holes_is_as_large_as_may_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("holes");
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let mut file = NamedFile::open(&path).unwrap();
        assert_eq!(file.len().unwrap(), MOST_BYTES);
        file.rewind().unwrap();
        file.left.set(10);
        assert!(Read::read(&mut file, &mut [0; 11]).is_err());
        assert!(NamedFile::read_all(&path, 100).is_err());
    }
}
