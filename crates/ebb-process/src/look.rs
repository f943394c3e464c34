//! How much `ebb` reads of a process, how long it looks, and why something was not read, with what opens it where the kernel
//! refuses.

use std::fmt;
use std::time::{Duration, Instant};

use ebb_inspect::permission::{self, Gate};
use ebb_inspect::{LOOK_WITHIN, Target, Unreadable, Unsupported};

/// How long the heaps of all processes of a look may take. Later ones are reported from the kernel's figures only: a pool of 50 workers
/// with five million blocks each takes as long.
pub const ALL_WITHIN: Duration = Duration::from_secs(60);

/// How much to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The kernel's figures only: cheap.
    Kernel,
    /// The heaps as well.
    Heaps,
    /// And the objects of CPython one by one, which takes seconds where there are many.
    Objects,
    /// The same, and where an allocator is about to return pages by itself, after it has done so.
    Settled,
}

/// Opens process `pid` for a reader, which has [`LOOK_WITHIN`] from here on.
pub(super) fn open(pid: i32) -> Result<Target, Unreadable> {
    Ok(Target::open(pid)?.until(Instant::now() + LOOK_WITHIN))
}

/// Why a heap, or a part of one, was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotRead {
    /// The reason, in words.
    pub why: String,
    /// What opens it, where something does.
    pub remedy: Option<String>,
}

impl NotRead {
    /// What no right opens.
    pub(super) fn because(why: impl fmt::Display) -> Self {
        Self { why: why.to_string(), remedy: None }
    }

    /// What the kernel refuses of process `pid`: names the gate that is shut.
    pub fn refused(pid: i32, why: impl fmt::Display) -> Self {
        Self::at_gate(permission::diagnose(pid).ok(), why)
    }

    /// What a reader says of process `pid`.
    pub(super) fn of(pid: i32, error: impl Into<Unsupported>) -> Self {
        match error.into() {
            error @ Unsupported::Unreadable(Unreadable::Refused) => Self::refused(pid, error),
            error => Self::because(error),
        }
    }

    fn at_gate(gate: Option<Gate>, why: impl fmt::Display) -> Self {
        match gate {
            Some(gate) => Self { why: format!("{why}: {gate}"), remedy: Some(gate.remedy()) },
            None => Self::because(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_its_gate_and_what_opens_it() {
        let refused = NotRead::at_gate(Some(Gate::YamaDescendants), "no right");
        assert_eq!(refused.why, "no right: Yama lets a process read its descendants only (ptrace_scope 1)");
        assert_eq!(refused.remedy, Some(Gate::YamaDescendants.remedy()));
        assert_eq!(NotRead::at_gate(None, "gone"), NotRead::because("gone"));
    }

    #[test]
    fn only_a_refusal_has_a_remedy() {
        let own = i32::try_from(std::process::id()).unwrap();
        let torn = Unreadable::Unmapped(7);
        assert_eq!(NotRead::of(own, torn.clone()), NotRead::because(torn));
        assert!(NotRead::of(own, Unreadable::Refused).remedy.is_some());
    }

    /// What `ebb why` said on a kernel with Yama, recorded by `ci/vm/record.sh`.
    #[test]
    fn recorded_refusals_of_a_kernel_with_yama() {
        let cases = [
            ("ordinary user", 1, Some(Gate::YamaDescendants)),
            ("ordinary user", 2, Some(Gate::YamaCapability)),
            ("ordinary user", 3, Some(Gate::YamaNobody)),
            ("root without CAP_SYS_PTRACE", 1, Some(Gate::Capabilities)),
            ("root without CAP_SYS_PTRACE", 2, Some(Gate::Capabilities)),
            ("root without CAP_SYS_PTRACE", 3, Some(Gate::Capabilities)),
            ("root", 1, None),
            ("root", 2, None),
            ("root", 3, Some(Gate::YamaNobody)),
        ];
        let text = include_str!("recorded/yama.txt");
        for (who, scope, gate) in cases {
            let title = format!("== {who}, scope {scope}\n");
            let (_, section) = text.split_once(&title).expect(&title);
            let section = section.split("\n== ").next().unwrap_or_default();
            let refused = section.lines().find(|line| line.contains("no right to"));
            match gate {
                Some(gate) => {
                    let expected = format!(": {gate}. {}", gate.remedy());
                    assert!(refused.is_some_and(|line| line.ends_with(&expected)), "{title}{refused:?}");
                }
                None => assert_eq!(refused, None, "{title}"),
            }
        }
    }
}
