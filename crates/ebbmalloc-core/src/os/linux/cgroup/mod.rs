//! The limits of the process's cgroups: how much memory is left, and the quota of CPU. Version 1,
//! version 2 and both at once; each cgroup from the process's own up to the one at the mount point.
//!
//! Everything is looked up anew each time: a process can be moved and a limit changed, so nothing is
//! remembered and no descriptor stays open. Called when the heap has grown by a good part of what
//! was left, and by the purger near the limit; never by a signal handler, never in a sandbox.

use core::ffi::CStr;

use super::super::Headroom;
use super::{Linux, memory};
use text::Version;

mod text;

/// As much of /proc/self/mountinfo as is looked at. Only what is read becomes resident.
const MOUNTS_BYTES: usize = 256 << 10;
/// As much of /proc/self/cgroup, and of a memory.stat.
const TEXT_BYTES: usize = 16 << 10;
/// Longest path of a cgroup's file.
const PATH_BYTES: usize = 1024;

impl Linux {
    /// [`super::super::Os::headroom`]: the tightest of all cgroups that the process is in.
    pub(super) fn cgroup_headroom(&self) -> Option<Headroom> {
        self.with_texts(|texts| self.least_headroom(texts))
    }

    /// Processors that the tightest quota of CPU is worth, rounded up; `None` without a quota.
    pub(super) fn cgroup_processors(&self) -> Option<usize> {
        self.with_texts(|texts| self.least_processors(texts))
    }

    /// Calls `open` with the file that tells the memory pressure of the process's cgroup; version 2 alone has it.
    pub(super) fn cgroup_pressure<T>(&self, open: impl Fn(&CStr) -> Option<T>) -> Option<T> {
        self.with_texts(|texts| {
            let mut opened = None;
            texts.each_cgroup(b"memory", |version, folder, _| {
                if version == Version::Two && opened.is_none() {
                    opened = folder.file(c"/memory.pressure").and_then(&open);
                }
            });
            opened
        })
    }

    /// Calls `work` with what the kernel tells of this process.
    fn with_texts<T>(&self, work: impl FnOnce(&mut Texts) -> Option<T>) -> Option<T> {
        // Not on the stack, which may be a small one.
        let mut scratch = Scratch::map()?;
        let (mounts, rest) = scratch.bytes().split_at_mut(MOUNTS_BYTES);
        let (cgroups, stat) = rest.split_at_mut(TEXT_BYTES);
        let read = self.read_file(c"/proc/self/cgroup", cgroups)?;
        let cgroups = cgroups.get(..read)?;
        let read = self.read_file(c"/proc/self/mountinfo", mounts)?;
        work(&mut Texts { mounts: mounts.get(..read)?, cgroups, stat })
    }

    fn least_headroom(&self, texts: &mut Texts) -> Option<Headroom> {
        let mut least: Option<Headroom> = None;
        texts.each_cgroup(b"memory", |version, folder, stat| {
            if let Some(here) = self.headroom_in(version, folder, stat)
                && least.is_none_or(|least| here.left_bytes < least.left_bytes)
            {
                least = Some(here);
            }
        });
        least
    }

    fn least_processors(&self, texts: &mut Texts) -> Option<usize> {
        let mut least: Option<usize> = None;
        texts.each_cgroup(b"cpu", |version, folder, _| {
            if let Some(here) = self.processors_in(version, folder) {
                least = Some(least.map_or(here, |least| least.min(here)));
            }
        });
        least
    }

    fn headroom_in(&self, version: Version, folder: &mut Folder, scratch: &mut [u8]) -> Option<Headroom> {
        let mut bytes = |name| self.read_text(folder, name).as_text(text::limit);
        let (limit, usage) = match version {
            Version::One => (bytes(c"/memory.limit_in_bytes")?, bytes(c"/memory.usage_in_bytes")?),
            Version::Two => {
                // Beyond `high` the kernel slows the process down: as good a reason as the other.
                let limits = [bytes(c"/memory.max"), bytes(c"/memory.high")];
                (limits.into_iter().flatten().min()?, bytes(c"/memory.current")?)
            }
        };
        let mut left = limit.saturating_sub(usage);
        // Inactive page cache is charged, but the kernel drops it before it kills. On a large machine it takes a while to
        // read how much there is, and it can only add to `left`, so it is read only if little is left.
        if left < limit / 4 {
            let key: &[u8] = match version {
                Version::One => b"total_inactive_file",
                Version::Two => b"inactive_file",
            };
            let read = self.read_file(folder.file(c"/memory.stat")?, scratch)?;
            let inactive = text::value(scratch.get(..read)?, key).unwrap_or(0);
            left = left.saturating_add(inactive).min(limit);
        }
        Some(Headroom { limit_bytes: usize::try_from(limit).ok()?, left_bytes: usize::try_from(left).ok()? })
    }

    fn processors_in(&self, version: Version, folder: &mut Folder) -> Option<usize> {
        let (quota, period) = match version {
            Version::One => (
                self.read_text(folder, c"/cpu.cfs_quota_us").as_text(text::number)?,
                self.read_text(folder, c"/cpu.cfs_period_us").as_text(text::number)?,
            ),
            Version::Two => self.read_text(folder, c"/cpu.max").as_text(text::cpu_max)?,
        };
        text::processors(quota, period)
    }

    fn read_text(&self, folder: &mut Folder, name: &CStr) -> Short {
        let mut short = Short { bytes: [0; 64], len: 0 };
        if let Some(path) = folder.file(name) {
            short.len = self.read_file(path, &mut short.bytes).unwrap_or(0);
        }
        short
    }
}

/// /proc/self/mountinfo, /proc/self/cgroup, and room for a memory.stat.
struct Texts<'a> {
    mounts: &'a [u8],
    cgroups: &'a [u8],
    stat: &'a mut [u8],
}

impl Texts<'_> {
    /// Calls `visit` with the folder of every cgroup of `controller` that the process is in.
    fn each_cgroup(&mut self, controller: &[u8], mut visit: impl FnMut(Version, &mut Folder, &mut [u8])) {
        for mount in text::mounts(self.mounts) {
            let folder = mount.path_of(self.cgroups, controller).and_then(|path| Folder::new(mount.point, path));
            let Some(mut folder) = folder else {
                continue;
            };
            loop {
                visit(mount.version, &mut folder, self.stat);
                if !folder.leave() {
                    break;
                }
            }
        }
    }
}

/// The text of a file that holds a number or two; empty if it cannot be read.
struct Short {
    bytes: [u8; 64],
    len: usize,
}

impl Short {
    fn as_text<T>(&self, parse: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
        parse(self.bytes.get(..self.len)?)
    }
}

/// The folder of a cgroup, and on the way up those of the cgroups that it lies in.
struct Folder {
    path: [u8; PATH_BYTES],
    len: usize,
    /// Length of the mount point.
    top: usize,
}

impl Folder {
    /// `path` below `point`; `None` if that is too long.
    fn new(point: &[u8], path: &[u8]) -> Option<Self> {
        let (top, len) = (point.len(), point.len() + path.len());
        let mut bytes = [0; PATH_BYTES];
        bytes.get_mut(..top)?.copy_from_slice(point);
        bytes.get_mut(top..len)?.copy_from_slice(path);
        Some(Self { path: bytes, len, top })
    }

    /// Path of the file `name`, which begins with `/`.
    fn file(&mut self, name: &CStr) -> Option<&CStr> {
        let name = name.to_bytes_with_nul();
        let end = self.len + name.len();
        self.path.get_mut(self.len..end)?.copy_from_slice(name);
        CStr::from_bytes_with_nul(self.path.get(..end)?).ok()
    }

    /// Goes to the cgroup around this one. False at the mount point.
    fn leave(&mut self) -> bool {
        let below = self.path.get(self.top..self.len).unwrap_or_default();
        match below.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => {
                self.len = self.top + slash;
                true
            }
            None => false,
        }
    }
}

/// Memory of our own for the texts, unmapped when dropped.
struct Scratch(usize);

impl Scratch {
    const BYTES: usize = MOUNTS_BYTES + 2 * TEXT_BYTES;

    fn map() -> Option<Self> {
        memory::map_anonymous(Self::BYTES).ok().map(Self)
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: mapped by `map`, as long as this, and known to no other thread.
        unsafe { core::slice::from_raw_parts_mut(self.0 as *mut u8, Self::BYTES) }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and the borrows of it have ended.
        unsafe { memory::release(self.0, Self::BYTES) };
    }
}

#[cfg(test)]
mod tests;
