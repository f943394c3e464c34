//! The kernel's reclaim of a cgroup's page cache, where it takes pages of files only.
//!
//! Version 2: `memory.reclaim`, told not to swap. Version 1: `memory.force_empty`, which would swap if it could, so
//! only where nothing can be swapped. What is anonymous must stay: that is what is measured.

use std::fs;
use std::io;
use std::path::Path;

use ebb_diagnosis::facts::trim::{Left, PageCache, Reason};
use ebb_process::cgroup::Place;
use ebb_process::snapshot::CgroupParts;

pub fn page_cache(place: &Place) -> PageCache {
    let before = place.read().parts;
    let mut result = PageCache {
        cgroup: place.path(),
        before: droppable(&before),
        after: None,
        anon_before: before.anon,
        anon_after: None,
        refused: None,
    };
    let written = request(place.version, place.is_root(), may_swap(place), result.before)
        .and_then(|(file, text)| write(&place.folder.join(file), &text));
    match written {
        Ok(()) => {
            let after = place.read().parts;
            result.after = droppable(&after);
            result.anon_after = after.anon;
        }
        Err(left) => result.refused = Some(left),
    }
    result
}

/// Pages of files that are not shared memory.
fn droppable(parts: &CgroupParts) -> Option<u64> {
    // Where the sum is by lists, shared memory is on the anonymous ones.
    match (parts.active_file, parts.inactive_file) {
        (Some(active), Some(inactive)) => Some(active + inactive),
        _ => Some(parts.file?.saturating_sub(parts.shared?)),
    }
}

/// Pure: what to write into which file, so that only pages of files go; or why nothing may be written.
fn request(version: u8, is_root: bool, may_swap: bool, bytes: Option<u64>) -> Result<(&'static str, String), Left> {
    let (reason, why, remedy) = match (version, bytes) {
        _ if is_root => (
            Reason::CannotTrim,
            "it is the root cgroup, which contains the whole machine",
            "name the cgroup of the service",
        ),
        (1, _) if may_swap => (
            Reason::CannotTrim,
            "memory.force_empty of version 1 would also swap out anonymous memory",
            "set memory.swappiness of the cgroup to 0, or use version 2",
        ),
        (1, _) => return Ok(("memory.force_empty", "0".to_owned())),
        (_, None) => (Reason::NotRead, "memory.stat does not show the amount", "look at the cgroup's folder"),
        // Also without swap: it costs nothing to say.
        (_, Some(bytes)) => return Ok(("memory.reclaim", format!("{bytes} swappiness=0"))),
    };
    Err(Left { reason, why: why.to_owned(), remedy: Some(remedy.to_owned()) })
}

fn write(path: &Path, text: &str) -> Result<(), Left> {
    fs::write(path, text).or_else(|error| match error.raw_os_error() {
        // Less could be reclaimed, or some of it was busy: the actual amount is measured.
        Some(libc::EAGAIN | libc::EBUSY) => Ok(()),
        _ => Err(failed(path, &error)),
    })
}

fn failed(path: &Path, error: &io::Error) -> Left {
    let (reason, remedy) = match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => (Reason::NoRight, "Run ebb as root, outside the container."),
        Some(libc::EINVAL) => {
            (Reason::CannotTrim, "this kernel cannot reclaim file pages only: Linux 6.11 or later can")
        }
        _ => (Reason::CannotTrim, "this kernel cannot reclaim from cgroups: Linux 5.19 or later can"),
    };
    Left { reason, why: format!("{}: {error}", path.display()), remedy: Some(remedy.to_owned()) }
}

/// Whether anonymous memory of the cgroup could go to swap.
fn may_swap(place: &Place) -> bool {
    let swappiness = fs::read_to_string(place.folder.join("memory.swappiness"));
    let has_swap = fs::read_to_string("/proc/swaps").map_or(true, |text| text.lines().count() > 1);
    has_swap && swappiness.map_or(true, |text| text.trim() != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_are_asked_for_and_the_root_never() {
        let asked = |version, is_root, swap| request(version, is_root, swap, Some(4096));
        let text = |version, swap| asked(version, false, swap).map(|(_, text)| text);
        assert_eq!(text(2, true).unwrap(), "4096 swappiness=0");
        assert_eq!(text(1, false).unwrap(), "0");
        assert_eq!(text(1, true).unwrap_err().reason, Reason::CannotTrim);
        for version in [1, 2] {
            assert!(asked(version, true, false).unwrap_err().why.contains("root"));
        }
    }

    #[test]
    fn a_kernel_that_cannot_leave_anonymous_memory_alone_is_named() {
        for (error, reason) in [(libc::EINVAL, Reason::CannotTrim), (libc::EACCES, Reason::NoRight)] {
            let left = failed(Path::new("/x"), &io::Error::from_raw_os_error(error));
            assert_eq!(left.reason, reason);
        }
    }

    /// Shared memory is in `file`, and reclaim cannot drop it.
    #[test]
    fn what_can_be_dropped_is_on_the_lists_of_files() {
        let parts = CgroupParts {
            file: Some(100),
            shared: Some(60),
            active_file: Some(10),
            inactive_file: Some(30),
            ..CgroupParts::default()
        };
        assert_eq!(droppable(&parts), Some(40));
        assert_eq!(droppable(&CgroupParts::default()), None);
    }
}
