//! The time of a look is bounded, whatever the heap's size.

use std::process::Command;
use std::time::Instant;

use ebb_inspect::{LOOK_WITHIN, Target, Unreadable, glibc};

use crate::programs::{self, Group};

/// Two million blocks in one fastbin, in random order: a step from each to the next is one to another page.
#[test]
fn two_million_blocks_in_a_fastbin_are_found() {
    let blocks = 2_000_000;
    let program = Group::ready(Command::new(programs::tree()).args(["fast", &blocks.to_string()]));
    let target = Target::open(program.pid()).expect("it lives");
    let heap = glibc::read(&target).expect("a heap");
    assert!(heap.breakdown.adds_up());
    let found = heap.glibc.as_ref().expect("glibc's heap");
    assert!(found.quality.fastbins_complete && found.quality.counted, "{found:?}");
    // Seven of them are in the thread's cache.
    assert_eq!(heap.breakdown.fastbins.chunks, blocks - 7);
    assert!(found.trim.returns > blocks * 60);
}

/// Without time, the sizes are reported and no block is called live.
#[test]
fn what_there_is_no_time_for_is_not_counted() {
    let program = Group::ready(Command::new(programs::tree()).args(["fast", "500000"]));
    let open = || Target::open(program.pid()).expect("it lives");
    let all = glibc::read(&open()).expect("a heap");
    let start = Instant::now();
    let mut cut = 0;
    // From no time at all to enough: a look ends at any place.
    for step in 0..24 {
        let time = LOOK_WITHIN / (1 << (24 - step));
        match glibc::read(&open().until(Instant::now() + time)) {
            Ok(heap) => {
                assert!(heap.breakdown.adds_up());
                assert_eq!(heap.breakdown.system.bytes, all.breakdown.system.bytes);
                let quality = heap.glibc.expect("glibc's heap").quality;
                if !quality.counted {
                    cut += 1;
                    assert!(!quality.fastbins_complete || heap.breakdown.unread.bytes > 0);
                    // What is called live is: none but the large array's few neighbours.
                    assert!(heap.breakdown.live.bytes < 1 << 20, "{:?}", heap.breakdown);
                }
            }
            Err(error) => assert_eq!(error, Unreadable::Late.into()),
        }
    }
    assert!(cut > 0, "{:?}", start.elapsed());
}
