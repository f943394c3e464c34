//! The stack of a thread: whether it stands on its own, whether there is room, whether a handler of a signal
//! is under way on it.
//!
//! A thread in a handler may have been interrupted anywhere, also within malloc. Its frame tells: the kernel's
//! frame is on the stack above it, until the handler has returned.

use ebb_inspect::exact::usize_of;
use ebb_inspect::memory::{Memory, Presence};
use ebb_inspect::target::Backing;
use ebb_inspect::{Mapping, Target, Unreadable};

use crate::frame::{self, TO_FLAGS, TO_LINK, TO_SEGMENTS};

/// A stack that is deeper is not looked through.
const MOST_BYTES: u64 = 16 << 20;
const WORD: u64 = 8;

/// Why a thread's stack is no place for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// A coroutine's, a goroutine's, or an alternate stack.
    #[error("it is not on its own stack")]
    NotItsOwn,
    /// The rest is too small.
    #[error("its stack is nearly full")]
    Full,
    /// Deeper than is looked through.
    #[error("its stack is very deep")]
    Deep,
    /// A handler of a signal has not returned.
    #[error("it runs a signal handler")]
    InHandler,
}

/// Facts about a stopped thread.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    /// Whether it is the first of its process.
    pub is_first: bool,
    /// The stack pointer.
    pub stack_pointer: u64,
    /// The base of its own data, which libc puts at the end of a thread's stack.
    pub own_data: u64,
}

impl Thread {
    /// Where its stack is in use: from the stack pointer to its end. `lowest` must lie on it as well.
    pub fn used(&self, mappings: &[Mapping], lowest: u64) -> Result<(u64, u64), Unfit> {
        let mapping = mappings
            .iter()
            .find(|mapping| mapping.contains(self.stack_pointer))
            .filter(|mapping| mapping.is_own_data())
            .ok_or(Unfit::NotItsOwn)?;
        let end = match self.is_first {
            true if mapping.backing == Backing::Stack => mapping.end,
            false if mapping.contains(self.own_data) && self.own_data > self.stack_pointer => self.own_data,
            _ => return Err(Unfit::NotItsOwn),
        };
        if !mapping.contains(lowest) {
            return Err(Unfit::Full);
        }
        if end - self.stack_pointer > MOST_BYTES {
            return Err(Unfit::Deep);
        }
        Ok((self.stack_pointer, end))
    }
}

/// Whether the frame of a handler lies between `from` and `to`.
pub fn has_frame_of_a_handler(target: &Target, from: u64, to: u64) -> Result<bool, Unreadable> {
    let memory = target.memory();
    let page_bytes = memory.page_bytes();
    let (first, last) = (from & !(page_bytes - 1), to.next_multiple_of(page_bytes));
    let presence = Presence::read(memory, first, last)?;
    let mut bytes = vec![0; usize_of(last - first)];
    for (page, copy) in (first..last).step_by(usize_of(page_bytes)).zip(bytes.chunks_mut(usize_of(page_bytes))) {
        // What is absent has never been written to.
        if presence.bytes(page, page + page_bytes) > 0 {
            memory.copy(&[(page, copy.len())], copy)?;
        }
    }
    let word = |address: u64| {
        let at = usize_of(address.checked_sub(first)?);
        let bytes = bytes.get(at..at + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let begin = from.next_multiple_of(WORD);
    Ok((begin..to).step_by(usize_of(WORD)).any(|at| {
        let words = (|| Some((word(at + TO_FLAGS)?, word(at + TO_LINK)?, word(at + TO_SEGMENTS)?)))();
        words.is_some_and(|(flags, link, segments)| frame::is_of_a_handler(flags, link, segments))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_inspect::memory::fake::mapping;

    fn first(stack_pointer: u64) -> Thread {
        Thread { is_first: true, stack_pointer, own_data: 0x9000 }
    }

    #[test]
    fn the_first_thread_stands_on_the_stack_others_where_their_data_is() {
        let maps = [mapping(0x10000, 0x80000, Backing::Anonymous), mapping(0xa0000, 0x20000, Backing::Stack)];
        assert_eq!(first(0xb0000).used(&maps, 0xa8000), Ok((0xb0000, 0xc0000)));
        assert_eq!(first(0x50000).used(&maps, 0x48000), Err(Unfit::NotItsOwn));
        assert_eq!(first(0xa1000).used(&maps, 0x99000), Err(Unfit::Full));
        let other = |stack_pointer, own_data| Thread { is_first: false, stack_pointer, own_data };
        assert_eq!(other(0x50000, 0x88000).used(&maps, 0x48000), Ok((0x50000, 0x88000)));
        assert_eq!(other(0x50000, 0x20000).used(&maps, 0x48000), Err(Unfit::NotItsOwn));
        assert_eq!(other(0xb0000, 0x88000).used(&maps, 0xa8000), Err(Unfit::NotItsOwn));
    }

    #[test]
    fn a_stack_that_is_too_deep_to_look_through_is_none() {
        let end = 0x1_0000_0000;
        let maps = [mapping(0x10000, end - 0x10000, Backing::Stack)];
        assert_eq!(first(end - MOST_BYTES - 8).used(&maps, 0x20000), Err(Unfit::Deep));
    }
}
