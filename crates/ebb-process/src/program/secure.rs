//! Whether the kernel will start a program in secure mode (`AT_SECURE`), in which the loader ignores
//! `LD_PRELOAD`: the program gains rights that its caller has not.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{Gid, Uid};

/// Rights that a program gains when it is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// The set-uid bit, with an owner who is not the caller.
    SetUid,
    /// The set-gid bit, with a group that is not the caller's.
    SetGid,
    /// Capabilities stored with the file.
    Capabilities,
}

impl fmt::Display for Privilege {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Privilege::SetUid => "set-uid",
            Privilege::SetGid => "set-gid",
            Privilege::Capabilities => "given capabilities (setcap)",
        })
    }
}

/// What counts about a file and its caller.
#[derive(Clone, Copy, Debug)]
struct Facts {
    mode: u32,
    owner: (u32, u32),
    caller: (u32, u32),
    capabilities: bool,
    /// The mount or the caller forbids that anybody gains anything.
    ineffective: bool,
}

/// The right that the program at `path` gains when this process executes it, if any.
pub fn privilege_gained(path: &Path) -> Option<Privilege> {
    let meta = fs::metadata(path).ok()?;
    let forbidden_by_mount = statvfs(path).is_ok_and(|mount| mount.flags().contains(FsFlags::ST_NOSUID));
    let forbidden_by_caller = nix::sys::prctl::get_no_new_privs().unwrap_or(false);
    gained(Facts {
        mode: meta.mode(),
        owner: (meta.uid(), meta.gid()),
        caller: (Uid::current().as_raw(), Gid::current().as_raw()),
        capabilities: matches!(xattr::get_deref(path, "security.capability"), Ok(Some(_))),
        ineffective: forbidden_by_mount || forbidden_by_caller,
    })
}

fn gained(facts: Facts) -> Option<Privilege> {
    const ROOT: u32 = 0;
    if facts.ineffective {
        return None;
    }
    if facts.mode & libc::S_ISUID != 0 && facts.owner.0 != facts.caller.0 {
        return Some(Privilege::SetUid);
    }
    // Without the group's execute bit, set-gid means mandatory locking and changes no group.
    let set_gid = libc::S_ISGID | libc::S_IXGRP;
    if facts.mode & set_gid == set_gid && facts.owner.1 != facts.caller.1 {
        return Some(Privilege::SetGid);
    }
    // Root has all of them anyway, so the kernel sees no gain.
    if facts.capabilities && facts.caller.0 != ROOT {
        return Some(Privilege::Capabilities);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: Facts =
        Facts { mode: 0o755, owner: (0, 0), caller: (1000, 1000), capabilities: false, ineffective: false };

    #[test]
    fn only_a_gain_of_rights_counts() {
        assert_eq!(gained(USER), None);
        let set_uid = Facts { mode: 0o4755, ..USER };
        assert_eq!(gained(set_uid), Some(Privilege::SetUid));
        assert_eq!(gained(Facts { owner: USER.caller, ..set_uid }), None);
        assert_eq!(gained(Facts { ineffective: true, ..set_uid }), None);
    }

    #[test]
    fn set_gid_needs_the_execute_bit_of_the_group() {
        let mode = |mode| gained(Facts { mode, ..USER });
        assert_eq!(mode(0o2755), Some(Privilege::SetGid));
        assert_eq!(mode(0o2745), None);
    }

    #[test]
    fn capabilities_are_no_gain_for_root() {
        let with = Facts { capabilities: true, ..USER };
        assert_eq!(gained(with), Some(Privilege::Capabilities));
        assert_eq!(gained(Facts { caller: (0, 0), ..with }), None);
    }
}
