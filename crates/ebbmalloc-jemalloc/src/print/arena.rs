//! One arena, or all of them together: pages, purges, what is allocated.

use super::classes::{self, per_second};
use super::emitter::Emitter;
use super::options::Options;
use super::value::{Quoted, Shown, number, value};
use crate::call::Call;
use crate::tree::{DEPTH, by_mib, name_to_mib};
use core::ffi::CStr;

pub fn print(out: &mut Emitter<'_>, index: usize, options: Options) {
    let figure = |name: &str| number(format_args!("stats.arenas.{index}.{name}"));
    let uptime = figure("uptime");
    name(out, index);
    out.pair("nthreads", &figure("nthreads"));
    out.text(format_args!("assigned threads: {}\n", figure("nthreads")));
    out.pair("uptime_ns", &uptime);
    out.text(format_args!("uptime: {uptime}\n"));
    if let Some(dss) = value(format_args!("stats.arenas.{index}.dss")) {
        out.pair("dss", &dss);
        out.text(format_args!("dss allocation precedence: {dss}\n"));
    }
    decays(out, index);
    counts(out, index, uptime);
    let page = number(format_args!("arenas.page"));
    out.text(format_args!("active:           {:>20}\n", figure("pactive") * page));
    for name in [
        "mapped", "retained", "base", "internal", "metadata_edata", "metadata_rtree", "metadata_thp", "tcache_bytes",
        "tcache_stashed_bytes", "resident", "abandoned_vm", "extent_avail",
    ] {
        out.pair(name, &figure(name));
        let width = 37 - name.len();
        out.text(format_args!("{name}:{:>width$}\n", figure(name)));
    }
    if options.bins {
        classes::bins(out, index, uptime);
    }
    if options.large {
        classes::large(out, index, uptime);
    }
}

fn name(out: &mut Emitter<'_>, index: usize) {
    /// As long as a name can be, its NUL included.
    const NAME_BYTES: usize = 32;
    let mut mib = [0; DEPTH];
    let Ok(depth) = name_to_mib(b"arena.0.name", &mut mib) else {
        return;
    };
    mib[1] = index;
    let mut room = [0u8; NAME_BYTES];
    let (mut place, mut length) = (room.as_mut_ptr(), size_of::<*mut u8>());
    // SAFETY: the buffer is a pointer to room for a name, as this leaf wants it.
    let call = unsafe {
        let old = (&raw mut place).cast();
        Call::new(&mib[..depth], old, &raw mut length, core::ptr::null(), 0)
    };
    if by_mib(&call).is_err() {
        return;
    }
    if let Ok(name) = CStr::from_bytes_until_nul(&room) {
        let name = Quoted(name);
        out.pair("name", &name);
        out.text(format_args!("name: {name}\n"));
    }
}

fn decays(out: &mut Emitter<'_>, index: usize) {
    let figure = |name: &str| number(format_args!("stats.arenas.{index}.{name}"));
    for kind in ["dirty", "muzzy"] {
        if let Some(decay) = value(format_args!("stats.arenas.{index}.{kind}_decay_ms")) {
            let name = if kind == "dirty" { "dirty_decay_ms" } else { "muzzy_decay_ms" };
            out.pair(name, &decay);
        }
    }
    for name in ["pactive", "pdirty", "pmuzzy"] {
        out.pair(name, &figure(name));
    }
    for name in ["dirty_npurge", "dirty_nmadvise", "dirty_purged", "muzzy_npurge", "muzzy_nmadvise", "muzzy_purged"] {
        out.pair(name, &figure(name));
    }
    out.text(format_args!("decaying:  time       npages       sweeps     madvises       purged\n"));
    for kind in ["dirty", "muzzy"] {
        let of = |name: &str| number(format_args!("stats.arenas.{index}.{kind}_{name}"));
        let pages = number(format_args!("stats.arenas.{index}.p{kind}"));
        match value(format_args!("stats.arenas.{index}.{kind}_decay_ms")) {
            Some(Shown::Signed(decay)) if decay >= 0 => {
                out.text(format_args!("{kind:>8}:{decay:>6}"));
            }
            _ => out.text(format_args!("{kind:>8}:{:>6}", "N/A")),
        }
        out.text(format_args!("{pages:>13}{:>13}{:>13}{:>13}\n", of("npurge"), of("nmadvise"), of("purged")));
    }
}

fn counts(out: &mut Emitter<'_>, index: usize, uptime: u64) {
    const COUNTS: [&str; 5] = ["nmalloc", "ndalloc", "nrequests", "nfills", "nflushes"];
    let second = "(#/sec)";
    out.text(format_args!("{:21}{:>16}", "", "allocated"));
    for name in ["nmalloc", "ndalloc", "nrequests", "nfill", "nflush"] {
        out.text(format_args!("{name:>16}{second:>10}"));
    }
    out.text(format_args!("\n"));
    let mut total = [0; 1 + COUNTS.len()];
    for kind in ["small", "large"] {
        out.object(kind);
        let figure = |name: &str| number(format_args!("stats.arenas.{index}.{kind}.{name}"));
        let allocated = figure("allocated");
        out.pair("allocated", &allocated);
        out.text(format_args!("{kind}:{:15}{allocated:>16}", ""));
        total[0] += allocated;
        for (sum, name) in total[1..].iter_mut().zip(COUNTS) {
            let count = figure(name);
            *sum += count;
            out.pair(name, &count);
            out.text(format_args!("{count:>16}{:>10}", per_second(count, uptime)));
        }
        out.text(format_args!("\n"));
        out.end_object();
    }
    out.text(format_args!("total:{:15}{:>16}", "", total[0]));
    for count in &total[1..] {
        out.text(format_args!("{count:>16}{:>10}", per_second(*count, uptime)));
    }
    out.text(format_args!("\n\n"));
}
