//! The kernel as an explicit arena sees it: the same, but address space for blocks comes in small
//! reservations that are entered into the map of owners, or from the program's own hooks.
//!
//! A hook may call malloc; the thread counts as inside an operation then, as in a signal handler. No
//! lock of the heap's own arena is held around a hook.

use super::Arena;
use super::owner_map::{OwnerMap, UNIT};
use crate::base::metadata::Metadata;
use crate::os::hooks::ExtentHooks;
use crate::os::{Discarded, Headroom, Os, OsError, PageRun, Reserved, Scarce};
use core::ffi::c_void;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;

/// Reservations double up to 1 GiB.
const MOST_DOUBLINGS: usize = 9;

/// See the module.
pub struct OwnSpace<'a, O> {
    /// The kernel.
    pub os: &'a O,
    /// The heap's own arena.
    pub own: &'a Arena,
    /// Where the map gets its nodes.
    pub metadata: &'a Metadata,
    /// Who owns which address.
    pub map: &'a OwnerMap,
    /// The arena's place among the explicit ones.
    pub owner: u16,
    /// The arena's index as the program knows it.
    pub index: u32,
    /// The most that is reserved at a time beyond what is needed.
    pub grow_limit: usize,
    /// The program's hooks; null for none. They outlive the arena.
    pub hooks: *mut ExtentHooks,
}

// SAFETY: hooks may be called from any thread, as the program promised when it set them.
unsafe impl<O: Sync> Sync for OwnSpace<'_, O> {}

impl<O: Os> OwnSpace<'_, O> {
    fn hooks(&self) -> Option<&ExtentHooks> {
        // SAFETY: null or hooks that outlive the arena.
        unsafe { self.hooks.as_ref() }
    }

    fn take(&self, bytes: usize, align: usize) -> Result<Reserved, OsError> {
        let Some(hooks) = self.hooks() else {
            return self.take_apart(bytes, align);
        };
        let alloc = hooks.alloc.ok_or(OsError::Refused)?;
        let (mut zero, mut commit) = (false, true);
        // SAFETY: as jemalloc's interface says: no address wanted, both flags are ours.
        let start = unsafe {
            alloc(self.hooks, core::ptr::null_mut(), bytes, align, &raw mut zero, &raw mut commit, self.index)
        };
        if start.is_null() {
            return Err(OsError::OutOfMemory);
        }
        let start = start as usize;
        if !start.is_multiple_of(align) {
            self.leave(start, bytes);
            return Err(OsError::Invalid);
        }
        Ok(Reserved { start, clean: zero })
    }

    /// Address space from the kernel, in no hole of the heap's own arena: where addresses were given up the
    /// kernel may put it, but look-ups would take it for that.
    fn take_apart(&self, bytes: usize, align: usize) -> Result<Reserved, OsError> {
        let first = self.os.reserve_blocks(bytes, align)?;
        if !self.own.overlaps(first.start, bytes) {
            return Ok(first);
        }
        // While the first stands, the kernel has to choose another place.
        let second = self.os.reserve_blocks(bytes, align);
        // SAFETY: reserved above, and no thread knows it.
        unsafe { self.os.release_blocks(first.start, bytes) };
        let second = second?;
        if self.own.overlaps(second.start, bytes) {
            // SAFETY: reserved above, and no thread knows it yet.
            unsafe { self.os.release_blocks(second.start, bytes) };
            return Err(OsError::OutOfMemory);
        }
        Ok(second)
    }

    /// Gives a range back that [`OwnSpace::take`] took.
    fn leave(&self, start: usize, bytes: usize) {
        let Some(hooks) = self.hooks() else {
            // SAFETY: without hooks the range came from the kernel by `take`, and the arena that ends does not use it
            // any more.
            return unsafe { self.os.release(start, bytes) };
        };
        let address = start as *mut c_void;
        // SAFETY: the range is as `alloc` gave it, and no thread uses it any more.
        unsafe {
            let stays = hooks.dalloc.is_none_or(|dalloc| dalloc(self.hooks, address, bytes, true, self.index));
            if stays && let Some(destroy) = hooks.destroy {
                destroy(self.hooks, address, bytes, true, self.index);
            }
        }
    }

    /// Gives a run's pages back by what hook goes; false if none does so that they read as zero.
    fn purge(&self, hooks: &ExtentHooks, run: &PageRun) -> bool {
        let address = run.start as *mut c_void;
        let goes = |hook: Option<crate::os::hooks::OnPages>| {
            // SAFETY: the run is in memory of `alloc`'s and no thread uses it.
            hook.is_some_and(|hook| unsafe { !hook(self.hooks, address, run.bytes, 0, run.bytes, self.index) })
        };
        if goes(hooks.decommit) {
            // Usable again at once, so that the thread that takes the pages next need not ask. A program whose
            // pages come back no more cannot go on with them.
            if !goes(hooks.commit) {
                self.write_stderr(b"ebbmalloc: a commit hook refused what decommit took\n");
                self.abort();
            }
            return true;
        }
        goes(hooks.purge_forced) || {
            goes(hooks.purge_lazy);
            false
        }
    }
}

// SAFETY: blocks lie in memory that the kernel or the program's hooks gave for this arena alone; all
// else is passed on.
unsafe impl<O: Os> Os for OwnSpace<'_, O> {
    fn page_bytes(&self) -> usize {
        self.os.page_bytes()
    }

    fn reserve(&self, bytes: usize, align: usize) -> Result<NonNull<u8>, OsError> {
        self.os.reserve(bytes, align)
    }

    fn reserve_blocks(&self, bytes: usize, align: usize) -> Result<Reserved, OsError> {
        let reserved = self.take(bytes, align.max(UNIT))?;
        let noted = self.map.set(self.os, self.metadata, reserved.start, bytes, self.owner);
        if let Err(error) = noted {
            self.map.clear(reserved.start, bytes);
            self.leave(reserved.start, bytes);
            return Err(error);
        }
        Ok(reserved)
    }

    fn region_bytes(&self, regions: usize) -> Option<usize> {
        let limit = self.grow_limit.max(UNIT) / UNIT * UNIT;
        Some((UNIT << regions.min(MOST_DOUBLINGS)).min(limit))
    }

    fn region_unit(&self) -> usize {
        UNIT
    }

    unsafe fn commit_blocks(&self, start: usize, bytes: usize) -> Result<(), OsError> {
        match self.hooks() {
            Some(_) => Ok(()),
            // SAFETY: without hooks the address space came from the kernel; the contract is passed on: the range is
            // this arena's own, as the caller says.
            None => unsafe { self.os.commit(start, bytes) },
        }
    }

    unsafe fn release_blocks(&self, start: usize, bytes: usize) {
        self.map.clear(start, bytes);
        self.leave(start, bytes);
    }

    fn settle_huge_pages(&self, start: usize, bytes: usize) {
        self.os.settle_huge_pages(start, bytes);
    }

    fn settle_huge_metadata(&self, start: usize, bytes: usize) {
        self.os.settle_huge_metadata(start, bytes);
    }

    unsafe fn commit(&self, start: usize, bytes: usize) -> Result<(), OsError> {
        // SAFETY: metadata comes from the kernel; the contract is passed on: the range is this arena's own, as the
        // caller says.
        unsafe { self.os.commit(start, bytes) }
    }

    unsafe fn release(&self, start: usize, bytes: usize) {
        // SAFETY: metadata comes from the kernel; the contract is passed on: the range is this arena's own, as the
        // caller says, and is not used any more.
        unsafe { self.os.release(start, bytes) }
    }

    unsafe fn discard(&self, runs: &[PageRun]) -> Discarded {
        let Some(hooks) = self.hooks() else {
            // SAFETY: without hooks the pages came from the kernel; the contract is passed on: the range is this
            // arena's own, as the caller says, and hold nothing that is read again.
            return unsafe { self.os.discard(runs) };
        };
        let mut done = Discarded::default();
        for run in runs {
            // Descriptors are returned by the same call, and are no memory of the hooks'.
            if self.map.owner(run.start) != Some(self.owner) {
                // SAFETY: descriptors are memory of the kernel's, and hold nothing that is read again, as the caller
                // says.
                let discarded = unsafe { self.os.discard(core::slice::from_ref(run)) };
                done.returned_bytes += discarded.returned_bytes;
                done.refused_bytes += discarded.refused_bytes;
            } else if self.purge(hooks, run) {
                done.returned_bytes += run.bytes;
            } else {
                done.refused_bytes += run.bytes;
            }
        }
        done
    }

    unsafe fn move_pages(&self, from: usize, to: usize, bytes: usize) -> Result<(), OsError> {
        match self.hooks() {
            Some(_) => Err(OsError::Refused),
            // SAFETY: both ranges came from the kernel, and are the caller's, who says that no thread uses them
            // meanwhile.
            None => unsafe { self.os.move_pages(from, to, bytes) },
        }
    }

    fn scarce(&self) -> Scarce {
        match self.hooks() {
            Some(_) => Scarce::Nothing,
            None => self.os.scarce(),
        }
    }

    fn given_unit(&self) -> usize {
        UNIT
    }

    unsafe fn give_up(&self, start: usize, bytes: usize, to: Scarce) -> Result<(), OsError> {
        // Before the kernel may put something else there, which would be taken for this arena's.
        if to == Scarce::Addresses {
            self.map.clear(start, bytes);
        }
        // SAFETY: no thread uses the range, as the caller says, and no look-up finds it any more.
        let gone = unsafe { self.os.give_up(start, bytes, to) };
        if gone.is_err() && to == Scarce::Addresses {
            self.map.set(self.os, self.metadata, start, bytes, self.owner)?;
        }
        gone
    }

    unsafe fn take_back(&self, start: usize, bytes: usize, from: Scarce) -> Result<(), OsError> {
        // SAFETY: the range was given up in the same way, as the caller says.
        unsafe { self.os.take_back(start, bytes, from)? };
        if from == Scarce::Addresses {
            self.map.set(self.os, self.metadata, start, bytes, self.owner)?;
        }
        Ok(())
    }

    fn now_ms(&self) -> u64 {
        self.os.now_ms()
    }

    fn membarrier(&self) -> bool {
        self.os.membarrier()
    }

    fn wait(&self, word: &AtomicU32, expected: u32, timeout_ms: Option<u64>) {
        self.os.wait(word, expected, timeout_ms);
    }

    fn wake(&self, word: &AtomicU32, count: u32) {
        self.os.wake(word, count);
    }

    fn yield_now(&self) {
        self.os.yield_now();
    }

    fn address_space_limit(&self) -> Option<usize> {
        self.os.address_space_limit()
    }

    fn cpus(&self) -> usize {
        self.os.cpus()
    }

    fn headroom(&self) -> Option<Headroom> {
        self.os.headroom()
    }

    fn write_stderr(&self, text: &[u8]) {
        self.os.write_stderr(text);
    }

    fn abort(&self) -> ! {
        self.os.abort()
    }
}
