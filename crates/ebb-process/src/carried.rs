//! The library that this program carries, and a path of it for the loader.
//!
//! Used where no libebbmalloc.so is installed, and by `ebb library`. The library is written once to a private cache;
//! where nothing can be written, it is an unnamed, sealed file in memory that descendants inherit. A file of the cache
//! is used only if every byte is right and only this user can replace it.

use std::env;
use std::ffi::CString;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::RawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::private::{Base, NotCached, base, folder_below};
use crate::whole_file;
use flate2::read::GzDecoder;
use nix::fcntl::{FcntlArg, OFlag, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::Uid;
use object::Object as _;

/// The name under which it lies everywhere.
pub const FILE: &str = "libebbmalloc.so";
/// Above the descriptors that programs expect to have a meaning, and what they use for themselves.
const FIRST_DESCRIPTOR: i32 = 200;

/// A library that the program carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// As `uname -m` has it: `x86_64`, `aarch64`.
    pub arch: &'static str,
    /// The file.
    pub bytes: &'static [u8],
    /// `0.1.0`.
    pub version: &'static str,
}

/// A library as the program has it inside.
#[derive(Clone, Copy, Debug)]
pub struct Packed {
    /// As [`Carried::arch`].
    pub arch: &'static str,
    /// [`Carried::bytes`], compressed by gzip; empty where it was not there when the program was built.
    pub gzip: &'static [u8],
    /// As [`Carried::version`].
    pub version: &'static str,
}

/// What the program was built with.
#[derive(Clone, Copy, Debug)]
pub struct Contents {
    /// One per architecture.
    pub libraries: &'static [Packed],
    /// ebbmalloc.h.
    pub header: &'static [u8],
}

/// What was placed by this process.
static PLACED: Mutex<Vec<(Carried, Placed)>> = Mutex::new(Vec::new());

/// Where the library at `path` was placed by this process; none if the file was there before.
pub fn placed_at(path: &Path) -> Option<Placed> {
    let placed = PLACED.lock().unwrap_or_else(PoisonError::into_inner);
    placed.iter().map(|(_, placed)| placed).find(|it| it.path == path).cloned()
}

static CONTENTS: OnceLock<Contents> = OnceLock::new();

/// Makes known what the program carries. Called once, at the start.
pub fn set(contents: Contents) {
    let _ = CONTENTS.set(contents);
}

/// ebbmalloc.h, if the program carries it.
pub fn header() -> Option<&'static [u8]> {
    CONTENTS.get().map(|contents| contents.header).filter(|header| !header.is_empty())
}

/// Whether the program carries a library for `arch`.
pub fn has_library(arch: &str) -> bool {
    packed(arch).is_some()
}

/// The library for `arch`, if the program carries it. Unpacked once per process.
pub fn library(arch: &str) -> Option<Carried> {
    static UNPACKED: Mutex<Vec<Carried>> = Mutex::new(Vec::new());
    let packed = packed(arch)?;
    let mut unpacked = UNPACKED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(library) = unpacked.iter().find(|it| it.arch == arch) {
        return Some(*library);
    }
    let library = packed.unpack()?;
    unpacked.push(library);
    Some(library)
}

fn packed(arch: &str) -> Option<Packed> {
    let libraries = CONTENTS.get()?.libraries;
    libraries.iter().find(|it| it.arch == arch && !it.gzip.is_empty()).copied()
}

impl Packed {
    /// None if the program's own file is damaged.
    fn unpack(&self) -> Option<Carried> {
        let mut bytes = Vec::new();
        GzDecoder::new(self.gzip).read_to_end(&mut bytes).ok()?;
        Some(Carried { arch: self.arch, bytes: bytes.leak(), version: self.version })
    }
}

/// Where the carried library can be loaded from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The path for `LD_PRELOAD`.
    pub path: PathBuf,
    /// Why it is not in the cache.
    pub why_not_cached: Option<String>,
}

/// Nothing could be written anywhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the library that ebb carries cannot be placed: {cache}; in memory: {memory}")]
pub struct NotPlaced {
    cache: String,
    memory: String,
}

impl Carried {
    /// The build id, in hexadecimal digits.
    pub fn build_id(&self) -> Option<String> {
        build_id(self.bytes)
    }

    /// A path of the library: in the cache, else in memory. Placed once per process.
    pub fn place(&self) -> Result<Placed, NotPlaced> {
        let mut placed = PLACED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, placed)) = placed.iter().find(|(library, _)| library == self) {
            return Ok(placed.clone());
        }
        let new = match self.cached() {
            Ok(path) => Placed { path, why_not_cached: None },
            Err(why) => {
                let cache = why.to_string();
                let path =
                    self.in_memory().map_err(|error| NotPlaced { cache: cache.clone(), memory: error.to_string() })?;
                Placed { path, why_not_cached: Some(cache) }
            }
        };
        placed.push((*self, new.clone()));
        Ok(new)
    }

    /// The file in the cache; written if it is not there or not right.
    pub fn cached(&self) -> Result<PathBuf, NotCached> {
        let base = base(|name| env::var_os(name).map(PathBuf::from)).ok_or(NotCached::NoHome)?;
        self.cached_below(&base)
    }

    /// As [`Self::cached`], below `base`, the user's folder for caches or the home that has one.
    fn cached_below(&self, base: &Base) -> Result<PathBuf, NotCached> {
        let id = self.build_id().unwrap_or_else(|| "unknown".to_owned());
        let folder = folder_below(base, &format!("{}-{}", self.version, &id[..id.len().min(16)]))?;
        let path = folder.join(FILE);
        if ebb_allocators::splits_in_preload(&path) {
            return Err(NotCached::Separator(path));
        }
        if !self.is_at(&path) {
            whole_file::replace(&path, self.bytes, Some(0o644)).map_err(|error| NotCached::io(&path, error))?;
        }
        Ok(path)
    }

    /// Whether a plain file of this user at `path` has these bytes.
    fn is_at(&self, path: &Path) -> bool {
        let no_link = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let Ok(mut file) = OpenOptions::new().read(true).custom_flags(no_link.bits()).open(path) else {
            return false;
        };
        let is_ours = file.metadata().is_ok_and(|it| {
            it.is_file()
                && it.uid() == Uid::effective().as_raw()
                && it.mode() & 0o022 == 0
                && it.len() == self.bytes.len() as u64
        });
        let mut bytes = Vec::with_capacity(self.bytes.len());
        is_ours && file.read_to_end(&mut bytes).is_ok() && bytes == self.bytes
    }

    /// A sealed file in memory. It is open in every program that this process starts, so that its name is right there.
    fn in_memory(&self) -> io::Result<PathBuf> {
        // An `ebb run` inside of another one: a second copy would be a second allocator.
        match self.inherited() {
            Some(path) => Ok(path),
            None => Ok(PathBuf::from(format!("/proc/self/fd/{}", sealed(self.bytes)?))),
        }
    }

    /// The file in memory that the program which started this one had.
    fn inherited(&self) -> Option<PathBuf> {
        let preload = env::var_os("LD_PRELOAD")?;
        ebb_allocators::preload_entries(&preload)
            .map(PathBuf::from)
            .find(|path| is_in_memory(path) && fs::read(path).is_ok_and(|bytes| bytes == self.bytes))
    }
}

fn is_in_memory(path: &Path) -> bool {
    path.starts_with("/proc/self/fd")
        && fs::read_link(path).is_ok_and(|it| it.starts_with(format!("/memfd:{FILE} (deleted)")))
}

/// The build id of an ELF file, in hexadecimal digits.
pub fn build_id(bytes: &[u8]) -> Option<String> {
    let file = object::File::parse(bytes).ok()?;
    let id = file.build_id().ok()??;
    Some(id.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The version of an ebbmalloc, by the note in its file.
pub fn version(bytes: &[u8]) -> Option<String> {
    // It lies within the first pages, so that it can be read from a mapping.
    let head = bytes.get(..bytes.len().min(1 << 16))?;
    ebb_stats::note::find(head).map(|version| version.text().to_owned())
}

/// A sealed file in memory, which cannot be changed any more, on a descriptor that stays open and that programs
/// inherit.
fn sealed(bytes: &[u8]) -> io::Result<RawFd> {
    // Not in nix; the kernel has it since 6.3, and may be set to demand it.
    const NOEXEC_SEAL: MFdFlags = MFdFlags::from_bits_retain(8);
    let name = CString::new(FILE)?;
    let flags = MFdFlags::MFD_ALLOW_SEALING | MFdFlags::MFD_CLOEXEC;
    let made = memfd_create(name.as_c_str(), flags | NOEXEC_SEAL).or_else(|_| memfd_create(name.as_c_str(), flags))?;
    let mut file = File::from(made);
    file.write_all(bytes)?;
    // A program that changes its user opens it anew.
    file.set_permissions(fs::Permissions::from_mode(0o444))?;
    let seals = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals | SealFlag::F_SEAL_SEAL))?;
    let copy = |least| fcntl(&file, FcntlArg::F_DUPFD(least));
    Ok(copy(FIRST_DESCRIPTOR).or_else(|_| copy(0))?)
}

impl fmt::Display for Placed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why_not_cached {
            None => write!(out, "{}", self.path.display()),
            Some(why) => write!(out, "in memory ({}), because {why}", self.path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::private::create;
    use flate2::{Compression, write::GzEncoder};
    use std::os::unix::fs::{chown, symlink};
    use std::process::Command;

    const LIBRARY: Carried = Carried { arch: "x86_64", bytes: b"\x7fELF, or nearly", version: "0.0.0" };

    #[test]
    fn a_damaged_one_is_none() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(LIBRARY.bytes).unwrap();
        let gzip = gzip.finish().unwrap();
        let unpack = |gzip: &[u8]| Packed { arch: "x86_64", gzip: gzip.to_vec().leak(), version: "0.0.0" }.unpack();
        assert_eq!(unpack(&gzip), Some(LIBRARY));
        assert_eq!(unpack(&gzip[..gzip.len() - 1]), None);
    }

    fn home() -> (tempfile::TempDir, Base) {
        let home = tempfile::tempdir().unwrap();
        let base = Base::Home(home.path().to_owned());
        (home, base)
    }

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn it_is_written_once_for_its_user_alone() {
        let (home, base) = home();
        let path = LIBRARY.cached_below(&base).unwrap();
        assert_eq!(path, home.path().join(".cache/ebb/0.0.0-unknown/libebbmalloc.so"));
        assert_eq!(fs::read(&path).unwrap(), LIBRARY.bytes);
        for folder in path.ancestors().skip(1).take(3) {
            assert_eq!(fs::metadata(folder).unwrap().mode() & 0o777, 0o700, "{}", folder.display());
        }
        let written = fs::metadata(&path).unwrap().ino();
        assert_eq!(LIBRARY.cached_below(&base).unwrap(), path);
        assert_eq!(fs::metadata(&path).unwrap().ino(), written);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing half-written");
    }

    #[test]
    fn a_file_that_is_not_it_is_replaced() {
        let (home, base) = home();
        let path = LIBRARY.cached_below(&base).unwrap();
        fs::write(&path, b"\x7fELF, or NEARLY").unwrap();
        LIBRARY.cached_below(&base).unwrap();
        assert_eq!(fs::read(&path).unwrap(), LIBRARY.bytes, "damaged");

        mode(&path, 0o666);
        LIBRARY.cached_below(&base).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o644, "writable");

        let other = home.path().join("other");
        fs::write(&other, LIBRARY.bytes).unwrap();
        fs::remove_file(&path).unwrap();
        symlink(&other, &path).unwrap();
        LIBRARY.cached_below(&base).unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_file(), "a link");
        assert!(other.exists());
    }

    #[test]
    fn a_folder_that_another_user_could_change_is_refused() {
        type Prepare = fn(&Path);
        let cases: [(&str, Prepare, &str); 6] = [
            ("cache open", |home| mode(&home.join(".cache/ebb"), 0o750), "is open to other users"),
            ("home open", |home| mode(home, 0o777), "can be written by other users"),
            (
                "a link",
                |home| {
                    fs::rename(home.join(".cache/ebb"), home.join("elsewhere")).unwrap();
                    symlink(home.join("elsewhere"), home.join(".cache/ebb")).unwrap();
                },
                "is a symbolic link",
            ),
            (
                "a file",
                |home| {
                    fs::remove_dir_all(home.join(".cache")).unwrap();
                    fs::write(home.join(".cache"), "").unwrap();
                },
                "is not a folder",
            ),
            ("no home", |home| fs::remove_dir_all(home).unwrap(), "No such file or directory"),
            ("another's", |home| chown(home.join(".cache/ebb"), Some(65534), None).unwrap(), "belongs to another user"),
        ];
        for (name, prepare, why) in cases {
            if name == "another's" && !Uid::effective().is_root() {
                continue;
            }
            let (home, base) = home();
            LIBRARY.cached_below(&base).unwrap();
            prepare(home.path());
            let error = LIBRARY.cached_below(&base).unwrap_err().to_string();
            assert!(error.contains(why), "{name}: {error}");
        }
    }

    #[test]
    fn a_path_that_the_loader_would_split_is_refused() {
        let (home, _) = home();
        let folder = home.path().join("a b");
        create(&folder).unwrap();
        let error = LIBRARY.cached_below(&Base::Cache(folder)).unwrap_err();
        assert!(matches!(error, NotCached::Separator(_)), "{error}");
    }

    #[test]
    fn in_memory_it_is_sealed_and_inherited() {
        let path = LIBRARY.in_memory().unwrap();
        assert!(is_in_memory(&path), "{}", path.display());
        assert!(
            File::options()
                .write(true)
                .open(&path)
                .is_err_and(|error| { matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES)) })
                || File::options().write(true).open(&path).unwrap().write_all(b"x").is_err()
        );
        let read = Command::new("sh").args(["-c", "cat \"$1\"", "sh"]).arg(&path).output().unwrap();
        assert_eq!(read.stdout, LIBRARY.bytes, "a child of a child");
    }
}
