//! The table of explicit caches. `super::explicit_caches` makes them.

use crate::base::lock::{Lock, Rank};
use crate::base::sync::initialiser;
use crate::cache::cache::Cache;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

/// Explicit caches at most: what 12 bits of flags can name next to two meanings of their own.
pub(super) const MOST: usize = 4094;

/// See the module.
pub struct ExplicitCaches {
    /// By index; null up to the first. Written under the lock, with release, which pairs with the acquire
    /// of a look-up.
    pub(super) table: AtomicPtr<[AtomicPtr<Cache>; MOST]>,
    pub(super) changing: Lock<()>,
}

impl ExplicitCaches {
    initialiser! {
        /// None.
        pub(super) fn new() -> Self {
            Self { table: AtomicPtr::new(null_mut()), changing: Lock::new(Rank::Arenas, ()) }
        }
    }

    pub(super) fn place(&self, index: usize) -> Option<&AtomicPtr<Cache>> {
        // SAFETY: null or a table that stays.
        unsafe { self.table.load(Ordering::Acquire).as_ref() }?.get(index)
    }
}
