//! The files that the profile is written to: when, under which names, and by system calls alone.

use super::super::conf::Id;
use super::super::conf::keys::PROF_PREFIX;
use super::super::instance::HEAP;
use super::super::profile_settings::{dumps_at_growth, interval, is_active, is_on, lg_sample};
use super::super::{in_force, thread};
use super::hooks;
use crate::base::corrupt::Line;
use crate::base::lock::{Lock, Rank};
use crate::os::Os;
use crate::os::linux::NewFile;
use crate::profile::dump::Summary;
use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The default beginning of the name, as in jemalloc.
const PREFIX: &[u8] = b"jeprof";
const PREFIX_BYTES: usize = 4096;
/// Room for a prefix and `.<pid>.<number>.i<number>.heap`.
const NAME_BYTES: usize = PREFIX_BYTES + 80;
/// As much is written at a time.
const PIECE_BYTES: usize = 2048;

/// Why a dump is written: the letter in its file's name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// So many bytes were allocated since the last.
    Interval = b'i' as isize,
    /// `prof.dump`.
    Manual = b'm' as isize,
    /// The heap is larger than ever.
    Growth = b'u' as isize,
    /// The process ends.
    Final = b'f' as isize,
}

/// Dumps so far: all, and by reason. Numbers in names, relaxed.
static DUMPS: AtomicU64 = AtomicU64::new(0);
static INTERVALS: AtomicU64 = AtomicU64::new(0);
static MANUALS: AtomicU64 = AtomicU64::new(0);
static GROWTHS: AtomicU64 = AtomicU64::new(0);
/// Bytes that were allocated since the last dump of its kind; relaxed, a sum.
static SINCE_DUMP: AtomicU64 = AtomicU64::new(0);
/// The largest that the heap was; relaxed, a figure.
static LARGEST: AtomicUsize = AtomicUsize::new(0);

/// What `prof.prefix` set; the setting until then.
static OTHER_PREFIX: Lock<Prefix> = Lock::new(Rank::Profile, Prefix { bytes: [0; PREFIX_BYTES], len: None });

struct Prefix {
    bytes: [u8; PREFIX_BYTES],
    len: Option<usize>,
}

/// Sets how the names of dumps begin; false if that is too long.
pub fn set_prefix(text: &[u8]) -> bool {
    if text.len() > PREFIX_BYTES {
        return false;
    }
    let set = thread::set_apart(|| {
        let mut prefix = OTHER_PREFIX.lock(&HEAP.os);
        prefix.bytes[..text.len()].copy_from_slice(text);
        prefix.len = Some(text.len());
    });
    set.is_some()
}

/// Text in a piece of memory; what does not fit makes it unusable.
struct Name {
    bytes: [u8; NAME_BYTES],
    len: usize,
}

impl Name {
    #[inline(never)]
    fn push(&mut self, text: &[u8]) {
        for &byte in text {
            if let Some(place) = self.bytes.get_mut(self.len) {
                *place = byte;
            }
            self.len += 1;
        }
    }

    fn push_number(&mut self, number: u64) {
        let mut line = Line::new();
        line.push_decimal(number);
        self.push(line.bytes());
    }

    fn c_str(&mut self) -> Option<&CStr> {
        self.push(b"\0");
        CStr::from_bytes_with_nul(self.bytes.get(..self.len)?).ok()
    }
}

/// `<prefix>.<pid>.<number>.<reason><number of the reason>.heap`, as jemalloc's; `None` with an empty
/// prefix, which means no dumps of their own accord.
fn name(reason: Reason) -> Option<Name> {
    let mut name = Name { bytes: [0; NAME_BYTES], len: 0 };
    {
        let prefix = OTHER_PREFIX.lock(&HEAP.os);
        match prefix.len {
            Some(len) => name.push(&prefix.bytes[..len]),
            None => name.push(in_force::text(PROF_PREFIX).map_or(PREFIX, CStr::to_bytes)),
        }
    }
    if name.len == 0 {
        return None;
    }
    name.push(b".");
    name.push_number(u64::from(HEAP.os.process_id()));
    name.push(b".");
    name.push_number(DUMPS.fetch_add(1, Ordering::Relaxed));
    name.push(b".");
    name.push(&[reason as u8]);
    let count = match reason {
        Reason::Interval => Some(&INTERVALS),
        Reason::Manual => Some(&MANUALS),
        Reason::Growth => Some(&GROWTHS),
        Reason::Final => None,
    };
    if let Some(count) = count {
        name.push_number(count.fetch_add(1, Ordering::Relaxed));
    }
    name.push(b".heap");
    Some(name)
}

/// Text on its way to a file, in pieces worth a system call.
struct Writer {
    file: NewFile,
    piece: [u8; PIECE_BYTES],
    len: usize,
    works: bool,
}

impl Writer {
    #[inline(never)]
    fn push(&mut self, text: &[u8]) {
        for &byte in text {
            if self.len == PIECE_BYTES {
                self.flush();
            }
            self.piece[self.len] = byte;
            self.len += 1;
        }
    }

    fn flush(&mut self) {
        self.works &= self.file.write(&self.piece[..self.len]);
        self.len = 0;
    }
}

/// Writes a dump; what it found live, or `None` if it could not be written.
fn write(path: &CStr) -> Option<Summary> {
    let mut writer = Writer { file: HEAP.os.create_file(path)?, piece: [0; PIECE_BYTES], len: 0, works: true };
    let summary = HEAP.parts.profile.dump(&HEAP.os, lg_sample(), &mut |text| writer.push(text));
    writer.push(b"\nMAPPED_LIBRARIES:\n");
    let mut room = [0; PIECE_BYTES];
    HEAP.os.read_pieces(c"/proc/self/maps", &mut room, &mut |text| writer.push(text));
    writer.flush();
    writer.works.then_some(summary)
}

/// Writes a dump under its own name.
fn write_named(reason: Reason) -> Option<Summary> {
    let mut name = thread::set_apart(|| name(reason)).flatten()?;
    write_and_tell(name.c_str()?)
}

fn write_and_tell(path: &CStr) -> Option<Summary> {
    let summary = thread::set_apart(|| write(path)).flatten()?;
    hooks::dumped(path);
    Some(summary)
}

/// `prof.dump`: writes the profile to `path`, or under a name of its own. False if that failed.
pub fn dump(path: Option<&CStr>) -> bool {
    let written = match path {
        Some(path) => write_and_tell(path),
        None => write_named(Reason::Manual),
    };
    written.is_some()
}

/// Bytes were allocated: a dump may be due.
pub(super) fn after_allocations(bytes: u64) {
    let interval = interval();
    if interval == 0 {
        return;
    }
    let since = SINCE_DUMP.fetch_add(bytes, Ordering::Relaxed) + bytes;
    if since >= interval
        && SINCE_DUMP.compare_exchange(since, since % interval, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    {
        write_named(Reason::Interval);
    }
}

/// The heap has grown by a step: with `prof.gdump` a dump is due if it is larger than ever. Outside the
/// thread's cache.
pub(crate) fn after_growth() {
    if !dumps_at_growth() || !is_active() || HEAP.os.is_confined() {
        return;
    }
    let now = HEAP.statistics(None, false).mapped;
    if LARGEST.fetch_max(now, Ordering::Relaxed) < now {
        write_named(Reason::Growth);
    }
}

/// At the end of the process, with `prof_final`: a dump, and with `prof_leak` words about what lives.
pub(crate) fn at_exit() {
    if !is_on() || !in_force::is(Id::ProfFinal) || HEAP.os.is_confined() {
        return;
    }
    write_named(Reason::Final);
    let is_error = in_force::is(Id::ProfLeakError);
    if !is_error && !in_force::is(Id::ProfLeak) {
        return;
    }
    let Some(live) = thread::set_apart(|| HEAP.parts.profile.summary(&HEAP.os)) else {
        return;
    };
    if live.bytes == 0 {
        return;
    }
    let mut line = Line::new();
    line.push(b"ebbmalloc: Leak approximation summary: ~");
    for (number, noun, behind) in [
        (live.bytes, b"byte".as_slice(), b", ~".as_slice()),
        (live.objects, b"object", b", >= "),
        (live.stacks, b"context", b"\n"),
    ] {
        line.push_decimal(number);
        line.push(b" ");
        line.push(noun);
        line.push(if number == 1 { b"" } else { b"s" });
        line.push(behind);
    }
    line.push(b"ebbmalloc: Run jeprof on dump output for leak detail\n");
    HEAP.os.write_stderr(line.bytes());
    if is_error {
        HEAP.os.write_stderr(b"ebbmalloc: Exiting with error code because memory leaks were detected\n");
        HEAP.os.exit(1);
    }
}
