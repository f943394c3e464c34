//! Nothing is written into free memory: what is freed keeps its bytes until its page goes.

use super::*;
use crate::size::GRANULE;

const PAGE: usize = 4096;
const WRITTEN: u8 = 0x5a;

/// Whether all bytes of a page are `value`.
fn is_full_of(page: *mut u8, value: u8) -> bool {
    // SAFETY: the page is the fake kernel's memory, which stays mapped until the heap is dropped.
    unsafe { core::slice::from_raw_parts(page, PAGE) }.iter().all(|&byte| byte == value)
}

#[test]
fn freed_memory_keeps_its_bytes_until_its_page_goes() {
    for cached in [false, true] {
        let heap = Box::new(Heap::new(Fake::new(PAGE)));
        let thread = if cached { heap.attach() } else { None };
        let mut blocks: Vec<_> = [(PAGE, 40), (3 * PAGE, 40), (2 * GRANULE, 4)]
            .iter()
            .flat_map(|&(size, count)| core::iter::repeat_n(size, count))
            .map(|size| (allocate(&heap, thread, size), size))
            .collect();
        for &(block, size) in &blocks {
            // SAFETY: the block is live and as long as was asked for.
            unsafe { block.write_bytes(WRITTEN, size) };
        }
        // One of each size stays, so that its slab does.
        for kept in [80, 40, 0] {
            blocks.remove(kept);
        }
        let pages: Vec<_> = blocks
            .iter()
            .flat_map(|&(block, size)| {
                (0..size / PAGE).map(move |page| block.wrapping_add(page * PAGE))
            })
            .collect();
        let starts: Vec<_> = blocks.iter().map(|&(block, _)| block).collect();
        free_all(&heap, thread, &starts);
        assert!(pages.iter().all(|&page| is_full_of(page, WRITTEN)));
        for _ in 0..6 {
            heap.tick(None);
            let gone = |&page: &*mut u8| is_full_of(page, 0);
            assert!(pages.iter().all(|page| gone(page) || is_full_of(*page, WRITTEN)));
        }
        assert!(pages.iter().all(|&page| is_full_of(page, 0)), "cached: {cached}");
    }
}
