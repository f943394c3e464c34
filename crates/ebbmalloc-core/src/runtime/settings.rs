//! The settings' way from where they are written to what they act upon, and the words about them.

use super::conf::keys::{OWN_DECAY, STATS_FILE};
use super::conf::{self, Effect, Fault, Id, Options, Report, Source};
use super::hooks::hooks;
use super::instance::HEAP;
use super::profile::{lease, watch};
use super::purger::purger::PURGER;
use super::{checks, decay, in_force, mechanisms, observer};
use crate::base::corrupt::Line;
use crate::base::exact::usize_of;
use crate::os::linux::HugePages;
use crate::os::{Os, PageRun};
use crate::size::GRANULE;
use core::sync::atomic::{AtomicBool, Ordering};

/// Room for the target of the link /etc/malloc.conf; what does not fit is cut.
const LINK_BYTES: usize = 1024;

static CONFIRM: AtomicBool = AtomicBool::new(false);

/// Reads all texts and puts the settings into force. Says on standard error what it does not understand,
/// and ends the process for that with `abort_conf:true`.
pub(super) fn read() {
    // SAFETY: the hook may be called at any time.
    let environment = |name| unsafe { (hooks().environment)(name) };
    let mut room = [0; LINK_BYTES];
    let link = HEAP.os.read_link(c"/etc/malloc.conf", &mut room);
    let texts = Source::ALL.map(|source| match source {
        Source::Program => (hooks().program_settings)(0),
        Source::Link => link,
        Source::Malloc => environment(b"MALLOC_CONF"),
        Source::Ebb => environment(b"EBB_CONF"),
        Source::Harder => (hooks().program_settings)(1),
    });
    let options = conf::parse(texts, |_| ());
    let always = options.is(Id::ConfirmConf) || options.is(Id::AbortConf);
    let mut wrong = false;
    conf::parse(texts, |report| {
        // What is called experimental comes and goes.
        wrong |= report.outcome.is_err() && !report.key.starts_with(b"experimental_");
        let is_news = || always || !parent_has_told(report.source, environment);
        if options.is(Id::ConfirmConf) || report.outcome.is_err() && is_news() {
            tell(&report);
        }
    });
    if wrong && options.is(Id::AbortConf) {
        HEAP.os.write_stderr(b"ebbmalloc: abort_conf:true, and a setting is wrong: aborting\n");
        HEAP.os.abort();
    }
    in_force::install(&options, &texts);
    apply(&options);
}

/// Whether the parent process has reported what is wrong in the variable of this source: it was started with the
/// same text and the same LD_PRELOAD, and this library is in it.
fn parent_has_told(source: Source, environment: impl Fn(&'static [u8]) -> Option<&'static [u8]>) -> bool {
    let variable: &[u8] = match source {
        Source::Malloc => b"MALLOC_CONF",
        Source::Ebb => b"EBB_CONF",
        Source::Program | Source::Link | Source::Harder => return false,
    };
    const PRELOAD: &[u8] = b"LD_PRELOAD";
    let (Some(text), Some(preload)) = (environment(variable), environment(PRELOAD)) else {
        return false;
    };
    // A program without a loader, such as an init of containers, has the variables and says nothing.
    HEAP.os.parent_has([(variable, text), (PRELOAD, preload)]) && HEAP.os.parent_maps(b"ebbmalloc")
}

/// One line about a setting.
fn tell(report: &Report<'_>) {
    let mut line = Line::new();
    line.push(b"ebbmalloc: ");
    line.push(report.source.name().as_bytes());
    line.push(match report.outcome {
        Ok(_) => b": set: ",
        Err(Fault::UnknownKey) => b": unknown setting ignored: ",
        Err(Fault::BadValue) => b": bad value ignored: ",
        Err(Fault::OutOfRange) => b": value out of range ignored: ",
    });
    line.push(report.text);
    match report.outcome {
        Ok(Effect::NoCounterpart) => line.push(b" (no counterpart here)"),
        Err(Fault::UnknownKey) => {
            if let Some(name) = conf::nearest(report.key) {
                line.push(b" (did you mean ");
                line.push(name.as_bytes());
                line.push(b"?)");
            }
        }
        _ => {}
    }
    line.push(b"\n");
    HEAP.os.write_stderr(line.bytes());
}

fn apply(options: &Options<'_>) {
    let dirty = options.number(Id::DirtyDecayMs);
    let dirty = if options.is(Id::Purge) { (dirty != OWN_DECAY).then_some(dirty.cast_signed()) } else { Some(-1) };
    decay::set_all(dirty);
    PURGER.schedule.set_memory_price(options.number(Id::MemoryPrice));
    if !options.is(Id::BackgroundThread) {
        PURGER.forbid_thread();
    }
    if let Some(arenas) = arenas(options) {
        HEAP.limit_shards(arenas);
    }
    HEAP.limit_caches(usize_of(options.number(Id::TcacheMax)));
    if options.is(Id::PercpuArena) {
        HEAP.choose_shards_by_processor();
    }
    if !options.is(Id::Retain) {
        HEAP.os.unmap_what_is_free();
    }
    HEAP.return_at_once(usize_of(options.number(Id::OversizeThreshold)));
    match options.number(Id::Check) {
        0 => {}
        1 => {
            HEAP.os.guard_no_ends();
            checks::be_strict();
        }
        _ => HEAP.os.guard_no_ends(),
    }
    observer::observe_everyone(observed_for(options));
    HEAP.os.set_huge_pages(
        match options.number(Id::Thp) {
            0 => HugePages::Left,
            1 => HugePages::Wanted,
            2 => HugePages::Refused,
            _ => HugePages::Asked,
        },
        match options.number(Id::MetadataThp) {
            0 => HugePages::Refused,
            1 => HugePages::Left,
            _ => HugePages::Wanted,
        },
    );
    watch::configure(options);
    lease::publish_settings();
    CONFIRM.store(options.is(Id::ConfirmConf), Ordering::Relaxed);
}

/// How many arenas are asked for, if any number is.
fn arenas(options: &Options<'_>) -> Option<usize> {
    match (options.number(Id::Narenas), options.number(Id::NarenasRatio)) {
        (0, 0) => None,
        (0, ratio) => Some(((HEAP.os.cpus() * usize_of(ratio)) >> 16).max(1)),
        (arenas, _) => Some(usize_of(arenas)),
    }
}

/// What every thread is observed for.
fn observed_for(options: &Options<'_>) -> u8 {
    let junk = match options.number(Id::Junk) {
        1 => observer::JUNK_ALLOCATED | observer::JUNK_DEALLOCATED,
        2 => observer::JUNK_ALLOCATED,
        3 => observer::JUNK_DEALLOCATED,
        _ => 0,
    };
    let zero = if options.is(Id::Zero) { observer::ZERO } else { 0 };
    let no_cache = if options.is(Id::Tcache) { 0 } else { observer::NO_CACHE };
    let interval = if options.number(Id::StatsInterval).cast_signed() >= 0 { observer::STATS_INTERVAL } else { 0 };
    let strict = if options.number(Id::Check) == 1 { observer::STRICT } else { 0 };
    junk | zero | no_cache | interval | strict
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
    line.push(if PURGER.schedule.is_on() { b"on" } else { b"off" });
    line.push(b" idle_ms:");
    match PURGER.idle_time_ms() {
        Some(bound) => line.push_decimal(bound),
        None => line.push(b"-1"),
    }
    line.push(b" memory_price:");
    line.push_decimal(PURGER.schedule.memory_price());
    line.push(b" narenas:");
    line.push_decimal(HEAP.shards() as u64);
    line.push(b" stats_print:");
    line.push(if in_force::is(Id::StatsPrint) { b"true" } else { b"false" });
    line.push(b" stats_file:");
    let file = in_force::text(STATS_FILE);
    line.push(file.map_or(b"(none)", core::ffi::CStr::to_bytes));
    line.push(b"\n");
    HEAP.os.write_stderr(line.bytes());
    let mut line = Line::new();
    line.push(b"  mechanisms:");
    for (bit, name) in ebb_stats::mechanism::ALL {
        line.push(b" ");
        line.push(name.as_bytes());
        line.push(if mechanisms::in_force(PURGER.standing().by_thread) & bit != 0 { b":yes" } else { b":no" });
    }
    line.push(b" page:");
    line.push_decimal(HEAP.os.page_bytes() as u64);
    line.push(b"\n");
    HEAP.os.write_stderr(line.bytes());
}

/// Returns two pages that no thread uses, so that it is known how the kernel takes them.
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
            let runs = [PageRun { start, bytes: page }, PageRun { start: start + 2 * page, bytes: page }];
            HEAP.os.discard(&runs);
        }
        HEAP.os.release(start, bytes);
    }
}
