//! The script that the interpreter runs: a file that it can see, into which it also writes the outcome.
//!
//! It lies in the process's own root, which may be a container's, so nothing of it is trusted: no symbolic link is
//! followed, and only a folder is taken in which no other user could put another file in its place. The file
//! belongs to the process's user and goes when this value does.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Duration;

use ebb_inspect::Target;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat, openat2};
use nix::sys::stat::{FileStat, Mode, fstat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, unlinkat};

/// Runs in the process; `PATH` is defined in a line before it.
const TEXT: &str = include_str!("trim.py");
/// Where a file for others to read may lie.
const FOLDERS: [&str; 3] = ["tmp", "dev/shm", "var/tmp"];
/// What the script says is short; an error's text may not be.
const MOST_REPORTED: usize = 4096;
const STICKY: u32 = 0o1000;
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// What the script has written.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Report {
    /// Its thread runs.
    Began,
    /// malloc_trim has come back, after this time.
    Trimmed(Duration),
    /// It was not called.
    Failed(String),
}

/// A script in a process's root.
#[derive(Debug)]
pub(super) struct Script {
    folder: OwnedFd,
    name: String,
    path: String,
    file: File,
    /// Where the text ends and the output begins.
    length: u64,
}

impl Script {
    /// Puts it where the process can read it, under a path that has room in `path_bytes`.
    pub(super) fn write(target: &Target, path_bytes: usize) -> Result<Self, String> {
        let pid = target.pid();
        let failed = |what: &str, errno: nix::errno::Errno| format!("{what}: {}", errno.desc());
        let root = format!("/proc/{pid}/root");
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root_folder = open(root.as_str(), flags, Mode::empty()).map_err(|errno| failed(&root, errno))?;
        let root_owner = fstat(&root_folder).map_err(|errno| failed(&root, errno))?.st_uid;
        let status = target.process().status();
        let status = status.map_err(|error| error.to_string())?;
        let mut left = Vec::new();
        for folder in FOLDERS {
            match Self::write_in(&root_folder, root_owner, folder, (status.fuid, status.fgid), pid) {
                Ok(script) if script.path.len() < path_bytes => return Ok(script),
                Ok(script) => left.push(format!("the path {} is too long", script.path)),
                Err(why) => left.push(format!("/{folder}: {why}")),
            }
        }
        Err(format!("there is no folder from which it can read a script ({})", left.join("; ")))
    }

    fn write_in(
        root: &OwnedFd,
        root_owner: u32,
        folder: &str,
        (uid, gid): (u32, u32),
        pid: i32,
    ) -> Result<Self, String> {
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_SYMLINKS);
        let opened = openat2(root, folder, how).map_err(|errno| errno.desc())?;
        let stat = fstat(&opened).map_err(|errno| errno.desc())?;
        if !is_safe(&stat, root_owner, uid) {
            return Err("other users could replace the file".to_owned());
        }
        let name = format!("ebb-trim-{pid}-{}.py", std::process::id());
        let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
        let file =
            openat(&opened, name.as_str(), flags | OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::from_bits_truncate(0o600))
                .map_err(|errno| errno.desc())?;
        let path = format!("/{folder}/{name}");
        // From here on it goes when the value does.
        let mut script = Self { folder: opened, name, file: File::from(file), length: 0, path };
        let text = format!("PATH = {:?}\n{TEXT}", script.path);
        script.length = text.len() as u64;
        let written = script.file.write_all(text.as_bytes());
        written.map_err(|error| error.to_string())?;
        if script.file.metadata().map_err(|error| error.to_string())?.uid() != uid {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            fchown(script.file.as_fd(), Some(uid), Some(gid)).map_err(|errno| errno.desc())?;
        }
        Ok(script)
    }

    /// Its path in the process's view.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn report(&self) -> Option<Report> {
        let mut bytes = vec![0; MOST_REPORTED];
        let length = self.file.read_at(&mut bytes, self.length).ok()?;
        parse(&String::from_utf8_lossy(&bytes[..length]))
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // Nothing can be done about one that stays.
        let _ = unlinkat(&self.folder, self.name.as_str(), UnlinkatFlags::NoRemoveDir);
    }
}

/// Whether only root, the owner of the process's root, or the user himself can rename the user's files in this folder.
fn is_safe(folder: &FileStat, root_owner: u32, user: u32) -> bool {
    let is_own = [0, root_owner, user].contains(&folder.st_uid);
    is_own && (folder.st_mode & WRITABLE_BY_OTHERS == 0 || folder.st_mode & STICKY != 0)
}

/// Whole lines only: the last of them.
fn parse(text: &str) -> Option<Report> {
    let (whole, _) = text.rsplit_once('\n')?;
    let line = whole.lines().rfind(|line| line.starts_with("# "))?;
    match line[2..].split_once(' ') {
        None if &line[2..] == "began" => Some(Report::Began),
        Some(("trimmed", seconds)) => {
            let seconds = seconds.parse().ok()?;
            Duration::try_from_secs_f64(seconds).ok().map(Report::Trimmed)
        }
        Some(("failed", why)) => Some(Report::Failed(why.to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_lines_count() {
        assert_eq!(parse(""), None);
        assert_eq!(parse("# beg"), None);
        assert_eq!(parse("# began\n"), Some(Report::Began));
        assert_eq!(parse("# began\n# trimmed 0.2"), Some(Report::Began));
        let trimmed = Some(Report::Trimmed(Duration::from_millis(250)));
        assert_eq!(parse("# began\n# trimmed 0.250000000\n"), trimmed);
        let failed = Some(Report::Failed("ModuleNotFoundError: No module".to_owned()));
        assert_eq!(parse("# failed ModuleNotFoundError: No module\n"), failed);
        assert_eq!(parse("# trimmed -1\n"), None);
    }

    #[test]
    fn a_folder_where_others_could_exchange_the_file_is_not_taken() {
        let folder = |mode, uid| {
            // SAFETY: a structure of integers, for which zero is a value.
            let mut stat: FileStat = unsafe { std::mem::zeroed() };
            stat.st_mode = mode;
            stat.st_uid = uid;
            stat
        };
        assert!(is_safe(&folder(0o41777, 0), 0, 1000));
        assert!(is_safe(&folder(0o40700, 1000), 0, 1000));
        assert!(is_safe(&folder(0o41777, 100_000), 100_000, 101_000));
        assert!(!is_safe(&folder(0o40777, 0), 0, 1000));
        assert!(!is_safe(&folder(0o41777, 1001), 0, 1000));
    }
}
