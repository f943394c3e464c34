//! What is read against what glibc says: mallinfo2's figures, and what malloc_trim then returns.

use ebb_inspect::{Breakdown, Heap};

use crate::program::{Glibc, Info, Program, all, copy, own};
use test_needs::skip;

/// States in which a process may rest, and what a trim does in them.
const CASES: &[&str] = &[
    "fresh", "live", "burst", "kept_end", "pinned_1_percent", "pinned_10_percent", "pinned_30k", "threads_4",
    "threads_32", "threads_gone", "secondary_tops", "many_heaps", "fastbins", "mmapped", "mmapped_split",
    "locked_part", "untouched", "returned", "foreign_brk", "brk_at_end", "blocked_brk", "aligned", "cached", "wide",
    "large_caches",
];

#[test]
fn at_rest_all_figures_are_glibcs_own_and_a_trim_returns_what_was_predicted() {
    for glibc in all() {
        for case in CASES {
            let mut program = Program::start(&glibc, case);
            let heap = program.read();
            let at = format!("{case} on {} ({:?})", heap.reader, glibc.version);
            if let Some(version) = &glibc.version {
                assert_eq!(heap.reader, format!("glibc {version}"), "{at}");
            }
            assert_equal(&at, &heap, &program.info());
            assert_trim(&at, &heap, program.trim());
        }
    }
}

fn glibc_of(heap: &Heap) -> ebb_inspect::Glibc {
    heap.glibc.clone().expect("glibc's heap")
}

/// What glibc calls in use: threads' caches count there.
fn mallinfo_in_use(breakdown: &Breakdown) -> u64 {
    breakdown.system.bytes - breakdown.glibc_free().bytes
}

fn assert_equal(at: &str, heap: &Heap, info: &Info) {
    let (breakdown, found) = (&heap.breakdown, glibc_of(heap));
    assert!(breakdown.adds_up(), "{at}: {breakdown:?}");
    let read = Info {
        system: breakdown.system.bytes,
        in_use: mallinfo_in_use(breakdown),
        free: breakdown.glibc_free().bytes,
        fastbins: breakdown.fastbins.bytes,
        mmapped_chunks: found.mmapped.chunks,
        mmapped_bytes: found.mmapped.bytes,
    };
    assert_eq!(read, *info, "{at}: {heap:?}");
    assert!(found.mmapped_complete, "{at}");
    assert!(found.quality.fastbins_complete, "{at}");
    assert_eq!(heap.classes.values().map(|class| class.bytes).sum::<u64>(), breakdown.live.bytes, "{at}");
}

fn assert_trim(at: &str, heap: &Heap, (before, after): (u64, u64)) {
    let returned = before - after;
    let predicted = glibc_of(heap).trim.returns;
    let error = predicted.abs_diff(returned);
    assert!(error <= returned / 50, "{at}: predicted {predicted}, returned {returned}");
}

/// As 2.43 is on aarch64 by default.
#[test]
fn huge_pages_that_malloc_asks_for_are_found_with_their_free_part() {
    let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    if !enabled.is_ok_and(|it| it.contains("[madvise]") || it.contains("[always]")) {
        skip!("the kernel has no transparent huge pages");
    }
    for glibc in all() {
        // The setting came with 2.35.
        if glibc.version.as_deref() == Some("2.31") {
            continue;
        }
        let read = |case: &str, setting: &'static str| {
            let program = Program::start_with(&glibc, case, |command| {
                command.env("GLIBC_TUNABLES", setting);
            });
            program.read()
        };
        for (case, is_free) in [("kept_end", true), ("live", false)] {
            let heap = read(case, "glibc.malloc.hugetlb=1");
            let at = format!("{case} on {}: {:?}", heap.reader, heap.huge_pages);
            let found = heap.huge_pages.unwrap_or_else(|| panic!("{at}"));
            let free = heap.breakdown.glibc_free().resident;
            assert!(found.resident >= 8 << 20 && found.free <= free.min(found.resident), "{at}");
            assert_eq!(found.free > found.resident / 2, is_free, "{at}");
            assert_eq!(read(case, "glibc.malloc.hugetlb=0").huge_pages, None, "{at}");
        }
    }
}

/// The program goes on allocating: glibc's own figures differ before and after the walk. What was
/// read lies within 6 % of the two.
#[test]
fn a_busy_heap_is_read_within_six_percent() {
    for glibc in all() {
        let mut program = Program::start(&glibc, "busy");
        for _ in 0..5 {
            let before = program.info();
            let heap = program.read();
            let after = program.info();
            let read = mallinfo_in_use(&heap.breakdown);
            assert!(heap.breakdown.adds_up(), "{:?}", heap.breakdown);
            let least = before.in_use.min(after.in_use);
            let most = before.in_use.max(after.in_use);
            assert!(
                read >= least - least / 100 * 6 && read <= most + most / 100 * 6,
                "{glibc:?}: {read} of {least} to {most}: {heap:?}"
            );
        }
    }
}

#[test]
fn what_threads_caches_hold_is_a_line_of_its_own() {
    for glibc in all() {
        let heap = Program::start(&glibc, "cached").read();
        let cached = heap.breakdown.cached;
        // A block of 200 bytes is a chunk of 208.
        assert_eq!((glibc_of(&heap).caches, cached.chunks, cached.bytes), (1, 5, 5 * 208));
        assert_eq!(cached.resident, cached.bytes);
    }
}

#[test]
fn the_ends_of_other_arenas_are_told_from_what_a_trim_returns() {
    let heap = Program::start(&own(), "secondary_tops").read();
    let Breakdown { secondary_tops, .. } = heap.breakdown;
    let found = glibc_of(&heap);
    assert!(found.trim.secondary_tops > 0);
    assert!(found.trim.secondary_tops <= secondary_tops.resident);
    // The block of 30 MiB that was freed raised both thresholds.
    let thresholds = found.thresholds.unwrap();
    assert!(thresholds.dynamic);
    assert!(thresholds.mmap_threshold >= 30 << 20, "{thresholds:?}");
    assert_eq!(thresholds.trim_threshold, 2 * thresholds.mmap_threshold);
}

#[test]
fn thresholds_that_are_set_no_longer_move() {
    // glibc reads its settings at the first request.
    let program = Program::start_with(&own(), "cached", |command| {
        command.env("MALLOC_TRIM_THRESHOLD_", "65536").env("MALLOC_ARENA_MAX", "2");
    });
    let thresholds = glibc_of(&program.read()).thresholds.unwrap();
    assert!(!thresholds.dynamic);
    assert_eq!(thresholds.trim_threshold, 65536);
    assert_eq!(thresholds.arena_max, 2);
}

#[test]
fn blocks_that_were_never_touched_are_not_resident() {
    let heap = Program::start(&own(), "untouched").read();
    let breakdown = heap.breakdown;
    assert!(breakdown.live.bytes >= 80 << 20);
    assert!(breakdown.live.resident < 1 << 20, "{breakdown:?}");
}

#[test]
fn a_static_program_is_read_as_well() {
    for case in ["fresh", "threads_4", "mmapped"] {
        let mut program = Program::start(&Glibc::inside(), case);
        let heap = program.read();
        assert_equal(case, &heap, &program.info());
        assert_trim(case, &heap, program.trim());
    }
}

/// A service goes on with the libc that it started with; the file is another one by then, or none.
#[test]
fn a_libc_that_is_gone_from_the_disk_is_read_by_its_mapping() {
    if !nix::unistd::geteuid().is_root() {
        skip!("only root can open a mapped file that has no name");
    }
    let folder = tempfile::tempdir().unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    for name in ["libc.so.6", "ld-linux-x86-64.so.2"] {
        let path = maps.lines().find_map(|line| line.split(' ').next_back().filter(|path| path.ends_with(name)));
        copy(path.unwrap().as_ref(), &folder.path().join(name));
    }
    let mut program = Program::start(&Glibc::in_folder(folder.path()), "threads_4");
    folder.close().unwrap();
    assert_equal("gone", &program.read(), &program.info());
}

/// Memory that is asked for in huge pages: other alignments, no brk.
#[test]
fn huge_pages_change_nothing_in_the_figures() {
    for setting in ["glibc.malloc.hugetlb=1", "glibc.malloc.hugetlb=2"] {
        for case in ["burst", "threads_gone"] {
            let glibc: Glibc = own();
            let mut program = Program::start_with(&glibc, case, |command| {
                command.env("GLIBC_TUNABLES", setting);
            });
            let heap = program.read();
            let at = format!("{case} with {setting}");
            assert_equal(&at, &heap, &program.info());
            assert_trim(&at, &heap, program.trim());
        }
    }
}
