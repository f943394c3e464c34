//! musl: Debian's libc and programs that have it inside. The truth is the program's own count of its blocks.

use ebb_inspect::{Heap, Unsupported, musl};

use crate::program::{Program, Way, assert_sound};
use test_needs::needs;

/// Debian's musl, by the name that it is mapped with.
const LIBRARY: &str = "/lib/ld-musl-x86_64.so.1";

pub fn shared() -> Way {
    Way::Built("musl-gcc", Vec::new())
}

fn inside() -> Way {
    Way::Built("musl-gcc", vec!["-static".to_owned()])
}

pub fn started(way: &Way, case: &str) -> Program {
    let mut program = Program::start(way, case, &[]);
    if *way == shared() {
        program.file = std::fs::canonicalize(LIBRARY).expect("musl is missing: apt-get install musl-tools");
    }
    program
}

pub fn read(program: &Program) -> Heap {
    musl::read(&program.target(), &program.file).unwrap()
}

#[test]
fn live_blocks_are_exact() {
    needs!("musl-tools");
    for way in [shared(), inside()] {
        for case in ["live", "burst", "survivors", "threads"] {
            let mut program = started(&way, case);
            let heap = read(&program);
            let what = format!("{case} {way:?}");
            assert_sound(&heap, &program.target(), &what);
            let [blocks, asked, _] = program.ask(b'o')[..] else { panic!() };
            let live = heap.breakdown.live;
            assert_eq!(live.chunks, blocks, "{what}");
            assert_eq!(heap.torn, 0, "{what}");
            assert_eq!(heap.error, 0.0, "{what}");
            // A slot is larger than what was asked for by a fifth at most, and by less than a page where it is mapped.
            assert!((asked..asked + asked / 5 + 1).contains(&live.bytes), "{what}: {live:?}, {asked}");
        }
    }
}

#[test]
fn what_survivors_pin_is_free_and_resident() {
    needs!("musl-tools");
    let program = started(&shared(), "survivors");
    let breakdown = read(&program).breakdown;
    assert!(breakdown.free.resident > 60 << 20, "{breakdown:?}");
    assert!(breakdown.kept.resident < 1 << 20, "{breakdown:?}");
}

#[test]
fn its_version_is_that_of_the_file() {
    needs!("musl-tools");
    let program = started(&shared(), "small");
    let version = read(&program).reader;
    let number = version.strip_prefix("musl 1.2.").expect(&version);
    assert!(number.parse::<u32>().is_ok(), "{version}");
    // A static program has no text of it.
    assert_eq!(read(&started(&inside(), "live")).reader, "musl");
}

#[test]
fn before_the_first_request_there_is_nothing_to_read() {
    needs!("musl-tools");
    let program = started(&inside(), "small");
    let error = musl::read(&program.target(), &program.file).unwrap_err();
    assert_eq!(error, Unsupported::NotThere("musl's mallocng"));
}
