//! `malloc_stats_print`: the settings and the statistics in words or as JSON, in the shape that jemalloc
//! gives them, so that what reads the one reads the other.
//!
//! All that is printed is read from the tree. Options are letters: `J` for JSON; `g`, `m`, `d`, `a`, `b`,
//! `l` leave out the general part, the merged figures, those of destroyed arenas, those of each arena, of bins, of large
//! classes. jemalloc's `x`, `e` and `h` leave out what is never printed here: mutexes, extents, huge-page slabs.

mod arena;
mod classes;
mod emitter;
mod general;
mod options;
mod value;

use crate::figures;
use core::ffi::CStr;
use ebbmalloc_core::base::exact::usize_of;
use ebbmalloc_core::runtime::control;
use emitter::Emitter;
use options::Options;
use value::{Shown, number, value};

/// Prints through `sink`, piece by piece.
pub fn print(sink: &mut dyn FnMut(&CStr), letters: &[u8]) {
    control::make_ready();
    figures::refresh();
    let options = Options::new(letters);
    let mut out = Emitter::new(sink, options.json);
    out.text(format_args!("___ Begin jemalloc statistics ___\n"));
    out.begin();
    out.object("jemalloc");
    if options.general {
        general::print(&mut out);
    }
    figures_in_general(&mut out);
    arenas(&mut out, options);
    out.end_object();
    out.text(format_args!("--- End jemalloc statistics ---\n"));
    out.finish();
}

/// Prints to where the allocator's words go: the program's `malloc_message`, or standard error.
pub fn to_message(letters: &CStr) {
    print(&mut |text| control::message(text), letters.to_bytes());
}

fn figures_in_general(out: &mut Emitter<'_>) {
    const FIGURES: [&str; 10] = [
        "allocated", "active", "metadata", "metadata_edata", "metadata_rtree", "metadata_thp", "resident", "mapped",
        "retained", "zero_reallocs",
    ];
    let figure = |name| number(format_args!("stats.{name}"));
    out.object("stats");
    for name in FIGURES {
        out.pair(name, &figure(name));
    }
    out.text(format_args!(
        "Allocated: {}, active: {}, metadata: {} (n_thp {}, edata {}, rtree {}), resident: {}, mapped: {}, retained: {}\n",
        figure("allocated"),
        figure("active"),
        figure("metadata"),
        figure("metadata_thp"),
        figure("metadata_edata"),
        figure("metadata_rtree"),
        figure("resident"),
        figure("mapped"),
        figure("retained"),
    ));
    out.text(format_args!("Count of realloc(non-null-ptr, 0) calls: {}\n", figure("zero_reallocs")));
    let thread = |name| number(format_args!("stats.background_thread.{name}"));
    out.object("background_thread");
    for name in ["num_threads", "num_runs", "run_interval"] {
        out.pair(name, &thread(name));
    }
    out.end_object();
    out.text(format_args!(
        "Background threads: {}, num_runs: {}, run_interval: {} ns\n",
        thread("num_threads"),
        thread("num_runs"),
        thread("run_interval")
    ));
    out.end_object();
}

fn arenas(out: &mut Emitter<'_>, options: Options) {
    if !(options.merged || options.destroyed || options.unmerged) {
        return;
    }
    let initialized = |index| matches!(value(format_args!("arena.{index}.initialized")), Some(Shown::Truth(true)));
    let count = usize_of(number(format_args!("arenas.narenas")));
    let some = (0..count).filter(|&index| initialized(index)).count();
    out.object("stats.arenas");
    if options.merged && (some > 1 || !options.unmerged) {
        out.text(format_args!("Merged arenas stats:\n"));
        out.object("merged");
        arena::print(out, crate::nodes::ALL_ARENAS, options);
        out.end_object();
    }
    if options.destroyed && initialized(crate::nodes::DESTROYED_ARENAS) {
        out.text(format_args!("Destroyed arenas stats:\n"));
        out.object("destroyed");
        arena::print(out, crate::nodes::DESTROYED_ARENAS, options);
        out.end_object();
    }
    if options.unmerged {
        for index in (0..count).filter(|&index| initialized(index)) {
            out.text(format_args!("arenas[{index}]:\n"));
            out.numbered_object(index);
            arena::print(out, index, options);
            out.end_object();
        }
    }
    out.end_object();
}
