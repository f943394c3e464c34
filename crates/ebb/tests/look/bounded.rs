//! The time of a look is bounded, whatever the heap's size.

use std::process::Command;
use std::time::Instant;

use ebb_inspect::{Heap, LOOK_WITHIN, Target, Unreadable};

use crate::programs::{self, Group};

/// Two million blocks in one fastbin, in random order: a step from each to the next is one to another page.
#[test]
fn two_million_blocks_in_a_fastbin_are_found() {
    let blocks = 2_000_000;
    let program = Group::ready(Command::new(programs::tree()).args(["fast", &blocks.to_string()]));
    let target = Target::open(program.pid()).expect("it lives");
    let heap = Heap::read(&target).expect("a heap");
    assert!(heap.ledger.adds_up());
    assert!(heap.quality.fastbins_complete && heap.quality.counted, "{:?}", heap.quality);
    // Seven of them are in the thread's cache.
    assert_eq!(heap.ledger.fastbins.chunks, blocks - 7);
    assert!(heap.trim.returns > blocks * 60);
}

/// Without time, the sizes are reported and no block is called live.
#[test]
fn what_there_is_no_time_for_is_not_counted() {
    let program = Group::ready(Command::new(programs::tree()).args(["fast", "500000"]));
    let open = || Target::open(program.pid()).expect("it lives");
    let all = Heap::read(&open()).expect("a heap");
    let start = Instant::now();
    let mut cut = 0;
    // From no time at all to enough: a look ends at any place.
    for step in 0..24 {
        let time = LOOK_WITHIN / (1 << (24 - step));
        match Heap::read(&open().until(Instant::now() + time)) {
            Ok(heap) => {
                assert!(heap.ledger.adds_up());
                assert_eq!(heap.ledger.system.bytes, all.ledger.system.bytes);
                if !heap.quality.counted {
                    cut += 1;
                    assert!(!heap.quality.fastbins_complete || heap.ledger.unread.bytes > 0);
                    // What is called live is: none but the large array's few neighbours.
                    assert!(heap.ledger.in_use.bytes < 1 << 20, "{:?}", heap.ledger);
                }
            }
            Err(error) => assert_eq!(error, Unreadable::Late.into()),
        }
    }
    assert!(cut > 0, "{:?}", start.elapsed());
}
