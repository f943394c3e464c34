//! tcmalloc of gperftools: Debian's library, stripped. The truth is what its extension says.

use ebb_inspect::holdings::Unsupported;
use ebb_inspect::{Holdings, tcmalloc};

use crate::harness::{Program, Way, assert_sound, library, state};
use test_needs::needs;

fn debians() -> Way {
    library("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4")
}

fn read(program: &Program) -> Holdings {
    tcmalloc::read(&program.target(), &program.file).unwrap()
}

#[test]
fn the_ledger_is_its_own_to_the_byte() {
    needs!("libtcmalloc-minimal4");
    for case in ["small", "live", "burst", "survivors", "threads"] {
        let mut program = Program::start(&debians(), case, &[]);
        let holdings = read(&program);
        assert_sound(&holdings, &program.target(), case);
        let figures = program.ask(b't');
        let [heap, allocated, free, unmapped, central, transfer, threads] = figures[..] else {
            panic!("{figures:?}");
        };
        let ledger = holdings.ledger;
        assert_eq!(ledger.live.bytes, allocated, "{case}: {ledger:?}");
        assert_eq!(ledger.cached.bytes, transfer + threads, "{case}: {ledger:?}");
        assert_eq!(ledger.kept.bytes, free, "{case}: {ledger:?}");
        assert_eq!(ledger.returned.bytes, unmapped, "{case}: {ledger:?}");
        // What rounding leaves of a span is overhead here and the central list's there; the map's leaves are ours.
        let others = ledger.free.bytes + ledger.overhead.bytes - (ledger.system.bytes - heap);
        assert_eq!(others, central, "{case}: {ledger:?}");
        assert_eq!((holdings.torn, holdings.error), (0, 0.0), "{case}");
        assert!(holdings.reader.starts_with("tcmalloc 2."), "{}", holdings.reader);
    }
}

#[test]
fn what_it_released_is_returned() {
    needs!("libtcmalloc-minimal4");
    let released = [("TCMALLOC_AGGRESSIVE_DECOMMIT", "t")];
    let program = Program::start(&debians(), "burst", &released);
    let ledger = read(&program).ledger;
    assert!(ledger.returned.bytes > 30 << 20, "{ledger:?}");
    assert_eq!(ledger.returned.resident, 0, "{ledger:?}");
}

#[test]
fn its_settings_are_read() {
    needs!("libtcmalloc-minimal4");
    let asked =
        [("TCMALLOC_RELEASE_RATE", "0.5"), ("TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES", "1048576")];
    let program = Program::start(&debians(), "live", &asked);
    let settings = read(&program).settings;
    assert_eq!(settings["tcmalloc_release_rate"], "0.5", "{settings:?}");
    assert_eq!(settings["tcmalloc_max_total_thread_cache_bytes"], "1048576", "{settings:?}");
}

#[test]
fn reading_adds_no_page_and_no_page_table() {
    needs!("libtcmalloc-minimal4");
    let program = Program::start(&debians(), "survivors", &[]);
    let target = program.target();
    let before = state(&target);
    tcmalloc::read(&target, &program.file).unwrap();
    assert_eq!(state(&target), before);
}

#[test]
fn a_program_without_one_is_refused() {
    let program = Program::start(&Way::Built("cc", Vec::new()), "small", &[]);
    let error = tcmalloc::read(&program.target(), &program.file).unwrap_err();
    assert_eq!(error, Unsupported::NotThere("tcmalloc of gperftools"));
}
