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
mod tests {
    use super::*;

    /// A host with version 1, as recorded on one with Linux 6.18 (a hybrid: version 2 without controllers).
    const HYBRID_MOUNTS: &[u8] = b"23 1 254:0 / / rw,relatime - ext4 /dev/root rw\n\
    31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
    32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
    35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
    41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
    const HYBRID_CGROUPS: &[u8] = b"9:name=systemd:/\n4:memory:/service/one\n2:cpuacct:/\n1:cpu:/\n0::/two\n";

    fn paths(mounts_text: &[u8], cgroups: &[u8], controller: &[u8]) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        mounts(mounts_text)
            .filter_map(|mount| {
                let path = mount.path_of(cgroups, controller)?;
                Some((text(mount.point), text(path)))
            })
            .collect()
    }

    fn pairs(wanted: &[(&str, &str)]) -> Vec<(String, String)> {
        let own = |&(point, path): &(&str, &str)| (point.to_owned(), path.to_owned());
        wanted.iter().map(own).collect()
    }

    #[test]
    fn a_hybrid_host_is_looked_at_in_both_hierarchies() {
        assert_eq!(
            paths(HYBRID_MOUNTS, HYBRID_CGROUPS, b"memory"),
            pairs(&[("/sys/fs/cgroup/memory", "/service/one"), ("/sys/fs/cgroup/unified", "/two")])
        );
        // The process is at the top of this one.
        assert_eq!(paths(HYBRID_MOUNTS, HYBRID_CGROUPS, b"cpu")[0], ("/sys/fs/cgroup/cpu".into(), String::new()));
    }

    #[test]
    fn controllers_that_share_a_hierarchy_are_found_by_whole_names() {
        let mounts = b"30 25 0:26 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";
        let cgroups = b"4:cpu,cpuacct:/a\n";
        let found = pairs(&[("/sys/fs/cgroup/cpu,cpuacct", "/a")]);
        assert_eq!(paths(mounts, cgroups, b"cpu"), found);
        assert_eq!(paths(mounts, cgroups, b"cpuacct"), found);
        assert_eq!(paths(mounts, cgroups, b"cpua"), []);
        assert_eq!(paths(mounts, cgroups, b"memory"), []);
    }

    /// Docker without a namespace for cgroups: the mount shows the container's cgroup alone, the process
    /// sees its path from the host's root.
    #[test]
    fn the_part_above_the_mounts_root_is_not_looked_for() {
        let mounts = b"800 790 0:32 /docker/ab /sys/fs/cgroup/memory ro,nosuid master:11 - cgroup cgroup rw,memory\n";
        let at = |cgroups: &[u8]| paths(mounts, cgroups, b"memory");
        assert_eq!(at(b"5:memory:/docker/ab\n"), pairs(&[("/sys/fs/cgroup/memory", "")]));
        assert_eq!(at(b"5:memory:/docker/ab/inner\n"), pairs(&[("/sys/fs/cgroup/memory", "/inner")]));
        assert_eq!(at(b"5:memory:/docker/abc\n"), [], "another container");
        assert_eq!(at(b"5:memory:/\n"), []);
    }

    #[test]
    fn a_cgroup_outside_the_namespace_is_not_looked_for() {
        let mounts = b"500 490 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup rw,nsdelegate\n";
        assert_eq!(paths(mounts, b"0::/../other\n", b"memory"), []);
        assert_eq!(paths(mounts, b"0::/\n", b"memory"), pairs(&[("/sys/fs/cgroup", "")]));
    }

    #[test]
    fn lines_that_are_cut_off_or_odd_do_not_count() {
        let cut = b"500 490 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup rw";
        assert_eq!(mounts(cut).count(), 0);
        for odd in [&b""[..], b"\n\n", b" - \n", b"1 - cgroup2\n", b"1 2 3 / - cgroup2 a b\n"] {
            assert_eq!(mounts(odd).count(), 0, "{odd:?}");
        }
        let mounts_text = b"500 490 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        for odd in [&b""[..], b"0::/x", b"0\n", b"0:\n", b"1::/x\n"] {
            assert_eq!(paths(mounts_text, odd, b"memory"), [], "{odd:?}");
        }
    }

    #[test]
    fn numbers_limits_and_quotas() {
        assert_eq!(limit(b"268435456\n"), Some(268_435_456));
        assert_eq!(limit(b"0\n"), Some(0));
        assert_eq!(limit(b"max\n"), None);
        assert_eq!(limit(b"9223372036854771712\n"), None);
        assert_eq!(limit(b""), None);
        assert_eq!(number(b"-1\n"), None);
        assert_eq!(cpu_max(b"max 100000\n"), None);
        assert_eq!(cpu_max(b"150000 100000\n"), Some((150_000, 100_000)));
        assert_eq!(processors(150_000, 100_000), Some(2));
        assert_eq!(processors(200_000, 100_000), Some(2));
        assert_eq!(processors(1_000, 100_000), Some(1));
        assert_eq!(processors(1_000, 0), None);
    }

    #[test]
    fn a_value_is_found_by_its_whole_name() {
        let stat = b"inactive_file_odd 1\ntotal_inactive_file 2\ninactive_file 3\nslab";
        assert_eq!(value(stat, b"inactive_file"), Some(3));
        assert_eq!(value(stat, b"total_inactive_file"), Some(2));
        assert_eq!(value(stat, b"slab"), None);
    }
}
