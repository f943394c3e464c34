//! Why the memory of a process is closed to us, and the one thing that opens it.
//!
//! Opening `/proc/PID/mem` takes two rights: that of the file, which belongs to the process's user, and that of a debugger
//! (PTRACE_MODE_ATTACH_FSCREDS). The kernel answers EACCES or EPERM and no more. What it checked can be looked up one after the other,
//! in its order: user and group, a process that made itself unreadable, capabilities beyond ours, Yama. The order matters: the
//! first gate that is shut is the one to open.

use std::os::unix::fs::MetadataExt;

use procfs::process::{Process, Status};

use crate::memory::Unreadable;
use crate::target::reason;

/// The capability that passes every gate but the files' owner, CAP_SYS_PTRACE, as a bit of a capability mask.
const SYS_PTRACE: u64 = 1 << 19;
/// Either of these opens other users' files: CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH.
const READS_FILES: u64 = 1 << 1 | 1 << 2;

/// What keeps us from the memory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Gate {
    /// It runs as another user.
    #[error("it runs as another user (uid {uid})")]
    User {
        /// The user it runs as.
        uid: u32,
    },
    /// It is in another user namespace, where our capabilities do not count.
    #[error("it is in another user namespace")]
    Namespace,
    /// It changed its user or group without exec, or switched itself off for debuggers.
    #[error("it is not dumpable: it changed its user or group without exec, or set this itself")]
    NonDumpable,
    /// It has capabilities that we do not have.
    #[error("it has capabilities that this process has not")]
    Capabilities,
    /// Yama allows a debugger its own descendants only (`ptrace_scope` 1).
    #[error("Yama lets a process read its descendants only (ptrace_scope 1)")]
    YamaDescendants,
    /// Yama allows debugging with CAP_SYS_PTRACE only (`ptrace_scope` 2).
    #[error("Yama asks for CAP_SYS_PTRACE (ptrace_scope 2)")]
    YamaCapability,
    /// Yama allows no process to debug another, until the next boot (`ptrace_scope` 3).
    #[error("Yama allows it to nobody (ptrace_scope 3)")]
    YamaNobody,
    /// Its memory is a file of another user, and we may be its debugger, but may not open its files.
    #[error("its memory is a file of uid {uid}, and this process has no CAP_DAC_READ_SEARCH")]
    Files {
        /// The user that the file belongs to.
        uid: u32,
    },
    /// None of the above: a security module's policy.
    #[error("a security module refuses it")]
    Policy,
}

impl Gate {
    /// The one thing to do, as a sentence.
    pub fn remedy(&self) -> String {
        let remedy = match self {
            Self::User { .. } => "Run ebb as that user, or as root (in a container with CAP_SYS_PTRACE).",
            Self::Namespace => "Run ebb as root outside the container, or as the process's user inside it.",
            Self::NonDumpable | Self::Capabilities => "Run ebb as root (CAP_SYS_PTRACE).",
            Self::YamaDescendants | Self::YamaCapability => {
                "Run ebb as root (CAP_SYS_PTRACE), or set kernel.yama.ptrace_scope=0."
            }
            Self::YamaNobody => "Only a boot with another kernel.yama.ptrace_scope opens it.",
            Self::Files { .. } => "Run ebb as that user, or with CAP_DAC_READ_SEARCH and CAP_SYS_PTRACE.",
            Self::Policy => "Look for a denial in the audit log (SELinux, AppArmor) and allow ptrace.",
        };
        remedy.to_owned()
    }
}

/// What the kernel looks at, for us and for the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Our user where files are concerned.
    pub own_uid: u32,
    /// Our group where files are concerned.
    pub own_gid: u32,
    /// Our capabilities in force.
    pub own_capabilities: u64,
    /// Real, effective and saved user of the process.
    pub uids: [u32; 3],
    /// Real, effective and saved group of the process.
    pub gids: [u32; 3],
    /// Capabilities that the process may use.
    pub capabilities: u64,
    /// The user that its files in `/proc` belong to: its own, or root while it is not dumpable.
    pub files_uid: u32,
    /// Whether its files in `/proc` belong to it.
    pub dumpable: bool,
    /// Whether it is in our user namespace, where that can be seen.
    pub same_namespace: Option<bool>,
    /// Yama's `ptrace_scope`, where there is Yama.
    pub yama: Option<u8>,
}

/// The first gate that is shut, for a process whose memory the kernel refused to us.
pub fn gate(seen: &Credentials) -> Gate {
    let privileged = seen.own_capabilities & SYS_PTRACE != 0;
    let same_user =
        seen.uids.iter().all(|uid| *uid == seen.own_uid) && seen.gids.iter().all(|gid| *gid == seen.own_gid);
    let opens_files = seen.own_capabilities & READS_FILES != 0 || seen.files_uid == seen.own_uid;
    if privileged {
        return match seen.yama {
            Some(3) => Gate::YamaNobody,
            _ if !opens_files => Gate::Files { uid: seen.files_uid },
            // The capability would do in our namespace.
            _ if seen.same_namespace != Some(true) => Gate::Namespace,
            _ => Gate::Policy,
        };
    }
    if !same_user {
        return Gate::User { uid: seen.uids[1] };
    }
    if !seen.dumpable {
        return Gate::NonDumpable;
    }
    if seen.same_namespace == Some(false) {
        return Gate::Namespace;
    }
    if seen.capabilities & !seen.own_capabilities != 0 {
        return Gate::Capabilities;
    }
    match seen.yama {
        Some(1) => Gate::YamaDescendants,
        Some(2) => Gate::YamaCapability,
        Some(3..) => Gate::YamaNobody,
        _ => Gate::Policy,
    }
}

impl Credentials {
    /// Looks them up for process `pid`.
    pub fn read(pid: i32) -> Result<Self, Unreadable> {
        let own = Process::myself().and_then(|own| own.status()).map_err(reason)?;
        let process = Process::new(pid).map_err(reason)?;
        let its: Status = process.status().map_err(reason)?;
        // The folder itself belongs to the process's user always.
        let owner = std::fs::metadata(format!("/proc/{pid}/stat")).map_err(|error| Unreadable::from_io(&error))?;
        let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/user")).ok();
        // Where memory is closed the link is as well. What a namespace maps is open; two that map alike may be one.
        let map = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/uid_map")).ok();
        let maps_differ = || Some(map(&pid.to_string())? != map("self")?);
        Ok(Self {
            own_uid: own.fuid,
            own_gid: own.fgid,
            own_capabilities: own.capeff,
            uids: [its.ruid, its.euid, its.suid],
            gids: [its.rgid, its.egid, its.sgid],
            capabilities: its.capprm,
            files_uid: owner.uid(),
            dumpable: owner.uid() == its.euid && owner.gid() == its.egid,
            same_namespace: namespace(&pid.to_string())
                .zip(namespace("self"))
                .map(|(its, own)| its == own)
                .or_else(|| maps_differ()?.then_some(false)),
            yama: std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope")
                .ok()
                .and_then(|text| text.trim().parse().ok()),
        })
    }
}

/// The gate that keeps us from process `pid`.
pub fn diagnose(pid: i32) -> Result<Gate, Unreadable> {
    Credentials::read(pid).map(|seen| gate(&seen))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One's own ordinary process under Yama's default.
    fn ordinary() -> Credentials {
        Credentials {
            own_uid: 1000,
            own_gid: 1000,
            own_capabilities: 0,
            uids: [1000; 3],
            gids: [1000; 3],
            capabilities: 0,
            files_uid: 1000,
            dumpable: true,
            same_namespace: Some(true),
            yama: Some(1),
        }
    }

    #[test]
    fn the_first_shut_gate_is_named() {
        let with = |change: fn(&mut Credentials)| {
            let mut seen = ordinary();
            change(&mut seen);
            gate(&seen)
        };
        assert_eq!(gate(&ordinary()), Gate::YamaDescendants);
        assert_eq!(with(|seen| seen.yama = Some(2)), Gate::YamaCapability);
        assert_eq!(with(|seen| seen.yama = Some(3)), Gate::YamaNobody);
        assert_eq!(with(|seen| seen.yama = None), Gate::Policy);
        assert_eq!(with(|seen| seen.uids = [0; 3]), Gate::User { uid: 0 });
        // A user that was changed half way: the saved one still differs.
        assert_eq!(with(|seen| seen.uids = [1000, 1000, 0]), Gate::User { uid: 1000 });
        assert_eq!(with(|seen| seen.dumpable = false), Gate::NonDumpable);
        assert_eq!(with(|seen| seen.same_namespace = Some(false)), Gate::Namespace);
        assert_eq!(with(|seen| seen.capabilities = 1 << 10), Gate::Capabilities);
    }

    #[test]
    fn the_capability_passes_all_but_the_last_gates() {
        let mut root = ordinary();
        root.own_capabilities = u64::MAX;
        root.uids = [33; 3];
        root.dumpable = false;
        assert_eq!(gate(&root), Gate::Policy);
        root.yama = Some(3);
        assert_eq!(gate(&root), Gate::YamaNobody);
        root.yama = None;
        root.same_namespace = None;
        assert_eq!(gate(&root), Gate::Namespace);
    }

    /// What a container's root has after `--cap-drop ALL --cap-add SYS_PTRACE`.
    #[test]
    fn a_debugger_may_lack_the_right_to_the_file() {
        let mut seen = ordinary();
        seen.own_capabilities = SYS_PTRACE;
        seen.uids = [33; 3];
        seen.files_uid = 33;
        seen.yama = None;
        assert_eq!(gate(&seen), Gate::Files { uid: 33 });
        for right in [1 << 1, 1 << 2] {
            seen.own_capabilities = SYS_PTRACE | right;
            assert_eq!(gate(&seen), Gate::Policy);
        }
    }

    #[test]
    fn credentials_of_this_process_are_its_own() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let seen = Credentials::read(pid).unwrap();
        assert_eq!(seen.uids[0], seen.own_uid);
        assert_eq!(seen.same_namespace, Some(true));
        assert!(seen.dumpable);
    }
}
