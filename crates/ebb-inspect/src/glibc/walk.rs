//! Goes through one heap chunk by chunk, by their size fields.
//!
//! A window of present pages is copied at a time, so memory is bounded whatever the heap's size, and what lies
//! inside of large chunks is not copied at all. Every chunk is checked against the next one: sizes are
//! multiples of 16 within the heap, a free chunk's size stands at its end once more. Where that fails the
//! chain is broken: memory was read while the program changed it, or is not what it seems. The walk then
//! looks again, and gives up with what it has; the rest of the heap is `unread`.

use crate::exact::usize_of;
use crate::memory::{Memory, Presence, Unreadable, unless_torn};

use super::fast;
use super::heaps::Heap;
use super::layout::{HEADER_BYTES, MIN_CHUNK_BYTES};

/// Pages copied at a time: 256 KiB, so that a window stays in the processor's cache.
const WINDOW_PAGES: u64 = 64;
/// How often a broken chain is looked at again before the walk gives up.
const LOOKS: u32 = 3;

const PREVIOUS_IN_USE: u64 = 1;
const IS_MMAPPED: u64 = 2;
const FLAGS: u64 = 7;

/// A chunk that is not the top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Its first address.
    pub at: u64,
    /// The first address after it.
    pub next: u64,
    /// Whether it is in a bin. What is in a fastbin or in a thread's cache looks in use.
    pub is_free: bool,
    /// The word after the header of a chunk that may be in a fastbin: there it is the link.
    pub link: Option<u64>,
}

/// What a walk leads along the chunks.
pub trait Visitor {
    fn chunk(&mut self, chunk: Chunk);
    /// The top chunk.
    fn top(&mut self, _from: u64, _to: u64) {}
    /// What closes a heap.
    fn fence(&mut self, _from: u64, _to: u64) {}
    /// The walk ends at an address.
    fn cut(&mut self, _at: u64) {}
    /// Bytes that are not walked.
    fn unread(&mut self, _from: u64, _to: u64) {}
    /// Whether more chunks are wanted.
    fn goes_on(&self) -> bool {
        true
    }
}

/// Why a walk ended before the heap did, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The chain broke.
    Broken(u64),
    /// The time is over.
    Late(u64),
}

/// Walks `heap` from the chunk at `from` with `visitor`.
pub fn walk(
    memory: &dyn Memory,
    heap: &Heap,
    presence: &Presence,
    visitor: &mut impl Visitor,
    from: u64,
) -> Result<Option<Stop>, Unreadable> {
    let mut window = Window::new(memory, presence);
    let mut at = from;
    let mut looks = 0;
    while at < heap.end && visitor.goes_on() {
        let step = match step(&mut window, heap, at) {
            Err(Unreadable::Late) => {
                visitor.cut(at);
                return Ok(Some(Stop::Late(at)));
            }
            step => step?,
        };
        match step {
            Step::Chunk(chunk) => {
                visitor.chunk(chunk);
                at = chunk.next;
                looks = 0;
            }
            Step::Top(end) => {
                visitor.top(at, end);
                at = end;
            }
            Step::Fence(end) => {
                visitor.fence(at, end);
                at = end;
                looks = 0;
            }
            Step::Broken => {
                looks += 1;
                if looks > LOOKS {
                    visitor.cut(at);
                    return Ok(Some(Stop::Broken(at)));
                }
                window.forget();
            }
        }
    }
    visitor.cut(at);
    Ok(None)
}

enum Step {
    Chunk(Chunk),
    /// The arena's top, which ends there. Above it lies what the arena got before, if brk failed.
    Top(u64),
    /// What closes a heap, or a piece of the main one, that is not the newest.
    Fence(u64),
    /// No chunk.
    Broken,
}

fn step(window: &mut Window<'_>, heap: &Heap, at: u64) -> Result<Step, Unreadable> {
    // What links lead to need not be a place for a chunk.
    if !at.is_multiple_of(HEADER_BYTES) {
        return Ok(Step::Broken);
    }
    let Some((_, head)) = window.header(at)? else {
        return Ok(Step::Broken);
    };
    let size = head & !FLAGS;
    let Some(next) = at.checked_add(size).filter(|next| *next <= heap.end) else {
        return Ok(Step::Broken);
    };
    if heap.top == Some(at) {
        let ends_heap = next == heap.end || heap.is_main;
        return Ok(if ends_heap && next > at { Step::Top(next) } else { Step::Broken });
    }
    if size <= HEADER_BYTES {
        return fence(window, heap, at, size);
    }
    // The next header lies within the heap.
    let last = heap.end.saturating_sub(HEADER_BYTES);
    let last = heap.top.filter(|top| *top > at).unwrap_or(last);
    if size < MIN_CHUNK_BYTES || !size.is_multiple_of(HEADER_BYTES) || head & IS_MMAPPED != 0 || next > last {
        return Ok(Step::Broken);
    }
    // In front of the next header: the window moves on only.
    let link = match size {
        ..=fast::MAX_BYTES => window.header(at + HEADER_BYTES)?.map(|(link, _)| link),
        _ => None,
    };
    let Some((previous_size, head)) = window.header(next)? else {
        return Ok(Step::Broken);
    };
    let is_free = head & PREVIOUS_IN_USE == 0;
    Ok(if is_free && previous_size != size { Step::Broken } else { Step::Chunk(Chunk { at, next, is_free, link }) })
}

/// Headers of less than a chunk close a heap: one of 16 bytes and, for the last 16, one of none. Where the
/// main arena went on elsewhere (brk failed, or somebody else moved it) two of 16 close the piece.
fn fence(window: &mut Window<'_>, heap: &Heap, at: u64, size: u64) -> Result<Step, Unreadable> {
    if !heap.is_main {
        let is_end = at.saturating_add(size).saturating_add(HEADER_BYTES) >= heap.end;
        let closes = is_end && heap.top.is_none();
        return Ok(if closes { Step::Fence(heap.end) } else { Step::Broken });
    }
    // Two, or three where another was left over.
    let mut end = at;
    let mut fences = 0;
    while size == HEADER_BYTES && end < heap.end {
        match window.header(end)? {
            Some((_, head)) if head & !FLAGS == HEADER_BYTES => fences += 1,
            _ => break,
        }
        end += HEADER_BYTES;
    }
    Ok(if fences >= 2 { Step::Fence(end) } else { Step::Broken })
}

/// A copy of the present pages of a range, moved along.
struct Window<'a> {
    memory: &'a dyn Memory,
    presence: &'a Presence,
    page_bytes: u64,
    start: u64,
    /// Where in `bytes` each page of the window is.
    places: [Option<usize>; usize_of(WINDOW_PAGES)],
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    fn new(memory: &'a dyn Memory, presence: &'a Presence) -> Self {
        let page_bytes = memory.page_bytes();
        Self {
            memory,
            presence,
            page_bytes,
            start: u64::MAX,
            places: [None; usize_of(WINDOW_PAGES)],
            bytes: vec![0; usize_of(WINDOW_PAGES * page_bytes)],
        }
    }

    /// The two words at `address`, which is a multiple of 16; `None` if its page is not there.
    fn header(&mut self, address: u64) -> Result<Option<(u64, u64)>, Unreadable> {
        let within = address.wrapping_sub(self.start);
        if within >= WINDOW_PAGES * self.page_bytes {
            self.load(address)?;
        }
        let within = address - self.start;
        let Some(place) = self.places[usize_of(within / self.page_bytes)] else {
            return Ok(None);
        };
        let at = place + usize_of(within % self.page_bytes);
        let (words, _) = self.bytes[at..at + 16].as_chunks();
        Ok(Some((u64::from_ne_bytes(words[0]), u64::from_ne_bytes(words[1]))))
    }

    /// What is in the window may be old: the next look copies again.
    fn forget(&mut self) {
        self.start = u64::MAX;
    }

    fn load(&mut self, address: u64) -> Result<(), Unreadable> {
        let start = address & !(self.page_bytes - 1);
        self.places = [None; usize_of(WINDOW_PAGES)];
        self.start = start;
        let end = (start + WINDOW_PAGES * self.page_bytes).min(self.presence.end());
        // As of now, which for a busy process differs from when the heap was begun.
        let now = Presence::read(self.memory, start, end)?;
        let runs = now.runs(start, end);
        let len: usize = runs.iter().map(|(_, len)| len).sum();
        if unless_torn(self.memory.copy(&runs, &mut self.bytes[..len]))?.is_none() {
            // The heap shrank meanwhile.
            return Ok(());
        }
        let mut place = 0;
        for (run, len) in runs {
            for page in (run..run + len as u64).step_by(usize_of(self.page_bytes)) {
                self.places[usize_of((page - start) / self.page_bytes)] = Some(place);
                place += usize_of(self.page_bytes);
            }
        }
        Ok(())
    }
}
