//! The heap profile: which sampled blocks live, by the stack that allocated them, and its text.
//!
//! Used by `heap`, which takes a block out when it is freed, and by `runtime`, which decides what is
//! sampled, walks the stack and writes the dumps. All memory is metadata memory, under one lock; a
//! process without profiling has none of it.

pub mod dump;
pub mod interval;
#[cfg(all(test, loom))]
mod loom_tests;
mod records;
mod table;
#[cfg(all(test, not(loom)))]
mod tests;

pub use records::{Sample, Sampled, Thread};
pub use table::{DEPTH, WORDS};

use crate::base::lock::{Lock, Rank, Wait};
use crate::base::metadata::Metadata;
use crate::base::sync::initialiser;
use crate::os::Os;
use core::ptr::NonNull;
use table::Table;

/// See the module.
pub struct Profile {
    table: Lock<Table>,
}

/// The kernel and the memory that a profile is kept in.
pub struct Store<'a, O> {
    /// The kernel.
    pub os: &'a O,
    /// The memory.
    pub metadata: &'a Metadata,
}

impl Profile {
    /// Offset of the table in a profile.
    pub const TABLE: usize = core::mem::offset_of!(Self, table) + Lock::<Table>::VALUE;

    initialiser! {
        /// No sample.
        pub fn new() -> Self {
            Self { table: Lock::new(Rank::Profile, Table::EMPTY) }
        }
    }

    /// `prof_accum`: whether sums of what was freed are kept.
    pub fn set_accumulates<O: Os>(&self, os: &O, accumulates: bool) {
        self.table.lock(os).accumulates = accumulates;
    }

    /// How much memory stacks and samples may take, 0 for any amount.
    pub fn set_most_bytes<O: Os>(&self, os: &O, most: usize) {
        self.table.lock(os).most_bytes = most;
    }

    /// `prof_accum`.
    pub fn accumulates<O: Os>(&self, os: &O) -> bool {
        self.table.lock(os).accumulates
    }

    /// A record for the calling thread; `None` without memory.
    pub fn add_thread<O: Os>(&self, store: &Store<O>) -> Option<NonNull<Thread>> {
        let mut table = self.table.lock(store.os);
        table.add_thread(store.os, store.metadata)
    }

    /// The one record for threads that have none of their own. `None` without memory.
    pub fn everyone<O: Os>(&self, store: &Store<O>) -> Option<NonNull<Thread>> {
        self.table.lock(store.os).everyone(store.os, store.metadata)
    }

    /// The thread has ended.
    ///
    /// # Safety
    /// `thread` came from [`Profile::add_thread`] and is not used again.
    pub unsafe fn end_thread<O: Os>(&self, store: &Store<O>, thread: NonNull<Thread>) {
        let mut table = self.table.lock(store.os);
        // SAFETY: the thread came from this table and is not used again (fn contract); the lock is held.
        unsafe { table.end_thread(store.os, store.metadata, thread) }
    }

    /// Gives a thread a name; false without memory for it.
    ///
    /// # Safety
    /// `thread` came from [`Profile::add_thread`] and has not ended.
    pub unsafe fn set_name<O: Os>(&self, store: &Store<O>, thread: NonNull<Thread>, name: &[u8]) -> bool {
        let mut table = self.table.lock(store.os);
        // SAFETY: the thread came from this table and has not ended (fn contract); the lock is held.
        unsafe { table.set_name(store.os, store.metadata, thread, name) }
    }

    /// Where a thread's name lies, with a NUL after it; null if it has none.
    ///
    /// # Safety
    /// As for [`Profile::set_name`].
    pub unsafe fn name<O: Os>(&self, os: &O, thread: NonNull<Thread>) -> *const u8 {
        // SAFETY: the thread came from this table and has not ended (contract of `set_name`).
        unsafe { self.table.lock(os).name(thread) }
    }

    /// Adds a sampled block. `None` without memory for it.
    ///
    /// # Safety
    /// The thread came from [`Profile::add_thread`] and has not ended.
    pub unsafe fn add<O: Os>(&self, store: &Store<O>, sampled: &Sampled) -> Option<NonNull<Sample>> {
        // SAFETY: the thread came from this table and has not ended (fn contract); the lock is held.
        let made = unsafe { self.table.lock(store.os).add(store.os, store.metadata, sampled) };
        let (block, bytes) = sampled.block;
        made.inspect(|_| store.os.tell_sampled(block, bytes, sampled.weight.bytes))
    }

    /// Takes a sampled block out. False if the lock is held and may not be waited for; nothing has happened
    /// then.
    ///
    /// # Safety
    /// `sample` came from [`Profile::add`], and is not used again after true.
    pub unsafe fn remove<O: Os>(&self, store: &Store<O>, sample: NonNull<Sample>, wait: Wait) -> bool {
        let Some(mut table) = self.table.lock_if(store.os, wait) else {
            return false;
        };
        // SAFETY: the sample came from this table and is not used again (fn contract); the lock is held.
        let block = unsafe { table.remove(store.os, store.metadata, sample) };
        drop(table);
        store.os.tell_freed(block);
        true
    }

    /// Forgets all samples.
    pub fn reset<O: Os>(&self, store: &Store<O>) {
        self.table.lock(store.os).reset(store.os, store.metadata);
    }

    /// In the child of a fork: the lock is free. If somebody held it, the samples so far are in no sum any more.
    ///
    /// # Safety
    /// The process has no other thread, and this one is not at work on the profile.
    pub unsafe fn take_over(&self) {
        let torn = self.table.is_held();
        // SAFETY: no other thread could hold the lock or be at work on the table (fn contract).
        unsafe {
            self.table.reset();
            if torn {
                self.table.frozen_value(Table::abandon);
            }
        }
    }
}
