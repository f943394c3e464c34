//! A seccomp filter: the calls of the kernel that change something outside of the agent fail with EPERM.
//!
//! It names what is refused, not what is allowed, so that a C library's new call for an old purpose does not end the agent.

use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, apply_filter,
};

use crate::exit::{Exit, Failure};

/// Programs, other processes, namespaces, the kernel, new connections, names and rights of files.
const REFUSED: &[i64] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_writev,
    libc::SYS_process_vm_readv,
    libc::SYS_process_madvise,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_pidfd_send_signal,
    libc::SYS_pidfd_getfd,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_kexec_load,
    libc::SYS_open_by_handle_at,
    libc::SYS_keyctl,
    libc::SYS_reboot,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_mkdirat,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_fchmodat,
    libc::SYS_fchownat,
    libc::SYS_truncate,
    libc::SYS_setxattr,
];
/// The old forms of some, which new architectures lack.
#[cfg(target_arch = "x86_64")]
const REFUSED_OLD: &[i64] = &[
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_creat,
    libc::SYS_fork,
    libc::SYS_vfork,
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_OLD: &[i64] = &[];

/// Enters the sandbox, in this thread and in threads that it starts.
pub fn enter() -> Result<(), Failure> {
    let refused = |error: &dyn std::fmt::Display| Failure::new(Exit::Internal, format!("no seccomp filter: {error}"));
    let always = REFUSED.iter().chain(REFUSED_OLD).map(|&call| (call, Vec::new()));
    let mut rules: std::collections::BTreeMap<i64, Vec<SeccompRule>> = always.collect();
    let bits = [libc::O_WRONLY, libc::O_RDWR, libc::O_CREAT].map(|bit| u64::from(bit.unsigned_abs()));
    for (call, place) in OPENS {
        let opens = bits.map(|bit| {
            let is_set = SeccompCmpOp::MaskedEq(bit);
            let condition = SeccompCondition::new(*place, SeccompCmpArgLen::Dword, is_set, bit);
            condition.and_then(|condition| SeccompRule::new(vec![condition]))
        });
        let opens: Result<Vec<SeccompRule>, _> = opens.into_iter().collect();
        rules.insert(*call, opens.map_err(|error| refused(&error))?);
    }
    let eperm = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let arch = std::env::consts::ARCH.try_into().map_err(|error| refused(&error))?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, eperm, arch)
        .and_then(seccompiler::BpfProgram::try_from)
        .map_err(|error| refused(&error))?;
    apply_filter(&filter).map_err(|error| refused(&error))
}

/// Calls that open files, and the place of their flags.
#[cfg(target_arch = "x86_64")]
const OPENS: &[(i64, u8)] = &[(libc::SYS_openat, 2), (libc::SYS_open, 1)];
#[cfg(not(target_arch = "x86_64"))]
const OPENS: &[(i64, u8)] = &[(libc::SYS_openat, 2)];
