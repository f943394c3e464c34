//! Any sequence of requests on the fake kernel: blocks keep their contents and their bounds.
//! The same as the crate's model test, but led by coverage instead of chance.
#![no_main]

mod hooks;

use arbitrary::Arbitrary;
use ebbmalloc_core::heap::{Access, Heap};
use ebbmalloc_core::os::OsError;
use ebbmalloc_core::os::fake::{Call, Fake};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Step {
    Allocate { size: u32 },
    Aligned { size: u32, log2: u8 },
    Free { which: u16 },
    Reallocate { which: u16, size: u32 },
    Tick,
    Trim,
    RefuseCommits { count: u8 },
    RefuseDiscards { count: u8 },
}

struct Block {
    start: *mut u8,
    usable: usize,
    mark: u8,
}

impl Block {
    fn new(heap: &Heap<Fake>, start: *mut u8, size: usize, align: usize, mark: u8) -> Self {
        assert!((start as usize).is_multiple_of(align.max(16)));
        // SAFETY: the block is live, and all of it may be used.
        let usable = unsafe { heap.usable_size(start) };
        assert!(usable >= size);
        // SAFETY: as above.
        unsafe { start.write_bytes(mark, usable) };
        Self { start, usable, mark }
    }

    fn check(&self, bytes: usize) {
        // SAFETY: the block is live.
        let bytes = unsafe { core::slice::from_raw_parts(self.start, bytes.min(self.usable)) };
        assert!(bytes.iter().all(|&byte| byte == self.mark));
    }
}

fuzz_target!(|input: (u8, Vec<Step>)| {
    let page_bytes = [4 << 10, 16 << 10, 64 << 10][input.0 as usize % 3];
    let heap = Box::new(Heap::new(Fake::new(page_bytes)));
    let mut blocks: Vec<Block> = Vec::new();
    for (number, step) in input.1.iter().enumerate() {
        let mark = number as u8;
        match *step {
            Step::Allocate { size } => {
                let size = size as usize % (2 << 20);
                let start = heap.allocate(Access::Direct, size);
                if !start.is_null() {
                    blocks.push(Block::new(&heap, start, size, 16, mark));
                }
            }
            Step::Aligned { size, log2 } => {
                let (size, align) = (size as usize % (1 << 20), 1 << (log2 % 21));
                let start = heap.allocate_aligned(Access::Direct, size, align);
                if !start.is_null() {
                    blocks.push(Block::new(&heap, start, size, align, mark));
                }
            }
            Step::Free { which } if !blocks.is_empty() => {
                let block = blocks.swap_remove(which as usize % blocks.len());
                block.check(block.usable);
                // SAFETY: live until here.
                unsafe { heap.free(Access::Direct, block.start) };
            }
            Step::Reallocate { which, size } if !blocks.is_empty() => {
                let (which, size) = (which as usize % blocks.len(), size as usize % (2 << 20));
                blocks[which].check(blocks[which].usable);
                // SAFETY: the block is live; only the result is afterwards.
                let start = unsafe { heap.reallocate(Access::Direct, blocks[which].start, size) };
                if !start.is_null() {
                    blocks[which].start = start;
                    blocks[which].check(size);
                    blocks[which] = Block::new(&heap, start, size, 16, mark);
                }
            }
            Step::Tick => {
                heap.tick(None);
            }
            Step::Trim => {
                heap.trim(None);
            }
            Step::RefuseCommits { count } => heap.os.fail(Call::Commit, 0, count.into(), OsError::OutOfMemory),
            Step::RefuseDiscards { count } => heap.os.fail(Call::Discard, 0, count.into(), OsError::Invalid),
            Step::Free { .. } | Step::Reallocate { .. } => {}
        }
    }
    let held: usize = blocks.iter().map(|block| block.usable).sum();
    assert_eq!(heap.statistics(None, true).live, held);
    for block in blocks {
        block.check(block.usable);
        // SAFETY: live until here.
        unsafe { heap.free(Access::Direct, block.start) };
    }
    heap.os.heal();
    heap.trim(None);
    assert_eq!(heap.statistics(None, true).resident, 0);
});
