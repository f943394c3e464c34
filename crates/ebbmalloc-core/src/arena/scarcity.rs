//! Free extents whose address space, or the right to write there, is given up: under a limit that
//! counts more than resident pages. Called at the end of every pass, after idle pages went.
//!
//! What is given up is in no tree and merges with nothing: its ends say that it is leaving, so that a
//! free of an address in it is still a double free. It is taken back before a region grows. Where addresses are given
//! up, the kernel may put a block of a signal handler there (`heap/outside`): a look-up asks for that first.

use super::Arena;
use super::extents::Extents;
use super::granule::{Fill, GIVEN_ADDRESSES, Granule, Kind, mark_ends};
use super::region::Region;
use crate::base::exact::u32_of;
use crate::os::{Os, OsError, Scarce};
use crate::size::GRANULE;

/// The shortest extent that is worth it (1 MiB): each run is a mapping more.
const LEAST: u32 = 16;
/// What is taken back at once, where there is as much: as a region grows.
const STEP: u32 = 64;
/// Runs at most, an eighth of the mappings that a process may have.
const MOST_RUNS: usize = 8192;

impl Arena {
    /// Gives up all clean extents that are worth it, if something is scarce. Returns how many bytes.
    pub fn give_up<O: Os>(&self, os: &O) -> usize {
        let scarce = os.scarce();
        let mut given_bytes = 0;
        match scarce {
            Scarce::Nothing => return given_bytes,
            Scarce::Addresses => self.lock(os).follow_limit(os),
            Scarce::Charge => {}
        }
        loop {
            let Some((head, base, len)) = self.lock(os).take_longest_clean(os.given_unit()) else {
                break;
            };
            let bytes = len as usize * GRANULE;
            // SAFETY: taken out of the tree under the lock, so no thread uses it.
            let gone = unsafe { os.give_up(base, bytes, scarce) }.is_ok();
            // SAFETY: taken out above.
            unsafe { self.lock(os).given_up(head, len, gone.then_some(scarce)) };
            if !gone {
                break;
            }
            given_bytes += bytes;
        }
        given_bytes
    }
}

impl Extents {
    /// Takes the longest clean extent out of its tree, as far as it is whole units of `unit` bytes.
    fn take_longest_clean(&mut self, unit: usize) -> Option<(*mut Granule, usize, u32)> {
        if self.given_runs == MOST_RUNS {
            return None;
        }
        // SAFETY: we hold the lock (`&mut self`); the tree holds heads of free extents.
        unsafe {
            let head = self.clean.last();
            if head.is_null() {
                return None;
            }
            let (base, end) = ((*head).base, (*head).base + (*head).len as usize * GRANULE);
            let start = base.next_multiple_of(unit);
            let len = u32_of((end / unit * unit).saturating_sub(start) / GRANULE);
            if len < LEAST {
                return None;
            }
            let head = self.carve_at(head, u32_of((start - base) / GRANULE), len);
            // Not to a request.
            self.fresh_granules -= len as usize;
            mark_ends(head, len, Kind::Leaving);
            self.leaving_granules += len as usize;
            Some((head, (*head).base, len))
        }
    }

    /// # Safety
    /// The granules came from `take_longest_clean`.
    unsafe fn given_up(&mut self, head: *mut Granule, len: u32, to: Option<Scarce>) {
        self.leaving_granules -= len as usize;
        // SAFETY: the granules came from `take_longest_clean` (fn contract), so they are clean and this pass's alone.
        unsafe {
            match to {
                Some(scarce) => self.list_given(head, len, scarce),
                None => self.free(head, len, Fill::Clean, 0),
            }
        }
    }

    /// # Safety
    /// The granules are in no extent, and their memory is given up to `scarce`.
    unsafe fn list_given(&mut self, head: *mut Granule, len: u32, scarce: Scarce) {
        // SAFETY: the granules are in no extent (fn contract), and the lock is held (`&mut self` comes from the
        // lock's guard), so both ends may be written.
        unsafe {
            mark_ends(head, len, Kind::Leaving);
            (*head).flags = match scarce {
                Scarce::Addresses => GIVEN_ADDRESSES,
                _ => 0,
            };
            self.given.push_front(head);
        }
        self.given_granules += len as usize;
        self.given_runs += 1;
    }

    /// Takes back at least `least` granules in a row: free and clean afterwards. False if there is no
    /// such run, or the kernel gives nothing.
    #[cold]
    pub(super) fn take_back<O: Os>(&mut self, os: &O, least: u32) -> bool {
        let mut run = self.given.first;
        while !run.is_null() {
            // SAFETY: the list holds heads of runs that were given up, and we hold the lock.
            unsafe {
                let (head, len) = (run, (*run).len);
                run = (*head).next;
                if len < least {
                    continue;
                }
                self.given.remove(head);
                self.given_granules -= len as usize;
                self.given_runs -= 1;
                let scarce = match (*head).flags & GIVEN_ADDRESSES {
                    0 => Scarce::Charge,
                    _ => Scarce::Addresses,
                };
                let base = (*head).base;
                let mut taken = least.next_multiple_of(STEP).min(len);
                let mut result = os.take_back(base, taken as usize * GRANULE, scarce);
                let unit = u32_of(os.given_unit().div_ceil(GRANULE));
                let fewest = least.next_multiple_of(unit).min(len);
                if result == Err(OsError::OutOfMemory) && taken > fewest {
                    taken = fewest;
                    result = os.take_back(base, taken as usize * GRANULE, scarce);
                }
                match result {
                    Ok(()) => {
                        os.settle_huge_pages(base, taken as usize * GRANULE);
                        if taken < len {
                            let rest = head.wrapping_add(taken as usize);
                            (*rest).base = base + taken as usize * GRANULE;
                            self.list_given(rest, len - taken, scarce);
                        }
                        self.free(head, taken, Fill::Clean, 0);
                        return true;
                    }
                    // Somebody else maps there: these addresses are lost for good.
                    Err(OsError::Invalid) => {}
                    Err(_) => {
                        self.list_given(head, len, scarce);
                        return false;
                    }
                }
            }
        }
        false
    }

    /// A region that lies in no hole of another: where addresses were given up the kernel may put it.
    pub(super) fn reserve_apart<O: Os>(&self, os: &O, granules: usize) -> Result<Region, OsError> {
        let first = Region::reserve(os, granules)?;
        if !self.overlaps(&first) {
            return Ok(first);
        }
        // While the first stands, the kernel has to choose another place.
        let second = Region::reserve(os, granules);
        first.release(os);
        match second {
            Ok(region) if self.overlaps(&region) => {
                region.release(os);
                Err(OsError::OutOfMemory)
            }
            second => second,
        }
    }

    fn overlaps(&self, region: &Region) -> bool {
        let end = |region: &Region| region.base + region.granules * GRANULE;
        self.regions[..self.count].iter().any(|other| other.base < end(region) && region.base < end(other))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::lock::Wait;
    use crate::os::fake::{Call, Fake};

    #[test]
    fn a_refused_block_leaves_no_charge_for_its_descriptors() {
        let os = Fake::new(4096);
        let arena = Arena::new();
        assert!(arena.allocate_large(&os, 1 << 20, 1, 16, Wait::Yes).is_some());
        let before = os.record().committed_bytes;
        // Of the three commits (map, descriptors, blocks) one is refused: for the whole step, and for what is needed.
        for refused in 0..3 {
            os.fail(Call::Commit, refused, 1, OsError::OutOfMemory);
            os.fail(Call::Commit, 2 * refused + 1, 1, OsError::OutOfMemory);
            let block = arena.allocate_large(&os, 30 << 30, 1, 17, Wait::Yes);
            assert!(block.is_none(), "commit {refused} was refused");
            assert_eq!(os.record().committed_bytes, before);
            os.heal();
        }
        assert!(arena.allocate_large(&os, 1 << 30, 1, 17, Wait::Yes).is_some());
        arena.lock(&os).validate();
    }

    #[test]
    fn what_is_given_up_is_taken_back_in_parts() {
        for scarce in [Scarce::Charge, Scarce::Addresses] {
            let os = Fake::new(4096);
            let arena = Arena::new();
            let block = arena.allocate_large(&os, 32 << 20, 1, 16, Wait::Yes);
            let start = block.expect("memory").start;
            let head = arena.granule_of(start).expect("a block of the arena");
            // SAFETY: a live block, freed once.
            assert!(unsafe { arena.free_large(&os, head, start, 16, Wait::Yes) });
            arena.purge(&os, 20, true);
            assert_eq!(arena.give_up(&os), 0, "nothing is scarce");
            os.set_scarce(scarce);
            let before = os.record().committed_bytes;
            assert!(arena.give_up(&os) >= 32 << 20);
            assert!(os.record().committed_bytes <= before - (32 << 20));
            arena.lock(&os).validate();

            let small = arena.allocate_large(&os, 1 << 20, 1, 21, Wait::Yes);
            assert!(small.expect("taken back").start >= start);
            assert!(os.record().committed_bytes < before - (20 << 20));
            let reserved = os.record().reserved_bytes;
            assert!(arena.allocate_large(&os, 20 << 20, 1, 21, Wait::Yes).is_some());
            assert_eq!(os.record().reserved_bytes, reserved);
            arena.lock(&os).validate();
        }
    }
}
