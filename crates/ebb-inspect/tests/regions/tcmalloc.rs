//! tcmalloc of gperftools: Debian's library, stripped. The truth is what its extension says.

use ebb_inspect::{Heap, tcmalloc};

use crate::program::{Program, Way, assert_sound, library};
use test_needs::needs;

pub fn debians() -> Way {
    library("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4")
}

pub fn read(program: &Program) -> Heap {
    tcmalloc::read(&program.target(), &program.file).unwrap()
}

#[test]
fn the_breakdown_is_its_own_to_the_byte() {
    needs!("libtcmalloc-minimal4");
    for case in ["small", "live", "burst", "survivors", "threads"] {
        let mut program = Program::start(&debians(), case, &[]);
        let heap = read(&program);
        assert_sound(&heap, &program.target(), case);
        let figures = program.ask(b't');
        let [own, allocated, free, unmapped, central, transfer, threads] = figures[..] else {
            panic!("{figures:?}");
        };
        let breakdown = heap.breakdown;
        assert_eq!(breakdown.live.bytes, allocated, "{case}: {breakdown:?}");
        assert_eq!(breakdown.cached.bytes, transfer + threads, "{case}: {breakdown:?}");
        assert_eq!(breakdown.kept.bytes, free, "{case}: {breakdown:?}");
        assert_eq!(breakdown.returned.bytes, unmapped, "{case}: {breakdown:?}");
        // What rounding leaves of a span is overhead here and the central list's there; the map's leaves are ours.
        let others = breakdown.free.bytes + breakdown.overhead.bytes - (breakdown.system.bytes - own);
        assert_eq!(others, central, "{case}: {breakdown:?}");
        assert_eq!((heap.torn, heap.error), (0, 0.0), "{case}");
        assert!(heap.reader.starts_with("tcmalloc 2."), "{}", heap.reader);
    }
}

#[test]
fn what_it_released_is_returned() {
    needs!("libtcmalloc-minimal4");
    let released = [("TCMALLOC_AGGRESSIVE_DECOMMIT", "t")];
    let program = Program::start(&debians(), "burst", &released);
    let breakdown = read(&program).breakdown;
    assert!(breakdown.returned.bytes > 30 << 20, "{breakdown:?}");
    assert_eq!(breakdown.returned.resident, 0, "{breakdown:?}");
}

#[test]
fn its_settings_are_read() {
    needs!("libtcmalloc-minimal4");
    let asked = [("TCMALLOC_RELEASE_RATE", "0.5"), ("TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES", "1048576")];
    let program = Program::start(&debians(), "live", &asked);
    let settings = read(&program).settings;
    assert_eq!(settings["tcmalloc_release_rate"], "0.5", "{settings:?}");
    assert_eq!(settings["tcmalloc_max_total_thread_cache_bytes"], "1048576", "{settings:?}");
}
