//! The live samples, by the stack that allocated them and by thread.
//!
//! All of it lies in metadata memory and is changed under the one lock of [`super::Profile`].

use super::interval::Weight;
use super::records::{Printed, Sample, Sampled, Stack, Sums, Tally, Thread, give_back, hash_of, piece_bytes, place};
use crate::base::exact::usize_of;
use crate::base::lock::Wait;
use crate::base::metadata::Metadata;
use crate::os::Os;
use core::ptr::{NonNull, null_mut};
use ebb_stats::profile::BUCKETS;

/// Return addresses, and words, that are kept of a stack.
pub use ebb_stats::profile::{DEPTH, WORDS};

type Buckets = [*mut Stack; BUCKETS];

/// See the module.
#[repr(C)]
pub struct Table {
    /// Stacks by hash; null until the first. First, for readers in other processes.
    buckets: *mut Buckets,
    /// Samples that found no room. Second, for the same readers.
    refused: u64,
    threads: *mut Thread,
    next_thread: u64,
    /// A record for threads that have none of their own; null until it is needed.
    everyone: *mut Thread,
    /// Counted up by a reset: samples of an older one are in no sum.
    epoch: u64,
    /// `prof_accum`: sums of what was freed are kept.
    pub accumulates: bool,
    /// Memory for stacks, tallies and samples, 0 for any amount; what else is sampled is in no sum.
    pub most_bytes: usize,
    used_bytes: usize,
}

// SAFETY: the pointers lead to memory that only the holder of the lock touches.
unsafe impl Send for Table {}

impl Table {
    /// No sample.
    pub const EMPTY: Self = Self {
        buckets: null_mut(),
        refused: 0,
        threads: null_mut(),
        next_thread: 0,
        everyone: null_mut(),
        epoch: 0,
        accumulates: false,
        most_bytes: 0,
        used_bytes: 0,
    };

    /// A record for a thread that is sampled for the first time.
    pub fn add_thread<O: Os>(&mut self, os: &O, metadata: &Metadata) -> Option<NonNull<Thread>> {
        let thread = Thread {
            next: self.threads,
            number: self.next_thread,
            ended: false,
            tallies: 0,
            name: null_mut(),
            name_bytes: 0,
            printed: Printed::default(),
        };
        self.threads = place(os, metadata, thread)?;
        self.next_thread += 1;
        NonNull::new(self.threads)
    }

    /// The record for threads that have none of their own.
    pub fn everyone<O: Os>(&mut self, os: &O, metadata: &Metadata) -> Option<NonNull<Thread>> {
        if self.everyone.is_null() {
            self.everyone = self.add_thread(os, metadata)?.as_ptr();
        }
        NonNull::new(self.everyone)
    }

    /// The thread has ended; its record goes with its last sample.
    ///
    /// # Safety
    /// `thread` came from [`Table::add_thread`] and is not used again.
    pub unsafe fn end_thread<O: Os>(&mut self, os: &O, metadata: &Metadata, thread: NonNull<Thread>) {
        // SAFETY: the thread is in the table and is not used again (fn contract); `&mut self` comes from the lock's
        // guard.
        unsafe {
            (*thread.as_ptr()).ended = true;
            self.drop_thread_if_unused(os, metadata, thread.as_ptr());
        }
    }

    /// # Safety
    /// `thread` is in the list.
    unsafe fn drop_thread_if_unused<O: Os>(&mut self, os: &O, metadata: &Metadata, thread: *mut Thread) {
        // SAFETY: the thread is in the list (fn contract), all of whose records are valid under the lock.
        unsafe {
            if !(*thread).ended || (*thread).tallies > 0 {
                return;
            }
            let mut link = &raw mut self.threads;
            while *link != thread {
                link = &raw mut (**link).next;
            }
            *link = (*thread).next;
            Self::free_name(os, metadata, thread);
            give_back(os, metadata, thread);
        }
    }

    /// # Safety
    /// `thread` is in the list.
    unsafe fn free_name<O: Os>(os: &O, metadata: &Metadata, thread: *mut Thread) {
        // SAFETY: `set_name` made the piece, one byte longer than the name.
        unsafe {
            if let Some(name) = NonNull::new((*thread).name) {
                metadata.free(os, name, (*thread).name_bytes + 1, false);
            }
            (*thread).name = null_mut();
        }
    }

    /// Gives a thread a name; false without memory for it. The name ends with a NUL where it lies.
    ///
    /// # Safety
    /// `thread` came from [`Table::add_thread`] and has not ended.
    pub unsafe fn set_name<O: Os>(
        &mut self,
        os: &O,
        metadata: &Metadata,
        thread: NonNull<Thread>,
        name: &[u8],
    ) -> bool {
        let Some(place) = metadata.allocate(os, name.len() + 1, Wait::Yes) else {
            return false;
        };
        // SAFETY: the thread is in the table (fn contract); the new piece is ours and long enough.
        unsafe {
            Self::free_name(os, metadata, thread.as_ptr());
            place.copy_from_nonoverlapping(NonNull::from(name).cast(), name.len());
            place.add(name.len()).write(0);
            (*thread.as_ptr()).name = place.as_ptr();
            (*thread.as_ptr()).name_bytes = name.len();
        }
        true
    }

    /// Where a thread's name lies; null if it has none.
    ///
    /// # Safety
    /// As for [`Table::set_name`].
    pub unsafe fn name(&self, thread: NonNull<Thread>) -> *const u8 {
        // SAFETY: the thread is in the table (contract of `set_name`), which the lock keeps.
        unsafe { (*thread.as_ptr()).name }
    }

    /// Adds a sampled block. `None` without memory for it.
    ///
    /// # Safety
    /// Its thread came from [`Table::add_thread`] and has not ended.
    pub unsafe fn add<O: Os>(&mut self, os: &O, metadata: &Metadata, sampled: &Sampled) -> Option<NonNull<Sample>> {
        let Sampled { thread, frames, weight, usable_bytes, block: (block, _) } = *sampled;
        let Some(stack) = self.stack(os, metadata, &frames[..frames.len().min(WORDS)]) else {
            self.refused += 1;
            return None;
        };
        // SAFETY: the thread is in the table (fn contract), and so is `stack`, which was found just now.
        let tally = unsafe { self.tally(os, metadata, stack, thread.as_ptr()) };
        let epoch = self.epoch;
        let sample = Sample { tally: tally.unwrap_or(null_mut()), epoch, weight, usable_bytes, block };
        let made = match tally {
            Some(_) if self.takes(size_of::<Sample>()) => place(os, metadata, sample),
            _ => None,
        };
        // SAFETY: found or made just now, under the lock.
        unsafe {
            if made.is_some()
                && let Some(tally) = tally
            {
                self.used_bytes += piece_bytes(size_of::<Sample>());
                (*tally).samples += 1;
                (*tally).sums.live.add(weight);
                (*tally).sums.all.add(weight);
            } else {
                self.refused += 1;
                // Whatever was made on the way goes again.
                match tally {
                    Some(tally) => self.drop_if_unused(os, metadata, tally),
                    None => self.drop_stack_if_unused(os, metadata, stack),
                }
            }
        }
        made.and_then(NonNull::new)
    }

    /// Takes a sampled block out, which is freed; its address.
    ///
    /// # Safety
    /// `sample` came from [`Table::add`], and is not used again.
    pub unsafe fn remove<O: Os>(&mut self, os: &O, metadata: &Metadata, sample: NonNull<Sample>) -> usize {
        // SAFETY: the sample is live (fn contract), and one of this epoch leads to a tally of the table.
        unsafe {
            let Sample { tally, epoch, weight, block, .. } = *sample.as_ptr();
            give_back(os, metadata, sample.as_ptr());
            if epoch == self.epoch {
                self.used_bytes -= piece_bytes(size_of::<Sample>());
                (*tally).samples -= 1;
                (*tally).sums.live.sub(weight);
                self.drop_if_unused(os, metadata, tally);
            }
            block
        }
    }

    /// Forgets all samples: what lives now is counted no more.
    pub fn reset<O: Os>(&mut self, os: &O, metadata: &Metadata) {
        self.epoch += 1;
        self.for_each_stack(&mut |table, stack| {
            // SAFETY: in the table, under the lock; no thread knows a tally of the last epoch any more.
            unsafe {
                let mut tally = (*stack).tallies;
                while !tally.is_null() {
                    let next = (*tally).next;
                    table.drop_tally(os, metadata, tally);
                    tally = next;
                }
                table.drop_stack_if_unused(os, metadata, stack);
            }
        });
        // Samples of before count no more.
        (self.refused, self.used_bytes) = (0, 0);
    }

    /// Whether a piece of `bytes` may be added.
    fn takes(&self, bytes: usize) -> bool {
        self.most_bytes == 0 || self.used_bytes + piece_bytes(bytes) <= self.most_bytes
    }

    /// In the child of a fork that found the table half changed: its stacks are lost, and samples of before are in no
    /// sum. Threads stay, since links to them change in one store each.
    pub fn abandon(&mut self) {
        self.epoch += 1;
        self.buckets = null_mut();
        self.used_bytes = 0;
    }

    /// The stack with these addresses, made if there is none.
    fn stack<O: Os>(&mut self, os: &O, metadata: &Metadata, frames: &[usize]) -> Option<*mut Stack> {
        if self.buckets.is_null() {
            self.buckets = place(os, metadata, [null_mut(); BUCKETS])?;
        }
        let hash = hash_of(frames);
        // SAFETY: the table is there; all stacks in it are valid, under the lock.
        unsafe {
            let bucket = self.bucket(hash);
            let mut at = *bucket;
            while !at.is_null() {
                if (*at).hash == hash && Stack::frames(at) == frames {
                    return Some(at);
                }
                at = (*at).next;
            }
            let bytes = Stack::bytes(frames.len());
            if !self.takes(bytes) {
                return None;
            }
            let stack = metadata.allocate(os, bytes, Wait::Yes)?.cast::<Stack>().as_ptr();
            stack.write(Stack { next: *bucket, hash, depth: frames.len(), tallies: null_mut() });
            Stack::first_frame(stack).copy_from_nonoverlapping(frames.as_ptr(), frames.len());
            *bucket = stack;
            self.used_bytes += piece_bytes(bytes);
            Some(stack)
        }
    }

    /// # Safety
    /// There are buckets.
    unsafe fn bucket(&self, hash: u64) -> *mut *mut Stack {
        // SAFETY: the buckets were made before (fn contract), and the index is below their number.
        unsafe { &raw mut (*self.buckets)[usize_of(hash) % BUCKETS] }
    }

    /// # Safety
    /// Both are in the table.
    unsafe fn tally<O: Os>(
        &mut self,
        os: &O,
        metadata: &Metadata,
        stack: *mut Stack,
        thread: *mut Thread,
    ) -> Option<*mut Tally> {
        // SAFETY: stack and thread are in the table (fn contract); all tallies of a stack are valid under the lock.
        unsafe {
            let mut at = (*stack).tallies;
            while !at.is_null() {
                if (*at).thread == thread {
                    return Some(at);
                }
                at = (*at).next;
            }
            if !self.takes(size_of::<Tally>()) {
                return None;
            }
            let tally = Tally { next: (*stack).tallies, stack, thread, samples: 0, sums: Sums::default() };
            let tally = place(os, metadata, tally)?;
            self.used_bytes += piece_bytes(size_of::<Tally>());
            (*stack).tallies = tally;
            (*thread).tallies += 1;
            Some(tally)
        }
    }

    /// # Safety
    /// `tally` is in the table.
    unsafe fn drop_if_unused<O: Os>(&mut self, os: &O, metadata: &Metadata, tally: *mut Tally) {
        // SAFETY: the tally is in the table (fn contract), which the lock keeps.
        unsafe {
            let kept = self.accumulates && (*tally).sums.all != Weight::default();
            if (*tally).samples > 0 || kept {
                return;
            }
            let stack = (*tally).stack;
            self.drop_tally(os, metadata, tally);
            self.drop_stack_if_unused(os, metadata, stack);
        }
    }

    /// # Safety
    /// `tally` is in the table, and no sample of this epoch leads to it.
    unsafe fn drop_tally<O: Os>(&mut self, os: &O, metadata: &Metadata, tally: *mut Tally) {
        // SAFETY: the tally is in the table and no sample leads to it (fn contract); links are valid under the lock.
        unsafe {
            let (stack, thread) = ((*tally).stack, (*tally).thread);
            let mut link = &raw mut (*stack).tallies;
            while *link != tally {
                link = &raw mut (**link).next;
            }
            *link = (*tally).next;
            self.used_bytes -= piece_bytes(size_of::<Tally>());
            give_back(os, metadata, tally);
            (*thread).tallies -= 1;
            self.drop_thread_if_unused(os, metadata, thread);
        }
    }

    /// # Safety
    /// `stack` is in the table.
    unsafe fn drop_stack_if_unused<O: Os>(&mut self, os: &O, metadata: &Metadata, stack: *mut Stack) {
        // SAFETY: the stack is in the table (fn contract); links are valid under the lock.
        unsafe {
            if !(*stack).tallies.is_null() {
                return;
            }
            let mut link = self.bucket((*stack).hash);
            while *link != stack {
                link = &raw mut (**link).next;
            }
            *link = (*stack).next;
            self.used_bytes -= piece_bytes(Stack::bytes((*stack).depth));
            if let Some(piece) = NonNull::new(stack.cast()) {
                metadata.free(os, piece, Stack::bytes((*stack).depth), false);
            }
        }
    }

    /// Calls `work` with each stack, which may take it out.
    pub(super) fn for_each_stack(&mut self, work: &mut dyn FnMut(&mut Self, *mut Stack)) {
        if self.buckets.is_null() {
            return;
        }
        for index in 0..BUCKETS {
            // SAFETY: the buckets are there; all stacks in them are valid, under the lock.
            let mut at = unsafe { (*self.buckets)[index] };
            while !at.is_null() {
                // SAFETY: `at` is a stack of the table, valid under the lock, and `work` has not yet had it.
                let next = unsafe { (*at).next };
                work(self, at);
                at = next;
            }
        }
    }

    /// Calls `work` with the sums of each thread of a stack.
    ///
    /// # Safety
    /// `stack` is in the table.
    pub(super) unsafe fn for_each_tally(&self, stack: *mut Stack, work: &mut dyn FnMut(&mut Thread, &Sums)) {
        // SAFETY: the stack is in the table (fn contract); its tallies and their threads are valid under the lock.
        unsafe {
            let mut at = (*stack).tallies;
            while !at.is_null() {
                work(&mut *(*at).thread, &(*at).sums);
                at = (*at).next;
            }
        }
    }

    pub(super) fn for_each_thread(&self, work: &mut dyn FnMut(&mut Thread)) {
        let mut at = self.threads;
        while !at.is_null() {
            // SAFETY: all in the list are valid, under the lock.
            unsafe {
                work(&mut *at);
                at = (*at).next;
            }
        }
    }
}
