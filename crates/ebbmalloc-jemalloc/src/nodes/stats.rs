//! `stats.*`: the figures as of the last write to `epoch`.

use super::arena;
use super::arenas::LARGE_CLASSES;
use crate::errno::{Errno, Result};
use crate::figures::{self, Which};
use crate::node::Node;
use ebbmalloc_core::base::exact::{u32_of, usize_of};
use ebbmalloc_core::heap::figures::{ArenaFigures, BinFigures};
use ebbmalloc_core::os::Os;
use ebbmalloc_core::runtime::control;
use ebbmalloc_core::runtime::face::{self, HEAP};
use ebbmalloc_core::size::CLASSES;

pub static NODES: &[Node] = &[
    read!("allocated", usize, |_| all(ArenaFigures::allocated)),
    read!("active", usize, |_| all(|all| all.active)),
    read!("metadata", usize, |_| all(|all| all.metadata)),
    read!("metadata_edata", usize, |_| all(|all| all.descriptors)),
    read!("metadata_rtree", usize, |_| Ok(0)),
    read!("metadata_thp", usize, |_| Ok(0)),
    read!("resident", usize, |_| all(ArenaFigures::resident)),
    read!("mapped", usize, |_| all(|all| all.mapped)),
    read!("retained", usize, |_| all(|all| all.retained)),
    Node::group("background_thread", BACKGROUND_THREAD),
    Node::indexed("arenas", arena::holds, ARENA),
    read!("zero_reallocs", usize, |_| Ok(usize_of(control::zero_reallocs()))),
];

pub static APPROXIMATE: &[Node] = &[read!("active", usize, |_| all(|all| all.active))];

static BACKGROUND_THREAD: &[Node] = &[
    read!("num_threads", usize, |_| Ok(face::purger().0.into())),
    read!("num_runs", u64, |_| all(|all| all.ticks)),
    read!("run_interval", u64, |_| Ok(face::purger().1 * 1_000_000)),
];

fn all<R>(get: fn(&ArenaFigures) -> R) -> Result<R> {
    figures::with(Which::All, get).ok_or(Errno::ENOENT)
}

/// A figure of the arenas that a call's index stands for.
fn of<R>(mib: &[usize], get: impl FnOnce(&ArenaFigures) -> R) -> Result<R> {
    figures::with(arena::which(mib[2]), get).ok_or(Errno::ENOENT)
}

fn pages(bytes: usize) -> usize {
    bytes / HEAP.os.page_bytes()
}

static ARENA: &[Node] = &[
    read!("nthreads", u32, |mib| of(mib, |arena| u32_of(arena.threads))),
    read!("uptime", u64, |_| Ok(figures::uptime_ms() * 1_000_000)),
    read!("dss", crate::node::Text, |_| Ok(crate::node::text(c"disabled"))),
    read!("dirty_decay_ms", isize, |mib| arena::decay_of(mib[2])),
    read!("muzzy_decay_ms", isize, |mib| arena::muzzy_decay_of(mib[2])),
    read!("pactive", usize, |mib| of(mib, |arena| pages(arena.active))),
    read!("pdirty", usize, |mib| of(mib, |arena| pages(arena.dirty))),
    read!("pmuzzy", usize, |_| Ok(0)),
    read!("mapped", usize, |mib| of(mib, |arena| arena.mapped)),
    read!("retained", usize, |mib| of(mib, |arena| arena.retained)),
    read!("extent_avail", usize, |_| Ok(0)),
    read!("dirty_npurge", u64, |mib| of(mib, |arena| arena.purges)),
    read!("dirty_nmadvise", u64, |mib| of(mib, |arena| arena.purge_calls)),
    read!("dirty_purged", u64, |mib| of(mib, |arena| arena.purged / HEAP.os.page_bytes() as u64)),
    read!("muzzy_npurge", u64, |_| Ok(0)),
    read!("muzzy_nmadvise", u64, |_| Ok(0)),
    read!("muzzy_purged", u64, |_| Ok(0)),
    read!("base", usize, |mib| of(mib, |arena| arena.metadata)),
    read!("internal", usize, |_| Ok(0)),
    read!("metadata_edata", usize, |mib| of(mib, |arena| arena.descriptors)),
    read!("metadata_rtree", usize, |_| Ok(0)),
    read!("metadata_thp", usize, |_| Ok(0)),
    read!("tcache_bytes", usize, |mib| of(mib, |arena| arena.cached)),
    read!("tcache_stashed_bytes", usize, |_| Ok(0)),
    read!("resident", usize, |mib| of(mib, ArenaFigures::resident)),
    read!("abandoned_vm", usize, |_| Ok(0)),
    Node::group("small", SMALL),
    Node::group("large", LARGE),
    Node::indexed("bins", |_, bin| bin < CLASSES, BIN),
    Node::indexed("lextents", |_, class| class < LARGE_CLASSES, LEXTENT),
];

fn sum(arena: &ArenaFigures, get: fn(&BinFigures) -> u64) -> u64 {
    arena.bins.iter().map(get).sum()
}

static SMALL: &[Node] = &[
    read!("allocated", usize, |mib| of(mib, |arena| arena.small_allocated)),
    read!("nmalloc", u64, |mib| of(mib, |arena| sum(arena, |bin| bin.nmalloc))),
    read!("ndalloc", u64, |mib| of(mib, |arena| sum(arena, |bin| bin.ndalloc))),
    read!("nrequests", u64, |mib| of(mib, |arena| sum(arena, |bin| { bin.nmalloc }))),
    read!("nfills", u64, |mib| of(mib, |arena| sum(arena, |bin| bin.nfills))),
    read!("nflushes", u64, |mib| of(mib, |arena| sum(arena, |bin| { bin.nflushes }))),
];

fn made(arena: &ArenaFigures) -> u64 {
    arena.large.iter().map(|class| class.made).sum()
}

fn freed(arena: &ArenaFigures) -> u64 {
    arena.large.iter().map(|class| class.freed).sum()
}

/// Large blocks have no caches: a request is a block made, and nothing is filled or flushed.
static LARGE: &[Node] = &[
    read!("allocated", usize, |mib| of(mib, |arena| arena.large_allocated)),
    read!("nmalloc", u64, |mib| of(mib, made)),
    read!("ndalloc", u64, |mib| of(mib, freed)),
    read!("nrequests", u64, |mib| of(mib, made)),
    read!("nfills", u64, |_| Ok(0)),
    read!("nflushes", u64, |_| Ok(0)),
];

fn bin<R>(mib: &[usize], get: fn(&BinFigures) -> R) -> Result<R> {
    of(mib, |arena| get(&arena.bins[mib[4]]))
}

static BIN: &[Node] = &[
    read!("nmalloc", u64, |mib| bin(mib, |bin| bin.nmalloc)),
    read!("ndalloc", u64, |mib| bin(mib, |bin| bin.ndalloc)),
    read!("nrequests", u64, |mib| bin(mib, |bin| bin.nmalloc)),
    read!("curregs", usize, |mib| bin(mib, |bin| bin.curregs)),
    read!("nfills", u64, |mib| bin(mib, |bin| bin.nfills)),
    read!("nflushes", u64, |mib| bin(mib, |bin| bin.nflushes)),
    read!("nslabs", u64, |mib| bin(mib, |bin| bin.nslabs)),
    read!("nreslabs", u64, |mib| bin(mib, |bin| bin.nreslabs)),
    read!("curslabs", usize, |mib| bin(mib, |bin| bin.curslabs)),
    read!("nonfull_slabs", usize, |mib| bin(mib, |bin| bin.nonfull_slabs)),
];

static LEXTENT: &[Node] = &[
    read!("nmalloc", u64, |mib| of(mib, |arena| arena.large[mib[4]].made)),
    read!("ndalloc", u64, |mib| of(mib, |arena| arena.large[mib[4]].freed)),
    read!("nrequests", u64, |mib| of(mib, |arena| arena.large[mib[4]].made)),
    read!("curlextents", usize, |mib| of(mib, |arena| {
        let class = arena.large[mib[4]];
        usize_of(class.made - class.freed)
    })),
];
