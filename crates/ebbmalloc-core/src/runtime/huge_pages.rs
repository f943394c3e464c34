//! The program asks for huge pages: where that is in the heap, the wish ends with the block.

use super::instance::HEAP;

/// The program asks for huge pages at `address`, wherever that is.
pub fn wants_huge_pages(address: usize) {
    HEAP.note_huge_pages(address);
}
