//! The corruption abort: one clear line, then SIGABRT. Called by every layer that finds that the
//! program broke the allocator's contract; the allocator never continues from there.

use super::exact::usize_of;
use crate::os::Os;
use core::mem::transmute;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corruption {
    /// A block was freed that is free already.
    DoubleFree,
    /// An address was passed that no block starts at.
    ForeignPointer,
    /// An address inside a block was passed.
    InteriorPointer,
    /// An address in the heap's address space was passed, inside a large block or free memory.
    NoBlock,
}

impl Corruption {
    /// The beginning of its line.
    pub const fn text(self) -> &'static [u8] {
        match self {
            Self::DoubleFree => b"double free of ",
            Self::ForeignPointer => b"not a pointer from this allocator: ",
            Self::InteriorPointer => b"pointer into the middle of a block: ",
            Self::NoBlock => b"no block begins at ",
        }
    }
}

/// Writes one line that says what is wrong with `address` and ends the process.
#[cold]
#[inline(never)]
pub fn corruption<O: Os>(os: &O, what: Corruption, address: usize) -> ! {
    let mut line = Line::new();
    line.push(b"ebbmalloc: ");
    line.push(what.text());
    line.push_hex(address);
    end(os, line, address)
}

/// What is done with a line about an address, and where.
pub type Listener = fn(&[u8], usize);

/// The function that [`listen`] named, or null. Relaxed: written at boot, before there are blocks to misuse.
static LISTENER: AtomicPtr<()> = AtomicPtr::new(null_mut());

/// Before the process ends, `listener` gets the line.
pub fn listen(listener: Listener) {
    LISTENER.store(listener as *mut (), Ordering::Relaxed);
}

/// Writes the line, which is about `address`, and ends the process.
#[cold]
#[inline(never)]
pub fn end<O: Os>(os: &O, mut line: Line, address: usize) -> ! {
    line.push(b"; aborting\n");
    os.write_stderr(line.bytes());
    let listener = LISTENER.load(Ordering::Relaxed);
    if !listener.is_null() {
        // SAFETY: `listen` alone writes the word, from a function of this type.
        unsafe { transmute::<*mut (), Listener>(listener)(line.bytes(), address) };
    }
    os.abort()
}

/// A line of text built without the heap; what does not fit is cut. No function is inlined: there are many lines, all rare.
pub struct Line {
    text: [u8; 256],
    len: usize,
}

impl Line {
    /// An empty line.
    #[inline(never)]
    pub const fn new() -> Self {
        Self { text: [0; 256], len: 0 }
    }

    /// Appends bytes.
    #[inline(never)]
    pub fn push(&mut self, bytes: &[u8]) {
        for (place, &byte) in self.text[self.len..].iter_mut().zip(bytes) {
            *place = byte;
        }
        self.len = self.text.len().min(self.len + bytes.len());
    }

    /// Appends a number in hexadecimal with `0x`.
    pub fn push_hex(&mut self, value: usize) {
        self.push(b"0x");
        self.push_digits(value as u64, 16);
    }

    /// Appends a number in decimal.
    pub fn push_decimal(&mut self, value: u64) {
        self.push_digits(value, 10);
    }

    #[inline(never)]
    fn push_digits(&mut self, value: u64, base: u64) {
        if value >= base {
            self.push_digits(value / base, base);
        }
        let digit = usize_of(value % base);
        self.push(&b"0123456789abcdef"[digit..=digit]);
    }

    /// What has been written.
    pub fn bytes(&self) -> &[u8] {
        &self.text[..self.len]
    }
}

/// What a structure that tests have torn leads to: the thread that follows it ends the process.
#[cfg(test)]
pub fn torn<T>() -> *mut T {
    core::ptr::without_provenance_mut(align_of::<T>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_full() {
        let mut line = Line::new();
        line.push_hex(0);
        line.push(b" ");
        line.push_hex(usize::MAX);
        line.push(b" ");
        line.push_decimal(0);
        line.push(b" ");
        line.push_decimal(u64::MAX);
        assert_eq!(line.bytes(), b"0x0 0xffffffffffffffff 0 18446744073709551615");
    }

    #[test]
    fn a_line_too_long_is_cut() {
        let mut line = Line::new();
        line.push(&[b'x'; 1000]);
        assert_eq!(line.bytes().len(), 256);
    }
}
