//! Folders of ebb's cache in which only this user can replace a file.

use std::env;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::Uid;

/// Why the cache is not used.
#[derive(Debug, thiserror::Error)]
pub enum NotCached {
    /// Neither variable names a folder.
    #[error("neither XDG_CACHE_HOME nor HOME is an absolute path")]
    NoHome,
    /// Somebody else's, or writable for others.
    #[error("{path} {why}", path = path.display())]
    NotPrivate {
        /// The folder.
        path: PathBuf,
        /// Goes on from its name.
        why: &'static str,
    },
    /// The loader could not map it.
    #[error("{path} is on a file system that is mounted noexec", path = .0.display())]
    NoExec(PathBuf),
    /// The loader would take it for two paths.
    #[error("{path} contains a space or a colon, which separate paths in LD_PRELOAD", path = .0.display())]
    Separator(PathBuf),
    /// The system refused it.
    #[error("{path}: {error}", path = path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What it said.
        error: io::Error,
    },
}

impl NotCached {
    pub(crate) fn io(path: &Path, error: io::Error) -> Self {
        NotCached::Io { path: path.to_owned(), error }
    }
}

/// The folder `name` of ebb's cache, from which programs can be executed. Only this user can change what is in it.
pub fn cache(name: &str) -> Result<PathBuf, NotCached> {
    let base = base(|name| env::var_os(name).map(PathBuf::from)).ok_or(NotCached::NoHome)?;
    folder_below(&base, name)
}

pub(crate) fn folder_below(base: &Base, name: &str) -> Result<PathBuf, NotCached> {
    let mut folder = match base {
        Base::Cache(cache) => cache.clone(),
        Base::Home(home) => {
            private(home, Open::Others)?;
            let cache = home.join(".cache");
            create(&cache)?;
            cache
        }
    };
    private(&folder, Open::Others)?;
    for name in ["ebb", name] {
        folder.push(name);
        create(&folder)?;
        private(&folder, Open::Nobody)?;
    }
    let flags = statvfs(&folder).map_err(|errno| NotCached::io(&folder, errno.into()))?.flags();
    if flags.contains(FsFlags::ST_NOEXEC) {
        return Err(NotCached::NoExec(folder));
    }
    Ok(folder)
}

/// Where the user keeps caches.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// `XDG_CACHE_HOME`.
    Cache(PathBuf),
    /// `HOME`.
    Home(PathBuf),
}

pub(crate) fn base(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<Base> {
    let absolute = |name| variable(name).filter(|path: &PathBuf| path.is_absolute());
    absolute("XDG_CACHE_HOME").map(Base::Cache).or_else(|| absolute("HOME").map(Base::Home))
}

pub(crate) fn create(folder: &Path) -> Result<(), NotCached> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(NotCached::io(folder, error)),
        _ => Ok(()),
    }
}

/// To whom a folder may be open.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    /// Others may read it; only this user may write.
    Others,
    /// Only this user may do anything with it.
    Nobody,
}

/// Refuses a folder in which somebody else could replace a file.
fn private(folder: &Path, open: Open) -> Result<(), NotCached> {
    let no = |why| Err(NotCached::NotPrivate { path: folder.to_owned(), why });
    // The last name may not be a link that another user made; a link of the user's own leads to a folder that is checked.
    let own = Uid::effective().as_raw();
    let link = fs::symlink_metadata(folder).map_err(|error| NotCached::io(folder, error))?;
    if link.is_symlink() && (open == Open::Nobody || link.uid() != own) {
        return no("is a symbolic link");
    }
    let found = fs::metadata(folder).map_err(|error| NotCached::io(folder, error))?;
    if !found.is_dir() {
        return no("is not a folder");
    }
    if found.uid() != own {
        return no("belongs to another user");
    }
    let refused = if open == Open::Nobody { 0o077 } else { 0o022 };
    if found.mode() & refused != 0 {
        return no(if open == Open::Nobody { "is open to other users" } else { "can be written by other users" });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_absolute_folders_are_taken() {
        let found = |xdg: Option<&str>, home: Option<&str>| {
            base(|name| if name == "HOME" { home } else { xdg }.map(PathBuf::from))
        };
        assert_eq!(found(Some("/c"), Some("/h")), Some(Base::Cache("/c".into())));
        assert_eq!(found(Some("c"), Some("/h")), Some(Base::Home("/h".into())));
        assert_eq!(found(None, Some("")), None);
        assert_eq!(found(None, None), None);
    }
}
