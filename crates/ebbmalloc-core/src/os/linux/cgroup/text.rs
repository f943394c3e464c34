//! What the kernel writes about cgroups, read: pure functions over bytes.
//!
//! Used by the reader next to this file. What is missing or not understood is `None`, never a guess.
#![forbid(unsafe_code)]

/// The two kinds of hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// A hierarchy of its own for each controller or few.
    One,
    /// The unified hierarchy.
    Two,
}

/// A mounted hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mount<'a> {
    /// Its kind.
    pub version: Version,
    /// The cgroup that is seen at the mount point, as the reader's namespace names it.
    pub root: &'a [u8],
    /// Where it is mounted.
    pub point: &'a [u8],
    /// Version 1: controllers among other words, with commas between.
    options: &'a [u8],
}

impl<'a> Mount<'a> {
    /// The mount that a line of /proc/PID/mountinfo describes, if it is one of cgroups.
    fn from_line(line: &'a [u8]) -> Option<Self> {
        let separator = line.windows(3).position(|three| three == b" - ")?;
        let mut before = line[..separator].split(|&byte| byte == b' ');
        let mut after = line[separator + 3..].split(|&byte| byte == b' ');
        let version = match after.next()? {
            b"cgroup" => Version::One,
            b"cgroup2" => Version::Two,
            _ => return None,
        };
        let root = before.nth(3)?;
        Some(Self { version, root, point: before.next()?, options: after.nth(1)? })
    }

    /// Where the cgroup of the process lies below the mount point, for `controller`: empty or a path
    /// that starts with `/`. `cgroups` is /proc/PID/cgroup. `None` if the process has no cgroup in
    /// this hierarchy, or one that cannot be seen through this mount.
    pub fn path_of(&self, cgroups: &'a [u8], controller: &[u8]) -> Option<&'a [u8]> {
        let has = |list: &[u8]| list.split(|&byte| byte == b',').any(|one| one == controller);
        if self.version == Version::One && !has(self.options) {
            return None;
        }
        let path = lines(cgroups).find_map(|line| {
            let mut parts = line.splitn(3, |&byte| byte == b':');
            let (id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let matches = match self.version {
                Version::One => has(controllers),
                Version::Two => id == b"0" && controllers.is_empty(),
            };
            matches.then_some(path)
        })?;
        let below = match self.root {
            b"/" => path,
            root => path.strip_prefix(root)?,
        };
        match below {
            b"" | b"/" => Some(b""),
            // Above what this namespace can see.
            [b'/', b'.', b'.', ..] => None,
            [b'/', ..] => Some(below),
            // The root's name is the beginning of another name.
            _ => None,
        }
    }
}

/// The mounted hierarchies among the lines of /proc/PID/mountinfo. A last line without an end was
/// cut off and does not count.
pub fn mounts(mountinfo: &[u8]) -> impl Iterator<Item = Mount<'_>> {
    lines(mountinfo).filter_map(Mount::from_line)
}

/// A limit in bytes; `None` for no limit, which is `max` or, in version 1, more than any machine has.
pub fn limit(text: &[u8]) -> Option<u64> {
    const NO_LIMIT: u64 = 1 << 60;
    number(text.trim_ascii()).filter(|&bytes| bytes < NO_LIMIT)
}

/// A plain number.
pub fn number(text: &[u8]) -> Option<u64> {
    core::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()
}

/// The value after `key ` at the beginning of a line.
pub fn value(text: &[u8], key: &[u8]) -> Option<u64> {
    lines(text).find_map(|line| number(line.strip_prefix(key)?.strip_prefix(b" ")?))
}

/// Version 2, cpu.max: microseconds of CPU in a period, and the period.
pub fn cpu_max(text: &[u8]) -> Option<(u64, u64)> {
    let mut parts = text.trim_ascii().split(|&byte| byte == b' ');
    Some((number(parts.next()?)?, number(parts.next()?)?))
}

/// Processors that a quota is worth, rounded up.
pub fn processors(quota: u64, period: u64) -> Option<usize> {
    if quota == 0 || period == 0 {
        return None;
    }
    usize::try_from(quota.div_ceil(period)).ok()
}

/// The lines that have an end.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let whole = text.iter().rposition(|&byte| byte == b'\n').unwrap_or(0);
    text[..whole].split(|&byte| byte == b'\n')
}

#[cfg(test)]
mod tests;
