//! The corruption abort: one clear line, then SIGABRT. Called by every layer that finds that the
//! program broke the allocator's contract; the allocator never continues from there.

use crate::os::Os;

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
    line.push(b"; aborting\n");
    os.write_stderr(line.bytes());
    os.abort()
}

/// A line of text built without the heap; what does not fit is cut.
pub struct Line {
    text: [u8; 256],
    len: usize,
}

impl Line {
    /// An empty line.
    pub const fn new() -> Self {
        Self { text: [0; 256], len: 0 }
    }

    /// Appends bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if let Some(slot) = self.text.get_mut(self.len) {
                *slot = byte;
                self.len += 1;
            }
        }
    }

    /// Appends a number in hexadecimal with `0x`.
    pub fn push_hex(&mut self, value: usize) {
        self.push(b"0x");
        let digits = (usize::BITS - value.leading_zeros()).div_ceil(4).max(1);
        for digit in (0..digits).rev() {
            let nibble = (value >> (digit * 4)) & 15;
            self.push(&b"0123456789abcdef"[nibble..=nibble]);
        }
    }

    /// Appends a number in decimal.
    pub fn push_decimal(&mut self, value: u64) {
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        let mut rest = value;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.push(&digits[at..]);
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
