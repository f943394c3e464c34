//! Words at any address of a process: a small cache of pages before a [`Memory`].
//!
//! For lists that are followed from pointer to pointer. A page that is not present is an error, and
//! so is an address at which nothing is mapped; nothing is read twice while it stays in the cache, so
//! a reader is made anew for each look at a busy process.

use super::{Memory, Page, Presence, Unreadable, unless_torn};
use crate::exact::usize_of;

/// Cached pages: 4 MiB with pages of 4 KiB, that are touched as they are filled.
const PAGES: usize = 1024;
/// Bytes that [`words`] reads at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Reads words and bytes by address.
#[derive(Debug)]
pub struct Reader<'a> {
    memory: &'a dyn Memory,
    /// Addresses of the cached pages; a page's place follows from its number.
    at: Vec<Option<u64>>,
    bytes: Vec<u8>,
}

impl<'a> Reader<'a> {
    /// A reader of `memory` with an empty cache.
    pub fn new(memory: &'a dyn Memory) -> Self {
        let page = usize_of(memory.page_bytes());
        Self { memory, at: vec![None; PAGES], bytes: vec![0; PAGES * page] }
    }

    /// The memory that is read.
    pub fn memory(&self) -> &'a dyn Memory {
        self.memory
    }

    /// The 64-bit word at `address`.
    pub fn word(&mut self, address: u64) -> Result<u64, Unreadable> {
        let mut bytes = [0; 8];
        self.bytes(address, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// The 32-bit word at `address`.
    pub fn int(&mut self, address: u64) -> Result<u32, Unreadable> {
        let mut bytes = [0; 4];
        self.bytes(address, &mut bytes)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    /// Fills `out` with the bytes from `address` on.
    pub fn bytes(&mut self, mut address: u64, mut out: &mut [u8]) -> Result<(), Unreadable> {
        let page_bytes = self.memory.page_bytes();
        while !out.is_empty() {
            let within = usize_of(address % page_bytes);
            let len = out.len().min(usize_of(page_bytes) - within);
            let page = self.page(address - within as u64)?;
            let (head, tail) = out.split_at_mut(len);
            head.copy_from_slice(&page[within..within + len]);
            out = tail;
            address = address.checked_add(len as u64).ok_or(Unreadable::Unmapped(address))?;
        }
        Ok(())
    }

    fn page(&mut self, start: u64) -> Result<&[u8], Unreadable> {
        let page_bytes = self.memory.page_bytes();
        let slot = usize_of(start / page_bytes) % PAGES;
        let bytes = slot * usize_of(page_bytes)..(slot + 1) * usize_of(page_bytes);
        if self.at[slot] != Some(start) {
            let mut page = [Page::Absent];
            self.memory.pages(start, &mut page)?;
            match page[0] {
                Page::Present => {}
                Page::Absent => return Err(Unreadable::Absent(start)),
                Page::Swapped => return Err(Unreadable::Swapped(start)),
            }
            self.at[slot] = None;
            let range = [(start, usize_of(page_bytes))];
            self.memory.copy(&range, &mut self.bytes[bytes.clone()])?;
            self.at[slot] = Some(start);
        }
        Ok(&self.bytes[bytes])
    }
}

/// Calls `each` with address and value of every word of `from..to` that is not 0 and whose page is present: for structures
/// that no symbol leads to.
pub fn words(memory: &dyn Memory, (from, to): (u64, u64), mut each: impl FnMut(u64, u64)) -> Result<(), Unreadable> {
    let presence = Presence::read(memory, from, to)?;
    let mut buffer = vec![0; PIECE_BYTES];
    for (start, len) in presence.runs(presence.start(), presence.end()) {
        for offset in (0..len).step_by(PIECE_BYTES) {
            let at = start + offset as u64;
            let piece = &mut buffer[..PIECE_BYTES.min(len - offset)];
            if unless_torn(memory.copy(&[(at, piece.len())], piece))?.is_none() {
                // Unmapped meanwhile.
                continue;
            }
            for (address, bytes) in (at..).step_by(8).zip(piece.as_chunks().0) {
                let word = u64::from_ne_bytes(*bytes);
                if word != 0 && address >= from && address < to {
                    each(address, word);
                }
            }
        }
    }
    Ok(())
}
