//! Writes a file whole or not at all: readers see the old one or the new one, never a part.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Writes what a user named: a link keeps its place; a device or a pipe gets what is written.
pub fn write(path: &Path, bytes: &[u8], mode: Option<u32>) -> io::Result<()> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if fs::metadata(&path).is_ok_and(|it| !it.is_file()) {
        return fs::write(&path, bytes);
    }
    replace(&path, bytes, mode)
}

/// Puts a file in the place of whatever is there, a link included: under another name, then renamed. `mode` is what others may
/// do with it; without it the user's mask says that.
pub fn replace(path: &Path, bytes: &[u8], mode: Option<u32>) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let permissions = Permissions::from_mode(mode.unwrap_or(0o666));
    let mut file = tempfile::Builder::new()
        .prefix(".ebb-")
        .permissions(permissions.clone())
        .tempfile_in(folder.unwrap_or(Path::new(".")))?;
    // Without the other name in its error.
    file.as_file_mut().write_all(bytes)?;
    if mode.is_some() {
        file.as_file().set_permissions(permissions)?;
    }
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
