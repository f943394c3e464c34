//! What the allocator of a process holds, by the reader that knows it, in the terms that all readers
//! share.
//!
//! Used by `ebb why` and its kin. What no reader knows is an error with its reason; nothing is guessed.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ebb_allocators::Allocator;
use ebb_inspect::{Heap, HugePages, Unreadable, Unsupported};
use ebb_stats::{Snapshot, mechanism};

use super::counters::{self, Counters};
use super::environ;
use super::inside::inside;
use super::look;
use super::look::NotRead;

mod regions;

pub use regions::{read_inside, read_mapped};

/// ebbmalloc publishes at every so many bytes of growth, so its figures are off by no more.
const PUBLISHED_EVERY_BYTES: u64 = 4 << 20;

/// Reads the heap of `pid`, whose `malloc` is that of `allocator`, which lies in `file`.
pub fn read(pid: i32, allocator: Option<&str>, file: Option<&str>, counters: &Counters) -> Result<Heap, NotRead> {
    let Some(name) = allocator else {
        return of_static(pid);
    };
    match Allocator::from_name(name) {
        Some(Allocator::Ebbmalloc) => of_ebbmalloc(pid, counters),
        Some(Allocator::Glibc) => of_glibc(pid),
        other => {
            let file = Path::new(file.unwrap_or_default());
            other.and_then(|known| regions::read(pid, known, file)).unwrap_or_else(|| {
                Err(NotRead::because(format!("ebb recognises the heap of {name} but cannot read it")))
            })
        }
    }
}

/// A static program has its malloc inside: glibc's, or one that took its place.
fn of_static(pid: i32) -> Result<Heap, NotRead> {
    of_glibc(pid).or_else(|_| {
        let program = PathBuf::from(format!("/proc/{pid}/exe"));
        let found = inside(&program).and_then(|found| read_inside(pid, found));
        let musl = || regions::read(pid, Allocator::Musl, &program).filter(Result::is_ok);
        found.or_else(musl).unwrap_or_else(|| Err(NotRead::because("it is not known which allocator is in charge")))
    })
}

fn of_ebbmalloc(pid: i32, counters: &Counters) -> Result<Heap, NotRead> {
    if let Some(other) = counters.other_version(pid) {
        return Err(NotRead::because(other));
    }
    let seen = counters.read(pid, Duration::MAX);
    let walked = counters.layout(pid).map(|place| {
        look::open(pid).map_err(Unsupported::from).and_then(|target| ebb_inspect::ebbmalloc::read(&target, &place))
    });
    let kept_by_lock = |heap| if is_locked(pid) { locked(heap) } else { heap };
    match (walked, seen) {
        (Some(Ok(heap)), seen) => {
            let mut heap = kept_by_lock(of_walk(heap, seen.as_ref()));
            if let Some(version) = counters.version(pid) {
                heap.reader = format!("{} {}", heap.reader, version.text());
            }
            Ok(heap)
        }
        (walked, Some(seen)) => {
            let mut heap = of_counters(&seen);
            if let Some(anon) = anonymous_bytes(pid) {
                heap = within(heap, anon);
            }
            if let Some(Err(error)) = walked {
                heap.notes.push(format!("only its counters: {error}"));
            }
            Ok(heap)
        }
        (_, None) if counters::are_closed(pid) => Err(NotRead::refused(pid, Unreadable::Refused)),
        (_, None) => Err(NotRead::because("ebbmalloc has not published its counters yet")),
    }
}

/// Anonymous memory of `pid` that is resident, in bytes.
pub fn anonymous_bytes(pid: i32) -> Option<u64> {
    let status = procfs::process::Process::new(pid).and_then(|process| process.status());
    status.ok()?.rssanon.map(|kib| kib * 1024)
}

/// `heap`, unless its counters say that more is resident than the kernel does. Pages count there from when they are handed
/// out, so large blocks that were never written to make the parts say nothing.
fn within(heap: Heap, anonymous_bytes: u64) -> Heap {
    const DRIFT_BYTES: u64 = 8 << 20;
    if heap.resident <= anonymous_bytes + DRIFT_BYTES {
        return heap;
    }
    Heap {
        reader: heap.reader,
        resident: anonymous_bytes,
        unread: anonymous_bytes,
        error: 1.0,
        notes: vec![
            "it has large blocks that were not written to, so its counters do not show what is resident".to_owned(),
        ],
        ..Heap::default()
    }
}

/// Whether most of the memory of `pid` is locked (mlockall), so that the kernel takes no page back.
fn is_locked(pid: i32) -> bool {
    let status = procfs::process::Process::new(pid).and_then(|process| process.status());
    let status = status.ok();
    let sizes = status.and_then(|status| Some((status.vmlck?, status.vmrss?)));
    sizes.is_some_and(|(locked, resident)| locked >= resident / 2)
}

/// The same heap, whose free pages stay.
fn locked(mut heap: Heap) -> Heap {
    heap.locked += std::mem::take(&mut heap.trimmable);
    heap.returns_within_ms = None;
    heap
}

/// What the heap is at this moment, slot by slot; of the counters, what it does not tell.
fn of_walk(heap: Heap, seen: Option<&Snapshot>) -> Heap {
    let mut heap = regions::with_notes(heap);
    // Other allocators keep such pages when malloc_trim is called.
    heap.trimmable = std::mem::take(&mut heap.kept);
    match seen {
        Some(seen) => {
            heap.metadata += seen.metadata_bytes;
            heap.resident += seen.metadata_bytes;
            add_rhythm(&mut heap, seen);
        }
        None => {
            heap.notes.push("it has not published its counters yet, so these figures lack its bookkeeping".to_owned())
        }
    }
    heap
}

/// When idle pages are returned, and whose blocks these are.
fn add_rhythm(heap: &mut Heap, seen: &Snapshot) {
    heap.returns_within_ms = Some(seen.idle_time_ms).filter(|&ms| ms != u64::MAX).map(|ms| 2 * ms);
    heap.notes.push(match seen.idle_time_ms {
        u64::MAX => "idle pages are kept (decay -1)".to_owned(),
        ms => format!("idle pages are returned automatically after {ms} to {} ms", 2 * ms),
    });
    if seen.mechanisms & mechanism::CPYTHON != 0 {
        heap.notes.push("CPython's small objects are among its blocks".to_owned());
    }
}

/// What an allocator published last: one that says no more, or whose heap changes too fast.
fn of_counters(seen: &Snapshot) -> Heap {
    // Blocks that were never written to count as live and are not resident.
    let live = seen.live_bytes.min(seen.resident_bytes);
    // Not counted with `purge:off`: then all that is free in slabs and extents, until the rest must have gone.
    let returnable = match seen.returnable_bytes {
        ebb_stats::UNKNOWN => seen.idle_bytes,
        bytes => bytes,
    };
    let idle = if counters::have_settled(seen) { 0 } else { returnable.min(seen.resident_bytes - live) };
    let cached = seen.cached_bytes.min(seen.resident_bytes - live - idle);
    let resident = seen.resident_bytes + seen.metadata_bytes;
    let mut heap = Heap {
        reader: "ebbmalloc's counters".to_owned(),
        resident,
        live,
        trimmable: idle,
        pinned: seen.resident_bytes - live - idle - cached,
        cached,
        metadata: seen.metadata_bytes,
        error: PUBLISHED_EVERY_BYTES as f64 / resident.max(PUBLISHED_EVERY_BYTES) as f64,
        ..Heap::default()
    };
    add_rhythm(&mut heap, seen);
    if idle > 0 && seen.returnable_bytes == ebb_stats::UNKNOWN {
        heap.notes.push(
            "this version of ebbmalloc does not separate free pages from free memory on pages with live blocks: \
             malloc_trim returns at most this"
                .to_owned(),
        );
    }
    heap
}

fn of_glibc(pid: i32) -> Result<Heap, NotRead> {
    let target = look::open(pid).map_err(|error| NotRead::of(pid, error))?;
    let mut heap = ebb_inspect::glibc::read(&target).map_err(|error| NotRead::of(pid, error))?;
    heap.notes = glibc_notes(&heap);
    if let Some(huge_pages) = heap.huge_pages {
        let tunables = environ::at_start(pid).ok();
        let tunables = tunables.and_then(|it| it.get(OsStr::new(TUNABLES)).cloned());
        let by_user = tunables.is_some_and(|it| it.to_string_lossy().contains(HUGE_PAGES));
        heap.notes.push(huge_pages_note(huge_pages, by_user));
    }
    Ok(heap)
}

/// glibc's variable.
const TUNABLES: &str = "GLIBC_TUNABLES";
/// Its setting for huge pages.
pub const HUGE_PAGES: &str = "glibc.malloc.hugetlb";

macro_rules! no_huge_pages {
    () => {
        "GLIBC_TUNABLES=glibc.malloc.hugetlb=0"
    };
}

/// What ends the huge pages of glibc's malloc; with `transparent_hugepage/enabled` at `always` the kernel goes on making
/// some of its own.
pub const NO_HUGE_PAGES: &str = no_huge_pages!();

/// What to do about them.
pub const HUGE_PAGES_REMEDY: &str = concat!(
    "start it with ",
    no_huge_pages!(),
    " (`ebb fix -a glibc --env ",
    no_huge_pages!(),
    " FILE`), or on an allocator that refuses huge pages"
);

/// What they cost. `by_user`: the setting is the user's.
fn huge_pages_note(found: HugePages, by_user: bool) -> String {
    let mb = |bytes| bytes as f64 / 1e6;
    let why = if by_user { HUGE_PAGES } else { "the default on aarch64 since glibc 2.43" };
    format!(
        "malloc asks for huge pages ({why}): {:.1} MB of its arenas are in such pages, at most {:.1} MB of these are free; \
         {NO_HUGE_PAGES} ends that",
        mb(found.resident),
        mb(found.free)
    )
}

fn glibc_notes(heap: &Heap) -> Vec<String> {
    let mb = |bytes| bytes as f64 / 1e6;
    let Some(glibc) = &heap.glibc else { return Vec::new() };
    let mut notes = Vec::new();
    if let Some(thresholds) = glibc.thresholds {
        notes.push(format!(
            "returns an arena's end above {:.1} MB, maps each request of {:.1} MB or more separately{}",
            mb(thresholds.trim_threshold),
            mb(thresholds.mmap_threshold),
            if thresholds.dynamic { "; both grow with the largest such block that is freed" } else { "" }
        ));
    }
    if heap.missing > 0 {
        notes.push(format!("malloc counts {:.1} MB more than were found", mb(heap.missing)));
    }
    let unread = heap.breakdown.unread.resident;
    if !glibc.quality.counted {
        notes.push(format!(
            "it has too many blocks to count all: {:.1} MB were not identified as live or free",
            mb(unread)
        ));
    }
    if heap.locked > 0 {
        notes.push(format!(
            "{:.1} MB of free pages are locked in memory (mlock): malloc_trim does not return them",
            mb(heap.locked)
        ));
    }
    if !glibc.quality.fastbins_complete {
        notes.push(format!(
            "some lists of small free blocks were not read to their end: {:.1} MB of small blocks may be free",
            mb(heap.unread - unread)
        ));
    }
    if glibc.quality.breaks > 0 {
        notes.push(format!("the heap changed while it was read: {} places were skipped", glibc.quality.breaks));
    }
    if glibc.quality.swapped_bytes > 0 {
        notes.push(format!("{:.1} MB are in swap and were not read", mb(glibc.quality.swapped_bytes)));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block of 1 TiB that is hardly touched counts in full in the counters.
    #[test]
    fn counters_that_say_more_than_is_resident_tell_nothing_apart() {
        let counted = Heap { resident: 1 << 40, live: 1 << 40, ..Heap::default() };
        let heap = within(counted, 300 << 20);
        assert_eq!((heap.live, heap.unread), (0, 300 << 20));
        let usual = Heap { resident: 301 << 20, live: 301 << 20, ..Heap::default() };
        assert_eq!(within(usual, 300 << 20).live, 301 << 20);
    }

    #[test]
    fn huge_pages_are_named_with_their_cost_and_the_setting_that_ends_them() {
        let found = HugePages { resident: 120_000_000, free: 80_000_000 };
        let note = huge_pages_note(found, false);
        for words in ["default on aarch64", "120.0 MB", "80.0 MB of these are free", NO_HUGE_PAGES] {
            assert!(note.contains(words), "{words} is not in: {note}");
        }
        assert!(huge_pages_note(found, true).contains("huge pages (glibc.malloc.hugetlb)"));
    }

    #[test]
    fn what_no_reader_knows_is_said() {
        let counters = Counters::default();
        let own = std::process::id() as i32;
        let error = read(own, Some("hoard"), None, &counters).unwrap_err();
        assert!(error.why.contains("hoard"), "{error:?}");
        assert!(read(own, Some("ebbmalloc"), None, &counters).is_err());
    }
}
