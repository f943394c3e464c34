//! What the whole machine does: processor time of all programs, and time spent waiting for memory.
//!
//! Used by trials to see what disturbs them.

use procfs::{Current, CurrentSI, KernelStats, MemoryPressure};

use super::tree::Tree;

/// Counters since the machine started.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Busy {
    /// Processors that are counted.
    pub processors: usize,
    /// Processor time of programs and of the kernel on their behalf, and what the machine below us took.
    /// Interrupts are left out: they cannot be attributed.
    pub busy_s: f64,
    /// Time in which some task waited for memory; absent where the kernel does not tell.
    pub memory_wait_s: Option<f64>,
}

/// Reads them; nothing where the counters are hidden or stand still at 0, as in some sandboxes.
pub fn busy() -> Option<Busy> {
    let stat = KernelStats::current().ok()?;
    let total = &stat.total;
    let ticks = total.user + total.nice + total.system + total.steal.unwrap_or(0);
    (ticks > 0).then(|| Busy {
        processors: stat.cpu_time.len(),
        busy_s: ticks as f64 / procfs::ticks_per_second() as f64,
        memory_wait_s: MemoryPressure::current().ok().map(|pressure| pressure.some.total as f64 / 1e6),
    })
}

/// Processor time of this process and of everything that it has started, ended children included.
pub fn own_s() -> Option<f64> {
    let tree = Tree::of(i32::try_from(std::process::id()).ok()?).ok()?;
    Some(tree.cpu_s())
}

/// Bytes of a page of the kernel that runs all of this machine's programs.
pub fn page_bytes() -> u64 {
    procfs::page_size()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn what_a_child_uses_is_the_machines_and_our_own() {
        let (machine, own) = (busy().unwrap(), own_s().unwrap());
        let spin = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done";
        assert!(Command::new("sh").args(["-c", spin]).status().unwrap().success());
        let (machine_after, own_after) = (busy().unwrap(), own_s().unwrap());
        assert!(machine.processors > 0);
        assert!(own_after > own, "{own} {own_after}");
        // A tick of each counter may be missing.
        assert!(machine_after.busy_s - machine.busy_s >= own_after - own - 0.1);
    }
}
