//! What allocators other than glibc's hold, against what they say themselves: real programs, at rest.

#[path = "../harness/mod.rs"]
mod harness;
mod jemalloc;
mod mimalloc;
mod musl;
mod program;
mod tcmalloc;

use std::path::Path;

use ebb_inspect::{Heap, Target, Unsupported};
use test_needs::installed;

use harness::state;
use program::{Program, Way};

type Read = fn(&Target, &Path) -> Result<Heap, Unsupported>;

#[test]
fn reading_adds_no_page_and_no_page_table() {
    let preloaded = |way| Program::start(&way, "survivors", &[]);
    let cases: [(&str, &dyn Fn() -> Program, Read); 4] = [
        ("libjemalloc-dev", &|| preloaded(jemalloc::debians()), ebb_inspect::jemalloc::read),
        ("libmimalloc2.0", &|| preloaded(mimalloc::debians()), ebb_inspect::mimalloc::read),
        ("libtcmalloc-minimal4", &|| preloaded(tcmalloc::debians()), ebb_inspect::tcmalloc::read),
        ("musl-tools", &|| musl::started(&musl::shared(), "survivors"), ebb_inspect::musl::read),
    ];
    for (package, start, read) in cases {
        if installed(&[package]) {
            let program = start();
            let target = program.target();
            let before = state(&target);
            read(&target, &program.file).unwrap();
            assert_eq!(state(&target), before, "{package}");
        }
    }
}

#[test]
fn a_program_without_one_is_refused() {
    let cases: [(&str, Read); 4] = [
        ("jemalloc", ebb_inspect::jemalloc::read),
        ("mimalloc", ebb_inspect::mimalloc::read),
        ("tcmalloc of gperftools", ebb_inspect::tcmalloc::read),
        ("musl's mallocng", ebb_inspect::musl::read),
    ];
    let program = Program::start(&Way::Built("cc", Vec::new()), "small", &[]);
    for (name, read) in cases {
        let error = read(&program.target(), &program.file).unwrap_err();
        assert_eq!(error, Unsupported::NotThere(name));
    }
}
