//! jemalloc: Debian's library, stripped, and the same inside a program, under settings of all kinds; the newest
//! inside a Rust program, as its crate builds it.

use ebb_inspect::{Heap, jemalloc};

use crate::program::{Program, Symbols, Way, assert_sound, is_made, library, wait_until};
use test_needs::needs;

pub fn debians() -> Way {
    library("libjemalloc.so.2", "libjemalloc2")
}

fn inside() -> Way {
    let arguments = ["-l:libjemalloc.a", "-lm", "-lstdc++"];
    Way::Built("cc", arguments.map(str::to_owned).to_vec())
}

pub fn read(program: &Program) -> Heap {
    jemalloc::read(&program.target(), &program.file).unwrap()
}

/// What mallctl says.
struct Own {
    allocated: u64,
    active: u64,
    retained: u64,
    dirty: u64,
    muzzy: u64,
    cached: u64,
}

impl Own {
    fn of(program: &mut Program) -> Self {
        let figures = program.ask(b'j');
        let [allocated, active, _, retained, dirty, muzzy, cached] = figures[..] else {
            panic!("{figures:?}");
        };
        Self { allocated, active, retained, dirty, muzzy, cached }
    }
}

#[test]
fn the_breakdown_is_jemallocs_own_to_the_byte() {
    needs!("libjemalloc-dev");
    let ways = [
        (debians(), "jemalloc 5.3.0"),
        (inside(), "jemalloc 5.3.0"),
        (Way::Rust("jemalloc", Symbols::Kept), "jemalloc 5.3.1"),
        (Way::Rust("jemalloc", Symbols::Stripped), "jemalloc 5.3.1"),
    ];
    for (way, version) in ways.into_iter().filter(is_made) {
        for case in ["small", "live", "burst", "survivors", "threads"] {
            // A decay that no test outlasts, so that nothing changes between both looks.
            let variables = ["MALLOC_CONF", "_RJEM_MALLOC_CONF"];
            let keep = variables.map(|name| (name, "dirty_decay_ms:3600000"));
            let mut program = Program::start(&way, case, &keep);
            let heap = read(&program);
            let what = format!("{case} {way:?}");
            assert_sound(&heap, &program.target(), &what);
            let (breakdown, own) = (heap.breakdown, Own::of(&mut program));
            assert_eq!(heap.reader, version, "{what}");
            assert_eq!(heap.torn, 0, "{what}");
            // jemalloc counts what threads keep as allocated.
            assert_eq!(breakdown.live.bytes + breakdown.cached.bytes, own.allocated, "{what}");
            assert_eq!(breakdown.cached.bytes, own.cached, "{what}");
            assert_eq!(breakdown.kept.bytes, own.dirty, "{what}");
            assert_eq!(breakdown.lazy.bytes, own.muzzy, "{what}");
            // Asking makes jemalloc set up what it asks for: at most a few pages out of the retained ones.
            let retained = breakdown.returned.bytes.abs_diff(own.retained);
            assert!(retained <= 64 << 10, "{what}: {breakdown:?}, {}", own.retained);
            assert!(own.allocated <= own.active);
            let [blocks, _, usable] = program.ask(b'o')[..] else { panic!() };
            // The C library and the runtime have a few blocks of their own, Rust's a few for each thread.
            let others = breakdown.live.chunks - blocks;
            assert!(others <= 64, "{what}: {others} blocks of others");
            assert!(breakdown.live.bytes - usable < 512 << 10, "{what}: {breakdown:?}, {usable}");
        }
    }
}

#[test]
fn what_was_never_touched_is_not_resident_and_what_was_purged_is_returned() {
    needs!("libjemalloc-dev");
    let now = [("MALLOC_CONF", "dirty_decay_ms:0,muzzy_decay_ms:0")];
    let program = Program::start(&debians(), "burst", &now);
    let breakdown = read(&program).breakdown;
    assert!(breakdown.kept.resident < 1 << 20, "{breakdown:?}");
    assert!(breakdown.returned.bytes > 50 << 20, "{breakdown:?}");
    assert_eq!(breakdown.returned.resident, 0);
}

#[test]
fn pages_that_are_given_back_lazily_are_a_line_of_their_own() {
    needs!("libjemalloc-dev");
    let lazily = "background_thread:true,dirty_decay_ms:100,muzzy_decay_ms:-1";
    let mut program = Program::start(&debians(), "burst", &[("MALLOC_CONF", lazily)]);
    wait_until(|| read(&program).breakdown.kept.bytes == 0);
    let breakdown = read(&program).breakdown;
    assert_eq!(breakdown.lazy.bytes, Own::of(&mut program).muzzy);
    assert!(breakdown.lazy.resident > 50 << 20, "{breakdown:?}");
}

#[test]
fn settings_are_those_in_force_with_symbols_and_without() {
    needs!("libjemalloc-dev");
    let fixed = ["-no-pie", "-l:libjemalloc.a", "-lm", "-lstdc++"].map(str::to_owned).to_vec();
    let ways = [(debians(), None), (inside(), Some("je_")), (Way::Built("cc", fixed), Some("je_"))];
    let settings = "dirty_decay_ms:1234,muzzy_decay_ms:-1,narenas:3,background_thread:true";
    for (way, prefix) in ways {
        let program = Program::start(&way, "small", &[("MALLOC_CONF", settings)]);
        // jemalloc's thread gives itself its name.
        wait_until(|| read(&program).settings["background_thread"] == "true");
        let found = read(&program).settings;
        let setting = |name: &str| found.get(name).map(String::as_str);
        assert_eq!(setting("dirty_decay_ms"), Some("1234"), "{way:?}");
        assert_eq!(setting("muzzy_decay_ms"), Some("-1"), "{way:?}");
        assert_eq!(setting("background_thread"), Some("true"), "{way:?}");
        let of_process = jemalloc::settings(&program.target()).unwrap();
        let [only] = of_process.as_slice() else {
            panic!("{of_process:?}");
        };
        assert_eq!((only.dirty_decay_ms, only.background_thread), (1234, Some(true)), "{way:?}");
        if prefix.is_some() {
            assert_eq!(only.prefix.as_deref(), prefix, "{way:?}");
            assert_eq!((only.muzzy_decay_ms, only.narenas), (Some(-1), Some(3)), "{way:?}");
            assert_eq!(only.file.file_name(), program.file.file_name(), "{way:?}");
        }
    }
    // Without settings: its defaults.
    let of_process = jemalloc::settings(&Program::start(&inside(), "small", &[]).target()).unwrap();
    assert_eq!((of_process[0].dirty_decay_ms, of_process[0].background_thread), (10_000, Some(false)));
    let without = Program::start(&Way::Built("cc", Vec::new()), "small", &[]);
    assert_eq!(jemalloc::settings(&without.target()).unwrap(), []);
}

#[test]
fn a_fork_loses_the_thread_that_purges() {
    needs!("libjemalloc-dev");
    let settings = [("MALLOC_CONF", "background_thread:true")];
    let program = Program::start(&inside(), "fork", &settings);
    let heap = read(&program);
    assert_eq!(heap.settings["background_thread"], "false");
    assert_eq!(heap.settings["background_thread_asked"], "true");
    assert!(heap.breakdown.kept.resident > 20 << 20, "{:?}", heap.breakdown);
}
