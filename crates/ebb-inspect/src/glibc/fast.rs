//! The chunks in an arena's fastbins. They look in use: only the lists that begin in the arena tell.
//!
//! A list has its chunks in the order in which they were freed, so following it is a jump to another page, and a call to the
//! kernel, for nearly each of them. [`SHORT`] chunks are followed so. Where there are more, one walk over the
//! arena's heaps, in the order of addresses, notes the link of every chunk that may be in a list, and the lists are found in these
//! notes. `glibc` makes that walk and calls [`Fast::note`].
//!
//! Lists of a busy or damaged process may lead anywhere, also in circles: what is no chunk of the arena ends a list, as does a chunk that
//! was seen before.

use crate::memory::{Reader, Unreadable};

use super::heaps::Heap;
use super::heaps::chunk_size;
use super::layout::{FASTBINS, HEADER_BYTES, Layout, MIN_CHUNK_BYTES};
use crate::exact::low_half;

/// The largest chunk that a fastbin holds.
pub const MAX_BYTES: u64 = MIN_CHUNK_BYTES + (FASTBINS as u64 - 1) * HEADER_BYTES;
/// Chunks that are followed one by one in the process's memory: two calls each, 20 to 50 ms.
const SHORT: usize = 1 << 14;
/// Links that are noted: 64 MiB.
const MAX_LINKS: usize = 1 << 24;
/// Bytes with one record of marks: 256 places for a chunk.
const PAGE_BYTES: u64 = 4096;
const UNITS_A_PAGE: u32 = low_half(PAGE_BYTES / HEADER_BYTES);
/// The link of the last chunk of a list.
const END: u32 = u32::MAX;
/// A link that leads to no noted chunk.
const NOWHERE: u32 = END - 1;
/// How often a chunk is led to: so often and more, which is not counted down.
const MANY: u8 = u8::MAX - 1;
/// No list leads there.
const TAKEN: u8 = u8::MAX;

/// How much is known of an arena's fastbins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// All of their chunks.
    All,
    /// A list led nowhere: it changed while it was followed. Chunks after that place look in use.
    Torn,
    /// There are more than could be followed. What looks in use may be free.
    Cut,
}

/// The chunks in the fastbins of one arena.
#[derive(Clone, Debug)]
pub struct Fast {
    pieces: Vec<Piece>,
    /// For each page of the pieces the number of its marks, from 1 on; 0 for none.
    slots: Vec<u32>,
    marks: Vec<Marks>,
    /// Links of the noted chunks in the order of addresses, as numbers of places.
    links: Vec<u32>,
    known: Known,
}

/// A heap, in whole pages. Its places for chunks are numbered on from those of the piece before.
#[derive(Clone, Copy, Debug)]
struct Piece {
    start: u64,
    end: u64,
    first_page: u32,
}

/// One bit for each place of a page.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    noted: [u64; 4],
    fast: [u64; 4],
    /// Noted chunks on the pages before.
    before: u32,
}

impl Fast {
    /// None yet, of an arena with `heaps`.
    pub fn new<'a>(heaps: impl IntoIterator<Item = &'a Heap>) -> Self {
        let mut pieces = Vec::new();
        for heap in heaps {
            let start = heap.start & !(PAGE_BYTES - 1);
            pieces.push(Piece { start, end: heap.end.max(start), first_page: 0 });
        }
        pieces.sort_by_key(|piece| piece.start);
        let mut pages = 0u32;
        let mut known = Known::All;
        pieces.retain_mut(|piece| {
            piece.first_page = pages;
            let end = u32::try_from((piece.end - piece.start).div_ceil(PAGE_BYTES))
                .ok()
                .and_then(|more| pages.checked_add(more))
                // A place's number has 32 bits: 64 GiB.
                .filter(|end| *end < END / UNITS_A_PAGE);
            match end {
                Some(end) => pages = end,
                None => known = Known::Cut,
            }
            end.is_some()
        });
        Self { pieces, slots: vec![0; pages as usize], marks: Vec::new(), links: Vec::new(), known }
    }

    /// How much is known.
    pub fn known(&self) -> Known {
        self.known
    }

    /// More chunks than could be followed, or no time for it.
    pub fn cut(&mut self) {
        self.known = Known::Cut;
        self.links = Vec::new();
    }

    /// Whether the chunk at `chunk` is in a fastbin.
    pub fn has(&self, chunk: u64) -> bool {
        let marks = self.unit(chunk).map(|unit| (self.marks_of(unit), unit));
        marks.is_some_and(|(marks, unit)| marks.is_some_and(|marks| is_set(&marks.fast, unit)))
    }

    /// The first chunk after `address` that is in a fastbin.
    pub fn next_behind(&self, address: u64) -> Option<u64> {
        let from = address.checked_add(1)?.next_multiple_of(HEADER_BYTES);
        self.pieces.iter().find_map(|piece| {
            let mut at = from.max(piece.start);
            while at < piece.end {
                let unit = self.unit(at)?;
                let bits = self.marks_of(unit).map_or([0; 4], |marks| marks.fast);
                match (unit % UNITS_A_PAGE..UNITS_A_PAGE).find(|unit| is_set(&bits, *unit)) {
                    Some(found) => {
                        return Some(at + u64::from(found - unit % UNITS_A_PAGE) * HEADER_BYTES);
                    }
                    None => at = (at & !(PAGE_BYTES - 1)) + PAGE_BYTES,
                }
            }
            None
        })
    }

    /// Follows the lists of `arena` in the process's memory. Whether that was all: if not, they are long, and nothing is known.
    pub fn follow(&mut self, reader: &mut Reader<'_>, layout: &Layout, arena: u64) -> Result<bool, Unreadable> {
        let mut followed = 0;
        for (mut chunk, size) in heads(reader, layout, arena)? {
            while chunk != 0 {
                followed += 1;
                if followed > SHORT {
                    self.marks = Vec::new();
                    self.slots.fill(0);
                    return Ok(false);
                }
                let link = chunk.wrapping_add(HEADER_BYTES);
                chunk = match (chunk_size(reader, chunk), reader.word(link)) {
                    (Ok(found), Ok(stored)) if found == size && self.take(chunk) => layout.link(link, stored),
                    (Err(error), _) | (_, Err(error)) if error.is_final() => return Err(error),
                    _ => {
                        self.mark_torn();
                        0
                    }
                };
            }
        }
        Ok(true)
    }

    /// Notes a chunk that looks in use and has the size of one in a fastbin: `link` is what it would lead to. Chunks come in
    /// the order of addresses.
    pub fn note(&mut self, chunk: u64, link: u64) {
        let to = match link {
            0 => Some(END),
            link => self.unit(link),
        };
        let (Some(unit), Some(to)) = (self.unit(chunk), to) else {
            return;
        };
        match u32::try_from(self.links.len()) {
            Ok(before) if self.links.len() < MAX_LINKS && self.known != Known::Cut => {
                self.links.push(to);
                let marks = self.marks_at(unit);
                if marks.noted == [0; 4] {
                    marks.before = before;
                }
                set(&mut marks.noted, unit);
            }
            _ => self.cut(),
        }
    }

    /// Finds the lists in what was noted. Each of `heads` is where one began before the walk and after it: a running process takes chunks
    /// from a list and adds others, at its head, so after one of the two the list is as it was.
    ///
    /// A list in memory is as slow as one in another process where it jumps about: each step waits for the one before. So the
    /// chunks to which nothing leads are taken away, and those to which only these led: what remains is what the heads lead to.
    pub fn follow_notes(&mut self, heads: &[[u64; 2]]) {
        let mut links = std::mem::take(&mut self.links);
        if self.known == Known::Cut {
            return;
        }
        let mut led_to = vec![0u8; links.len()];
        let mut lead = |index: usize| led_to[index] = (led_to[index] + 1).min(MANY);
        let mut lists = 0;
        for heads in heads.iter().filter(|heads| **heads != [0; 2]) {
            let noted = heads.map(|head| self.index(self.unit(head)?));
            noted.into_iter().flatten().for_each(&mut lead);
            match noted {
                [None, None] => self.known = Known::Torn,
                _ => lists += 1,
            }
        }
        // From here on a link is the number of a noted chunk.
        for link in links.iter_mut().filter(|link| **link != END) {
            *link = match self.index(*link) {
                Some(index) => {
                    lead(index);
                    u32::try_from(index).expect("there are fewer than MAX_LINKS")
                }
                None => NOWHERE,
            };
        }
        for first in 0..links.len() {
            let mut at = first;
            while led_to[at] == 0 {
                led_to[at] = TAKEN;
                let Some(count) = led_to.get_mut(links[at] as usize) else {
                    break;
                };
                *count -= u8::from(*count < MANY);
                at = links[at] as usize;
            }
        }
        let mut ends = 0;
        let mut is_torn = false;
        let mut all = led_to.iter().zip(&links);
        for marks in &mut self.marks {
            for unit in (0..UNITS_A_PAGE).filter(|unit| is_set(&marks.noted, *unit)) {
                let Some((count, link)) = all.next() else {
                    break;
                };
                if *count != TAKEN {
                    set(&mut marks.fast, unit);
                    ends += usize::from(*link == END);
                    is_torn |= *link == NOWHERE;
                }
            }
        }
        // A list in a circle has no end.
        if is_torn || ends < lists {
            self.mark_torn();
        }
    }

    /// The number of the noted chunk at `unit`.
    fn index(&self, unit: u32) -> Option<usize> {
        let marks = self.marks_of(unit)?;
        is_set(&marks.noted, unit).then(|| (marks.before + rank(&marks.noted, unit)) as usize)
    }

    fn mark_torn(&mut self) {
        if self.known == Known::All {
            self.known = Known::Torn;
        }
    }

    /// Marks the chunk at `chunk`; whether it is one of the arena that was not marked before.
    fn take(&mut self, chunk: u64) -> bool {
        let Some(unit) = self.unit(chunk) else {
            return false;
        };
        let marks = self.marks_at(unit);
        let is_new = !is_set(&marks.fast, unit);
        set(&mut marks.fast, unit);
        is_new
    }

    /// The number of the place at `address`, if a heap of the arena has one there.
    fn unit(&self, address: u64) -> Option<u32> {
        let at = self.pieces.partition_point(|piece| piece.end <= address);
        let piece = self.pieces.get(at)?;
        let within = address.checked_sub(piece.start)?;
        if !within.is_multiple_of(HEADER_BYTES) {
            return None;
        }
        let unit = u32::try_from(within / HEADER_BYTES).ok()?;
        (piece.first_page * UNITS_A_PAGE).checked_add(unit)
    }

    fn slot(&self, unit: u32) -> Option<usize> {
        let slot = *self.slots.get((unit / UNITS_A_PAGE) as usize)?;
        (slot as usize).checked_sub(1)
    }

    fn marks_of(&self, unit: u32) -> Option<&Marks> {
        self.marks.get(self.slot(unit)?)
    }

    fn marks_at(&mut self, unit: u32) -> &mut Marks {
        let slot = self.slot(unit).unwrap_or_else(|| {
            self.marks.push(Marks::default());
            self.slots[(unit / UNITS_A_PAGE) as usize] =
                u32::try_from(self.marks.len()).expect("there are no more marks than units");
            self.marks.len() - 1
        });
        &mut self.marks[slot]
    }
}

/// The first chunk of each fastbin of `arena`, with the size of its chunks.
pub fn heads(reader: &mut Reader<'_>, layout: &Layout, arena: u64) -> Result<Vec<(u64, u64)>, Unreadable> {
    let Some(first) = layout.arena.fastbins else {
        return Ok(Vec::new());
    };
    (0..FASTBINS as u64)
        .map(|index| {
            let head = reader.word(arena + first + index * 8)?;
            Ok((head, MIN_CHUNK_BYTES + index * HEADER_BYTES))
        })
        .collect()
}

fn place(unit: u32) -> (usize, u32) {
    let within = unit % UNITS_A_PAGE;
    ((within / 64) as usize, within % 64)
}

fn is_set(bits: &[u64; 4], unit: u32) -> bool {
    let (word, bit) = place(unit);
    bits[word] >> bit & 1 != 0
}

fn set(bits: &mut [u64; 4], unit: u32) {
    let (word, bit) = place(unit);
    bits[word] |= 1 << bit;
}

/// How many bits are set below the one of `unit`.
fn rank(bits: &[u64; 4], unit: u32) -> u32 {
    let (word, bit) = place(unit);
    let below = bits[word] & ((1 << bit) - 1);
    let words = bits[..word].iter().map(|word| word.count_ones());
    words.sum::<u32>() + below.count_ones()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u64 = 0x5000_0000_0000;
    const B: u64 = 0x7000_0000_0000;

    fn heap(start: u64, bytes: u64) -> Heap {
        Heap { start, first: start, end: start + bytes, top: None, is_main: false }
    }

    /// Notes `chunks` (each with its link) in the order of addresses, and follows the list from `head`.
    fn followed(chunks: &[(u64, u64)], head: u64) -> Fast {
        let mut fast = Fast::new(&[heap(B, 1 << 20), heap(A, 3 << 20)]);
        let mut chunks = chunks.to_vec();
        chunks.sort_unstable();
        for (chunk, link) in chunks {
            fast.note(chunk, link);
        }
        fast.follow_notes(&[[head; 2], [0; 2]]);
        fast
    }

    /// A list through every other place of two heaps, in an order that is none of addresses.
    #[test]
    fn a_list_is_followed_from_heap_to_heap() {
        let place = |index: u64| match index % 3 {
            0 => B + (index * 7919 % 20_000) * 48,
            _ => A + (index * 104_729 % 60_000) * 48,
        };
        let mut seen = std::collections::BTreeSet::new();
        let list: Vec<u64> = (0..30_000).map(place).filter(|at| seen.insert(*at)).collect();
        let mut chunks: Vec<(u64, u64)> = list.windows(2).map(|pair| (pair[0], pair[1])).collect();
        chunks.push((list[list.len() - 1], 0));
        // In use: links that an earlier list left, and words that lead to no chunk.
        let others: Vec<u64> = (0..1000).map(|index| A + index * 48 + 16).collect();
        let before = |index: usize| {
            if index == 0 { list[99] } else { others[index - 1] }
        };
        chunks.extend(others.iter().enumerate().map(|(index, at)| match index {
            ..500 => (*at, before(index)),
            _ => (*at, *at + 32),
        }));
        let fast = followed(&chunks, list[0]);
        assert_eq!(fast.known(), Known::All);
        assert!(list.iter().all(|at| fast.has(*at)));
        assert!(!others.iter().any(|at| fast.has(*at)));
        let mut at = A;
        let mut sorted: Vec<u64> = list.clone();
        sorted.sort_unstable();
        for chunk in sorted.iter().filter(|chunk| **chunk > A) {
            at = fast.next_behind(at).unwrap();
            assert_eq!(at, *chunk);
        }
        assert_eq!(fast.next_behind(at), None);
    }

    #[test]
    fn a_circle_and_a_loose_end_are_torn() {
        let circle = followed(&[(A, A + 64), (A + 64, A)], A);
        assert_eq!(circle.known(), Known::Torn);
        assert!(circle.has(A) && circle.has(A + 64));
        let loose = followed(&[(A, A + 64)], A);
        assert_eq!(loose.known(), Known::Torn);
        assert!(loose.has(A) && !loose.has(A + 64));
        // A chunk of the list is missing: the rest of the list looks in use.
        let gap = followed(&[(A, A + 64), (A + 128, 0)], A);
        assert_eq!(gap.known(), Known::Torn);
        assert!(!gap.has(A + 128));
        assert_eq!(followed(&[], B + 8).known(), Known::Torn);
        assert_eq!(followed(&[], 0).known(), Known::All);
    }

    /// Its first chunk was taken during the walk, which saw what the program wrote there.
    #[test]
    fn a_list_whose_head_is_taken_meanwhile_is_found_by_the_next() {
        let mut fast = Fast::new(&[heap(A, 1 << 20)]);
        fast.note(A + 64, A + 128);
        fast.note(A + 128, 0);
        fast.follow_notes(&[[A, A + 64]]);
        assert_eq!(fast.known(), Known::All);
        assert!(!fast.has(A) && fast.has(A + 64) && fast.has(A + 128));
    }

    #[test]
    fn an_arena_beyond_64_gib_is_cut() {
        let fast = Fast::new(&[heap(A, 1 << 30), heap(B, 64 << 30)]);
        assert_eq!(fast.known(), Known::Cut);
        assert!(!fast.has(B) && !fast.has(A));
    }
}
