//! The rights of the agent: which are missing and what that costs; and the end of all others.

use std::path::Path;

use ebb_node::census;
use procfs::process::Process;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};

use crate::exit::{Exit, Failure};

/// Needed to read other users' mappings, and files under their roots.
const NEEDED: [(CapabilitySet, Right); 2] = [
    (
        CapabilitySet::SYS_PTRACE,
        Right {
            name: "CAP_SYS_PTRACE",
            costs: "processes of other users have no heap figures, only those of the kernel",
        },
    ),
    (
        CapabilitySet::DAC_READ_SEARCH,
        Right {
            name: "CAP_DAC_READ_SEARCH",
            costs: "page maps and memory of other users' processes stay closed, so their heaps are not read",
        },
    ),
];
/// The number of the first namespace of pids (PROC_PID_INIT_INO).
const FIRST_NAMESPACE: u64 = 0xEFFF_FFFC;

#[derive(Clone, Copy, Debug)]
pub struct Right {
    pub name: &'static str,
    /// The figures that are missing without it.
    pub costs: &'static str,
}

pub fn missing(cgroups: Option<&Path>) -> Vec<Right> {
    let effective = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    let mut missing: Vec<Right> =
        NEEDED.iter().filter(|(capability, _)| !effective.contains(*capability)).map(|(_, right)| *right).collect();
    let namespaces = Process::myself().and_then(|own| own.namespaces());
    let of_pids = namespaces.ok().and_then(|all| Some(all.0.get("pid".as_ref() as &std::ffi::OsStr)?.identifier));
    if of_pids.is_some_and(|number| number != FIRST_NAMESPACE) {
        missing.push(Right { name: "hostPID", costs: "only processes of this container are seen" });
    }
    if census::groups(cgroups).is_empty() {
        missing.push(Right {
            name: "cgroups",
            costs: "no memory cgroups are mounted here, so all processes count as one group (--cgroups DIR)",
        });
    }
    missing
}

/// Keeps the needed capabilities only, in this thread and in threads that it starts; an executed program could gain none.
pub fn give_up() -> Result<(), Failure> {
    let refused =
        |error: rustix::io::Errno| Failure::new(Exit::Internal, format!("capabilities cannot be given up: {error}"));
    let has = capabilities(None).map_err(refused)?;
    let needed = NEEDED.iter().fold(CapabilitySet::empty(), |all, (one, _)| all | *one);
    let kept = has.permitted & needed;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).map_err(refused)?;
    set_no_new_privs(true).map_err(refused)
}
