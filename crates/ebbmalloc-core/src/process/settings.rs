//! The settings' way from the environment to what they act upon, and the words about them.
//!
//! Read once at boot. What later needs them reads the atomics here, written at boot only, so relaxed.

use super::conf::{self, Config, Fault, IdleLimit};
use super::instance::{HEAP, hooks};
use super::{publish, purger};
use crate::base::corrupt::Line;
use crate::os::{Os, PageRun};
use crate::size::GRANULE;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

static STATS_PRINT: AtomicBool = AtomicBool::new(false);
static CONFIRM: AtomicBool = AtomicBool::new(false);
/// The value of `stats_file`, in the environment's memory; null if there is none.
static STATS_FILE: AtomicPtr<u8> = AtomicPtr::new(null_mut());
static STATS_FILE_LEN: AtomicUsize = AtomicUsize::new(0);

/// Reads the environment and puts the settings into force. Says on standard error what it does not
/// understand.
pub(super) fn read() {
    // SAFETY: the hook may be called at any time.
    let environment = |name| unsafe { (hooks().environment)(name) };
    let (config, problems) = conf::parse(environment(b"EBB_CONF"), environment(b"MALLOC_CONF"));
    for problem in problems.iter() {
        let mut line = Line::new();
        line.push(b"ebbmalloc: ");
        line.push(problem.variable.name().as_bytes());
        line.push(match problem.fault {
            Fault::UnknownKey => b": unknown setting ignored: ",
            Fault::BadValue => b": bad value ignored:       ",
        });
        line.push(problem.text);
        line.push(b"\n");
        HEAP.os.write_stderr(line.bytes());
    }
    if problems.untold() > 0 {
        HEAP.os
            .write_stderr(b"ebbmalloc: and more settings that mean nothing here\n");
    }
    apply(&config);
}

fn apply(config: &Config<'static>) {
    if !config.purge || config.idle_limit == IdleLimit::Never {
        purger::switch_off();
    }
    if let IdleLimit::AtMostMs(bound) = config.idle_limit {
        purger::bound_idle_time(bound);
    }
    purger::set_memory_price(config.memory_price);
    if !config.background_thread {
        purger::forbid_thread();
    }
    if config.huge_pages {
        HEAP.os.allow_huge_pages();
    }
    if let Some(arenas) = config.narenas {
        HEAP.limit_shards(arenas as usize);
    }
    STATS_PRINT.store(config.stats_print, Ordering::Relaxed);
    CONFIRM.store(config.confirm_conf, Ordering::Relaxed);
    if let Some(path) = config.stats_file {
        STATS_FILE_LEN.store(path.len(), Ordering::Relaxed);
        STATS_FILE.store(path.as_ptr().cast_mut(), Ordering::Relaxed);
    }
}

/// Whether statistics are wanted when the process ends.
pub(super) fn wants_stats_at_exit() -> bool {
    STATS_PRINT.load(Ordering::Relaxed)
}

/// The pattern of the file for the published counters.
pub(super) fn stats_file() -> Option<&'static [u8]> {
    let path = STATS_FILE.load(Ordering::Relaxed);
    let len = STATS_FILE_LEN.load(Ordering::Relaxed);
    // SAFETY: stored by `apply` from a slice that lives as long as the process.
    (!path.is_null()).then(|| unsafe { core::slice::from_raw_parts(path, len) })
}

/// With `confirm_conf:true`: the version, the settings and the mechanisms in force, once, after the
/// boot. Tries the mechanisms, so that what is printed is true.
pub(super) fn confirm() {
    if !CONFIRM.swap(false, Ordering::Relaxed) {
        return;
    }
    HEAP.os.membarrier();
    try_discard();
    let mut line = Line::new();
    line.push(b"ebbmalloc ");
    line.push(env!("CARGO_PKG_VERSION").as_bytes());
    line.push(b"\n  settings: purge:");
    line.push(if purger::is_on() { b"on" } else { b"off" });
    line.push(b" idle_ms:");
    match purger::idle_time_ms() {
        Some(bound) => line.push_decimal(bound),
        None => line.push(b"-1"),
    }
    line.push(b" memory_price:");
    line.push_decimal(purger::memory_price());
    line.push(b" narenas:");
    line.push_decimal(HEAP.shards() as u64);
    line.push(b" stats_print:");
    line.push(if wants_stats_at_exit() {
        b"true"
    } else {
        b"false"
    });
    line.push(b" stats_file:");
    line.push(stats_file().unwrap_or(b"(none)"));
    line.push(b"\n");
    HEAP.os.write_stderr(line.bytes());
    let mut line = Line::new();
    line.push(b"  mechanisms:");
    for (bit, name) in ebb_stats::mechanism::ALL {
        line.push(b" ");
        line.push(name.as_bytes());
        line.push(if publish::mechanisms() & bit != 0 {
            b":yes"
        } else {
            b":no"
        });
    }
    line.push(b" page:");
    line.push_decimal(HEAP.os.page_bytes() as u64);
    line.push(b"\n");
    HEAP.os.write_stderr(line.bytes());
}

/// Returns two pages that nobody uses, so that it is known how the kernel takes them.
fn try_discard() {
    let page = HEAP.os.page_bytes();
    let bytes = (3 * page).next_multiple_of(GRANULE);
    let Ok(start) = HEAP.os.reserve(bytes, GRANULE) else {
        return;
    };
    let start = start.as_ptr() as usize;
    // SAFETY: the range was reserved just now for this alone.
    unsafe {
        if HEAP.os.commit(start, bytes).is_ok() {
            let runs = [
                PageRun { start, bytes: page },
                PageRun {
                    start: start + 2 * page,
                    bytes: page,
                },
            ];
            HEAP.os.discard(&runs);
        }
        HEAP.os.release(start, bytes);
    }
}
