//! The file system as a process, or an unpacked image, sees it: paths are followed from its own root,
//! links included, so that what a container calls `/usr/lib/x.so` is not looked up on the host.
//!
//! Used where files of another process are read ([`super::charge`]) and by `ebb check`. A path that
//! [`Root::resolve`] gives can be opened from here; [`Root::inside`] turns it back into the name that
//! the process itself would use.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Number of links that the kernel follows in one path.
const MAX_LINKS: usize = 40;

/// A folder that is used as `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    folder: PathBuf,
}

impl Root {
    /// Our own root.
    pub fn own() -> Self {
        Self::at(Path::new("/"))
    }

    /// The root of an unpacked image.
    pub fn at(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// The root of a process; ours where it has the same one, or does not show its own.
    pub fn of(pid: i32) -> Self {
        let theirs = PathBuf::from(format!("/proc/{pid}/root"));
        let place = |path: &Path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
        let mounts = |who: &str| fs::read_link(format!("/proc/{who}/ns/mnt")).ok();
        let known = place(&theirs.join(".")).filter(|_| fs::read_dir(&theirs).is_ok());
        let same = known == place(Path::new("/")) && mounts(&pid.to_string()) == mounts("self");
        if known.is_none() || same { Self::own() } else { Self::at(&theirs) }
    }

    /// The folder, as it can be opened from here.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where `path`, absolute and as the process writes it, lies for us, with every link followed
    /// inside this root. Fails where nothing is there.
    pub fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        let mut left: Vec<OsString> = parts(path);
        let mut inside = PathBuf::new();
        let mut links = 0;
        while let Some(part) = left.pop() {
            if part == ".." {
                inside.pop();
                continue;
            }
            let next = inside.join(&part);
            let here = self.folder.join(&next);
            if !fs::symlink_metadata(&here)?.is_symlink() {
                inside = next;
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return Err(io::Error::from_raw_os_error(libc::ELOOP));
            }
            let target = fs::read_link(&here)?;
            if target.is_absolute() {
                inside = PathBuf::new();
            }
            left.extend(parts(&target));
        }
        Ok(self.folder.join(inside))
    }

    /// The name inside this root of a path that [`Self::resolve`] gave.
    pub fn inside(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(&self.folder) {
            Ok(rest) => Path::new("/").join(rest),
            Err(_) => path.to_owned(),
        }
    }
}

/// The parts of a path, the last one first.
fn parts(path: &Path) -> Vec<OsString> {
    path.components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            _ => None,
        })
        .rev()
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_inside_the_root() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("usr/lib")).unwrap();
        fs::write(at("usr/lib/a.so.1"), "x").unwrap();
        symlink("/usr/lib", at("lib")).unwrap();
        symlink("../../../usr/lib/a.so.1", at("usr/lib/a.so")).unwrap();
        symlink("/loop", at("loop")).unwrap();
        let root = Root::at(folder.path());
        let found = root.resolve(Path::new("/lib/a.so")).unwrap();
        assert_eq!(found, at("usr/lib/a.so.1"));
        assert_eq!(root.inside(&found), Path::new("/usr/lib/a.so.1"));
        assert_eq!(root.resolve(Path::new("/lib/b.so")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(root.resolve(Path::new("/loop")).unwrap_err().raw_os_error(), Some(libc::ELOOP));
    }

    #[test]
    fn our_own_processes_have_our_root() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(Root::of(own), Root::own());
        let libc = Path::new("/proc/self/exe");
        assert!(Root::own().resolve(libc).is_ok());
    }
}
