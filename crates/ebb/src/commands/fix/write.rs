//! Writes a file in one step: a reader sees the old text or the new one. Mode, owner and attributes stay.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use nix::unistd::{Gid, Uid, fchown};
use tempfile::NamedTempFile;

use crate::exit::{Exit, Failure};

/// The mode of a new file: readable for the builder, the service manager, the service's user.
const NEW: u32 = 0o644;

/// Writes `after`, if the file still holds `before` (none: is not there).
pub(super) fn replace(path: &Path, before: Option<&[u8]>, after: &[u8]) -> Result<(), Failure> {
    let at = |error: io::Error| at(path, &error).remedy("nothing was changed there");
    // A link stays one: its target changes.
    let target = match before {
        Some(_) => fs::canonicalize(path).map_err(at)?,
        None => path.to_owned(),
    };
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut new = NamedTempFile::new_in(folder.unwrap_or(Path::new("."))).map_err(at)?;
    new.write_all(after).map_err(at)?;
    match before {
        Some(_) => like(&target, new.as_file(), new.path()).map_err(at)?,
        None => new.as_file().set_permissions(fs::Permissions::from_mode(NEW)).map_err(at)?,
    }
    new.as_file().sync_all().map_err(at)?;
    if !holds(&target, before) {
        return Err(changed(path));
    }
    let done = match before {
        Some(_) => new.persist(&target).map(drop),
        None => new.persist_noclobber(&target).map(drop),
    };
    done.map_err(|error| at(error.error))
}

/// What the system refused.
pub(super) fn at(path: &Path, error: &io::Error) -> Failure {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    let is_refused = matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem);
    Failure::at(if is_refused { Exit::Permission } else { Exit::Internal }, path, error)
}

/// Whether the file holds these bytes, or is not there for none.
pub(super) fn holds(path: &Path, expected: Option<&[u8]>) -> bool {
    match (fs::read(path), expected) {
        (Ok(now), Some(expected)) => now == expected,
        (Err(error), None) => error.kind() == io::ErrorKind::NotFound,
        _ => false,
    }
}

/// The message for a file that another program has changed.
pub(super) fn changed(path: &Path) -> Failure {
    let what = format!("{} was changed by another program meanwhile", path.display());
    Failure::new(Exit::Changed, what).remedy("nothing was written there: run ebb fix again")
}

/// Gives a new file the mode, the owner and the attributes of another one.
fn like(old: &Path, new: &File, new_path: &Path) -> io::Result<()> {
    let (meta, own) = (fs::metadata(old)?, new.metadata()?);
    if (meta.uid(), meta.gid()) != (own.uid(), own.gid()) {
        fchown(new, Some(Uid::from_raw(meta.uid())), Some(Gid::from_raw(meta.gid()))).map_err(io::Error::from)?;
    }
    // After the owner, whose change clears bits.
    new.set_permissions(fs::Permissions::from_mode(meta.mode() & 0o7777))?;
    for name in xattr::list(old).into_iter().flatten() {
        if let Ok(Some(value)) = xattr::get(old, &name) {
            // The kernel gives labels of its own to new files; what it does not let us set is its affair.
            let _ = xattr::set(new_path, &name, &value);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_that_changed_meanwhile_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        fs::write(&path, "theirs").unwrap();
        let failure = replace(&path, Some(b"before"), b"after").unwrap_err();
        assert_eq!(failure.exit(), Exit::Changed);
        let failure = replace(&path, None, b"after").unwrap_err();
        assert_eq!(failure.exit(), Exit::Changed);
        assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn mode_and_link_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("f"), folder.path().join("l"));
        fs::write(&file, "before").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        symlink("f", &link).unwrap();
        replace(&link, Some(b"before"), b"after").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "after");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o640);
        let new = folder.path().join("n");
        replace(&new, None, b"new").unwrap();
        assert_eq!(fs::metadata(&new).unwrap().mode() & 0o7777, NEW);
    }
}
