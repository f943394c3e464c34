//! mimalloc: Debian's library, and version 3 inside a Rust program as its crate builds it. The truth is the program's own count of its blocks and their usable sizes.

use std::path::Path;

use ebb_inspect::{Heap, mimalloc};

use crate::program::{Program, Symbols, Way, assert_sound, is_made, library};
use test_needs::needs;

pub fn debians() -> Way {
    library("libmimalloc.so.2.0", "libmimalloc2.0")
}

pub fn read(program: &Program) -> Heap {
    mimalloc::read(&program.target(), &program.file).unwrap()
}

#[test]
fn live_blocks_are_exact_but_for_the_c_librarys() {
    needs!("libmimalloc2.0");
    for case in ["live", "burst", "survivors", "threads"] {
        let ways = [
            (debians(), "mimalloc 2"),
            (Way::Rust("mimalloc", Symbols::Kept), "mimalloc 3"),
            (Way::Rust("mimalloc", Symbols::Stripped), "mimalloc 3"),
        ];
        // 3.6, where `make -C benches peers` was run.
        let newest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/build/peers/libmimalloc-3.so");
        let newest = newest.exists().then_some((Way::Preload(newest), "mimalloc 3"));
        for (way, version) in ways.into_iter().filter(is_made).chain(newest) {
            let mut program = Program::start(&way, case, &[]);
            let heap = read(&program);
            let what = format!("{case} {way:?}");
            assert_sound(&heap, &program.target(), &what);
            assert!(heap.reader.starts_with(version), "{what}: {}", heap.reader);
            let [blocks, _, usable] = program.ask(b'o')[..] else { panic!() };
            let live = heap.breakdown.live;
            assert!((blocks..blocks + 64).contains(&live.chunks), "{what}: {live:?}, {blocks}");
            assert!((usable..usable + (512 << 10)).contains(&live.bytes), "{what}: {live:?}, {usable}");
            assert_eq!(heap.torn, 0, "{what}");
        }
    }
}

#[test]
fn blocks_that_other_threads_freed_are_not_live() {
    needs!("libmimalloc2.0");
    let program = Program::start(&debians(), "freed_elsewhere", &[]);
    let breakdown = read(&program).breakdown;
    assert!(breakdown.live.bytes < 64 << 10, "{breakdown:?}");
}

#[test]
fn its_options_are_read_by_name() {
    needs!("libmimalloc2.0");
    let asked = [("MIMALLOC_DECOMMIT_DELAY", "1234"), ("MIMALLOC_EAGER_COMMIT_DELAY", "3")];
    let program = Program::start(&debians(), "live", &asked);
    let settings = read(&program).settings;
    assert_eq!(settings["decommit_delay"], "1234", "{settings:?}");
    assert_eq!(settings["eager_commit_delay"], "3", "{settings:?}");
}
