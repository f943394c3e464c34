//! Where a stack of free slots lies. It starts small, in the cache's own memory, and grows by pieces of metadata memory
//! while the thread shows that it needs more; a drain that empties it makes it small again. So a thread that does little,
//! or nothing any more, costs little.
//!
//! Where a mass is freed at once the stack becomes small as well: what it would keep lies on the pages that the mass
//! leaves, and the next blocks, which may stay, would pin those.

use super::stack::{Demand, Entry, Stack};
use crate::base::exact::u16_of;
use crate::base::lock::Wait;
use crate::base::metadata::Metadata;
use crate::os::Os;
use crate::size::{CLASS, CLASSES};
use core::ptr::{NonNull, null_mut};

/// Entries that a stack gets whatever its thread does, up to this many bytes of slots: enough that
/// a flush is worth its lock.
const MODEST_SLOTS: usize = 127;
const MODEST_BYTES: usize = 32 * 1024;
/// Bytes of slots that a stack holds before it grows, about.
const FIRST_BYTES: usize = 8 * 1024;
/// Words of a stack that has not grown: fewer where slots are large, since what they hold is not
/// counted by [`Arena::note_room`](crate::arena::Arena::note_room).
const fn first_words(class: usize) -> usize {
    let slots = FIRST_BYTES / CLASS[class].size as usize;
    let words = if slots < 2 { 2 } else { slots };
    if words < Stack::FIRST_WORDS { words.next_power_of_two() } else { Stack::FIRST_WORDS }
}

/// Slots that a stack of `class` gets room for whatever its thread does.
fn modest_slots(class: usize) -> usize {
    MODEST_SLOTS.min(MODEST_BYTES / CLASS[class].size as usize)
}

/// Where in the first memory each class's stack begins, in words; in the last place where that ends.
const FIRST_AT: [u16; CLASSES + 2] = {
    let mut at = [0; CLASSES + 2];
    let mut class = 1;
    while class <= CLASSES {
        at[class + 1] = at[class] + u16_of(first_words(class));
        class += 1;
    }
    at
};

impl Stack {
    /// Words of a stack's first memory, at most: one for each entry and one before them.
    const FIRST_WORDS: usize = 8;

    /// Words of the first memory of all classes' stacks.
    pub const ALL_FIRST_WORDS: usize = FIRST_AT[CLASSES + 1] as usize;

    /// The empty stack of `class` in the first memory of a cache's stacks.
    ///
    /// # Safety
    /// `memory` is good for [`Stack::ALL_FIRST_WORDS`] pointers.
    pub unsafe fn first(memory: *mut Entry, class: usize) -> Self {
        // SAFETY: the memory is good for the first stacks of all classes (fn contract), and a class's part lies
        // within.
        unsafe { Self::within(memory.add(FIRST_AT[class] as usize), first_words(class)) }
    }

    /// A stack of `class` that holds nothing and can hold nothing, in the first memory.
    ///
    /// # Safety
    /// As for [`Stack::first`].
    pub unsafe fn closed(memory: *mut Entry, class: usize) -> Self {
        // SAFETY: the memory is good for the first stacks of all classes (contract of `first`), and a class has at
        // least one word.
        unsafe { Self::within(memory.add(FIRST_AT[class] as usize), 1) }
    }

    /// An empty stack in `memory`. The first word is null and ends the stack; the others hold entries.
    ///
    /// # Safety
    /// `memory` can be written for `words` pointers, and `words` is at least 1.
    unsafe fn within(memory: *mut Entry, words: usize) -> Self {
        // SAFETY: the first of at least one writable word (fn contract).
        unsafe { memory.write(null_mut()) };
        let base = memory.wrapping_add(1);
        Self { top: base, low: base, full: memory.wrapping_add(words), base }
    }

    /// Whether the stack should grow before it is flushed.
    pub fn should_grow(&self, class: usize, demand: Demand) -> bool {
        let capacity = self.capacity();
        capacity < CLASS[class].cache_slots as usize && (demand.ran_dry || capacity < modest_slots(class))
    }

    /// Words of a stack with room for what a thread may have in any case.
    pub fn modest_words(class: usize) -> usize {
        (modest_slots(class) + 1).next_power_of_two().clamp(first_words(class), CLASS[class].cache_slots as usize + 1)
    }

    /// Makes room for four times as many entries, as far as the class may have them; returns for how
    /// many bytes of slots more. Without memory for it the stack stays as it is.
    ///
    /// # Safety
    /// The caller has the cache to itself, and `memory` is the first memory of its stacks.
    #[cold]
    pub unsafe fn grow<O: Os>(&mut self, os: &O, metadata: &Metadata, memory: *mut Entry, class: usize) -> usize {
        let before = self.capacity();
        let words = (4 * (self.capacity() + 1)).min(CLASS[class].cache_slots as usize + 1);
        if words <= before + 1 {
            return 0;
        }
        // SAFETY: the owner has the stack to itself (fn contract), and there are more words than the stack has entries.
        unsafe { self.move_to(os, metadata, memory, class, words) };
        (self.capacity() - before) * CLASS[class].size as usize
    }

    /// Moves the entries into a piece of `words` words. Without memory for it the stack stays as it is.
    ///
    /// # Safety
    /// As for [`Stack::grow`]; there are more words than entries.
    #[cold]
    pub unsafe fn move_to<O: Os>(
        &mut self,
        os: &O,
        metadata: &Metadata,
        memory: *mut Entry,
        class: usize,
        words: usize,
    ) {
        let Some(piece) = metadata.allocate(os, words * size_of::<Entry>(), Wait::Yes) else {
            return;
        };
        // SAFETY: the piece has `words` words, more than the stack has entries.
        unsafe {
            let mut moved = Self::within(piece.as_ptr().cast(), words);
            core::ptr::copy_nonoverlapping(self.base, moved.base, self.len());
            moved.top = moved.base.wrapping_add(self.len());
            moved.low = moved.base.wrapping_add(self.cold());
            self.give_back(os, metadata, memory, class, false);
            *self = moved;
        }
    }

    /// Makes an empty stack as small as it was at first. `idle` says that it was not used since the last tick.
    ///
    /// # Safety
    /// As for [`Stack::grow`]; the stack is empty.
    pub unsafe fn shrink<O: Os>(&mut self, os: &O, metadata: &Metadata, memory: *mut Entry, class: usize, idle: bool) {
        // SAFETY: the owner has the stack to itself, and `memory` is where its first memory lies (fn contract).
        unsafe {
            self.give_back(os, metadata, memory, class, idle);
            *self = Self::first(memory, class);
        }
    }

    /// Frees the stack's memory, if it has any but the first.
    unsafe fn give_back<O: Os>(&self, os: &O, metadata: &Metadata, memory: *mut Entry, class: usize, idle: bool) {
        let piece = self.base.wrapping_sub(1);
        if piece != memory.wrapping_add(FIRST_AT[class] as usize)
            && let Some(piece) = NonNull::new(piece.cast::<u8>())
        {
            let bytes = (self.capacity() + 1) * size_of::<Entry>();
            // SAFETY: a stack that is not in the first memory is in a piece that `grow` allocated, of
            // a word more than its capacity.
            unsafe { metadata.free(os, piece, bytes, idle) };
        }
    }
}
