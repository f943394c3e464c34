//! The folder for the logs of a trial's runs, and another one for the time after its disk is full.
//!
//! A service whose log cannot be written may fail or behave differently, so the engine looks after each run and moves on.

use std::cell::Cell;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// What is written to find out whether a disk is full.
const PROBE_BYTES: usize = 64 << 10;

/// Where the logs go.
#[derive(Debug)]
pub struct Logs {
    folder: PathBuf,
    /// In a temporary folder; none where that is where the logs are.
    spare: Option<PathBuf>,
    has_moved: Cell<bool>,
}

impl Logs {
    /// Logs in `folder`, later perhaps in `spare`.
    pub fn new(folder: PathBuf, spare: Option<PathBuf>) -> Logs {
        Logs { folder, spare, has_moved: Cell::new(false) }
    }

    /// Where the logs of the next run go.
    pub fn folder(&self) -> &Path {
        match &self.spare {
            Some(spare) if self.has_moved.get() => spare,
            _ => &self.folder,
        }
    }

    /// Where the disk of the logs is full and that of the spare folder is not, further logs go there.
    pub fn leave_full_disk(&self) -> bool {
        let Some(spare) = self.spare.as_ref().filter(|_| !self.has_moved.get()) else {
            return false;
        };
        if !is_full(&self.folder) || probe(spare).is_err() {
            return false;
        }
        self.has_moved.set(true);
        true
    }
}

/// Whether the disk of a folder, or the user's share of it, has no room.
fn is_full(folder: &Path) -> bool {
    probe(folder).is_err_and(|error| matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded))
}

/// Writes about as much as a small trial leaves, and removes it.
pub fn probe(folder: &Path) -> io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(&[0; PROBE_BYTES])?;
    file.as_file().sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_with_room_is_not_left() {
        let (folder, spare) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let logs = Logs::new(folder.path().into(), Some(spare.path().into()));
        assert!(!logs.leave_full_disk());
        assert_eq!(logs.folder(), folder.path());
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 0, "the probe is removed");
    }
}
