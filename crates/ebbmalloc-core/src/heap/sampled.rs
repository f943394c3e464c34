//! Sampled blocks: the heap profile has a record of each, and the block leads to it.
//!
//! A block that is to be sampled is a large block whatever its size, so that the quick look-up of free
//! does not know it, and no other block pays for the difference. Its descriptor has the address of the
//! record, which the block's owner alone reads and writes. A record of a small block says how long the
//! block is to its user.

use super::{Access, Heap};
use crate::arena::granule::Granule;
use crate::base::lock::Wait;
use crate::cache::cache::{Cache, Entered};
use crate::cache::explicit::ExplicitArena;
use crate::cache::ration::Rations;
use crate::os::Os;
use crate::profile::{Sample, Sampled, Store};
use core::ptr::NonNull;

impl<O: Os> Heap<O> {
    /// Where the heap profile is kept.
    pub fn store(&self) -> Store<'_, O> {
        Store { os: &self.os, metadata: &self.metadata }
    }

    /// Starts rations of the calling thread's cache anew, or with `None` ends them; the slots in the cache are
    /// returned. False if the cache is not to be had now, or the caller is inside.
    ///
    /// # Safety
    /// The cache is the calling thread's, and the rations stay until others, or none, are set, or it is
    /// unmade.
    pub unsafe fn set_rations(&self, cache: &Cache, rations: Option<NonNull<Rations>>) -> bool {
        if cache.enter() != Entered::Mine {
            return false;
        }
        // SAFETY: entered just now; the rations stay as long as they are set (fn contract).
        unsafe {
            cache.drain(&self.supply(), &self.parts.bins, true);
            match rations {
                Some(rations) => {
                    Rations::make(rations);
                    cache.start_rations(rations);
                }
                None => cache.end_rations(),
            }
        }
        cache.leave();
        true
    }

    /// A large block for a request of any size, aligned to `align`, that may be sampled: in `arena`, or else
    /// where the thread is. Null if there is no memory, and in a signal handler that interrupted a request.
    pub fn allocate_apart(&self, access: Access, arena: Option<&ExplicitArena>, size: usize, align: usize) -> *mut u8 {
        match arena {
            _ if !access.may_wait() => core::ptr::null_mut(),
            Some(arena) => self.large_in(arena, access, size, align).0,
            None => self.allocate_large(access, size, align).0,
        }
    }

    /// Adds a live block to the profile. Nothing happens if it is no large block, is sampled already, or there
    /// is no memory for the record.
    ///
    /// # Safety
    /// `block` is a live block of the caller's; the thread is one of this heap's profile. The caller may
    /// wait for locks.
    pub unsafe fn sample(&self, block: *mut u8, sampled: &Sampled) {
        let Some((granule, _)) = self.large_block(block as usize) else {
            return;
        };
        // SAFETY: the descriptor of a large block whose owner is the caller.
        unsafe {
            if (*granule).touched == 0
                && let Some(sample) = self.parts.profile.add(&self.store(), sampled)
            {
                (*granule).touched = sample.as_ptr() as u64;
            }
        }
    }

    /// Usable bytes of a sampled block that is shorter than its memory.
    ///
    /// # Safety
    /// `granule` is the descriptor of a live large block.
    pub(super) unsafe fn promised_bytes(&self, granule: *mut Granule) -> Option<usize> {
        // SAFETY: the block is live (fn contract); a record lives as long as its block leads to it.
        unsafe {
            let sample = NonNull::new((*granule).touched as *mut Sample)?;
            let bytes = sample.as_ref().usable_bytes;
            (bytes != 0).then_some(bytes)
        }
    }

    /// Takes a large block out of the profile, if it is there. False if that cannot be done without
    /// waiting, and it may not wait.
    ///
    /// # Safety
    /// `granule` is the descriptor of a live large block of the caller's.
    pub(super) unsafe fn forget_sample(&self, granule: *mut Granule, wait: Wait) -> bool {
        // SAFETY: the block is live and the caller's (fn contract); a record is taken out once, since the block leads to it no more.
        unsafe {
            let Some(sample) = NonNull::new((*granule).touched as *mut Sample) else {
                return true;
            };
            let forgotten = self.parts.profile.remove(&self.store(), sample, wait);
            if forgotten {
                (*granule).touched = 0;
            }
            forgotten
        }
    }
}
