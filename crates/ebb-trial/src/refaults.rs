//! Counts refaults from outside: pages that a process returned and touched again.
//!
//! Used by `sampler`, with what an observer sees of each process. A process whose anonymous memory has fallen and
//! rises again, up to the most that it ever had, touches again what it had; beyond that it is new. So every allocator
//! is counted alike. Memory that is returned and touched again between two samples is not seen: the count is a lower
//! bound. Pure.

use std::collections::HashMap;

/// What tells the memory of a process from all other that was there: a number may be given again, and by `exec` a
/// process becomes another program, whose memory begins anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AddressSpace {
    /// The number of its process.
    pub pid: i32,
    /// When that started, in clock ticks since boot.
    pub started_ticks: u64,
    /// Where its first stack begins: at another address after an `exec`.
    pub stack: u64,
}

/// The anonymous memory of one process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The process.
    pub space: AddressSpace,
    /// Resident pages.
    pub anon_pages: u64,
}

/// What was counted so far.
#[derive(Debug, Default)]
pub struct Refaults {
    processes: HashMap<AddressSpace, PageCounts>,
    pages: u64,
}

/// The last and the largest page count of one process.
#[derive(Debug, Clone, Copy)]
struct PageCounts {
    last_pages: u64,
    peak_pages: u64,
}

impl Refaults {
    /// Takes the next look at all processes of a tree, and gives the pages so far. A process that was not there at
    /// the look before begins with what it has now, so a forked child does not count for what it shares.
    pub fn count(&mut self, tree: &[Held]) -> u64 {
        let before = std::mem::take(&mut self.processes);
        for held in tree {
            let now = held.anon_pages;
            let counts = before.get(&held.space).copied().unwrap_or(PageCounts { last_pages: now, peak_pages: now });
            self.pages += now.min(counts.peak_pages).saturating_sub(counts.last_pages);
            let counts = PageCounts { last_pages: now, peak_pages: counts.peak_pages.max(now) };
            self.processes.insert(held.space, counts);
        }
        self.pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(pid: i32) -> AddressSpace {
        AddressSpace { pid, started_ticks: 1000, stack: 0x7ffc_0000_0000 }
    }

    fn held(pid: i32, anon_pages: u64) -> Held {
        Held { space: space(pid), anon_pages }
    }

    /// What is counted after each of these looks at one process.
    fn counts(looks: &[u64]) -> Vec<u64> {
        let mut refaults = Refaults::default();
        let count = |pages: &u64| refaults.count(&[held(7, *pages)]);
        looks.iter().map(count).collect()
    }

    #[test]
    fn a_rise_below_the_peak_counts_and_a_new_peak_does_not() {
        assert_eq!(counts(&[10, 50, 100]), [0, 0, 0], "touched first");
        let looks = [100, 30, 60, 40, 130, 20, 130];
        assert_eq!(counts(&looks), [0, 0, 30, 30, 90, 90, 200], "up to its own peak so far");
    }

    #[test]
    fn each_process_has_its_own_peak() {
        let mut refaults = Refaults::default();
        refaults.count(&[held(7, 100), held(8, 10)]);
        // Memory that one process returns and another touches for the first time leaves the sum unchanged.
        assert_eq!(refaults.count(&[held(7, 60), held(8, 50)]), 0);
        assert_eq!(refaults.count(&[held(8, 50), held(7, 90)]), 30);
    }

    #[test]
    fn a_child_and_a_number_that_is_given_again_begin_anew() {
        let mut refaults = Refaults::default();
        refaults.count(&[held(7, 100)]);
        assert_eq!(refaults.count(&[held(7, 100), held(8, 100)]), 0, "forked");
        refaults.count(&[held(7, 100), held(8, 20)]);
        let mut again = held(8, 60);
        again.space.started_ticks += 1;
        assert_eq!(refaults.count(&[held(7, 100), again]), 0, "another process");
        again.space.stack += 4096;
        again.anon_pages = 20;
        refaults.count(&[again]);
        again.space.stack += 4096;
        again.anon_pages = 60;
        assert_eq!(refaults.count(&[again]), 0, "another program");
        again.anon_pages = 30;
        refaults.count(&[again]);
        again.anon_pages = 40;
        assert_eq!(refaults.count(&[again]), 10, "which counts from there on");
    }
}
