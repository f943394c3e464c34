//! Finds malloc's static data in libc's writable mapping: the main arena and the parameters.
//!
//! Neither has a symbol in a stripped libc. The main arena is recognised by the ring of `next` pointers
//! through all arenas and by bins whose empty lists point at themselves; the parameters by fields that must agree
//! with each other and with the heap. Both must be unique.

use crate::exact::usize_of;
use crate::memory::{Memory, Page, Reader, Unreadable, unless_torn};
use crate::target::Mapping;

use super::layout::{BINS, HEADER_BYTES, Layout};

/// More static data than any libc or program has that is looked through.
const MAX_STATIC_BYTES: u64 = 64 << 20;
/// More arenas than there can be: 8 for each processor by default.
const MAX_ARENAS: usize = 1 << 16;

/// malloc's parameters (`mp_`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    pub trim_threshold: u64,
    pub mmap_threshold: u64,
    pub arena_max: u64,
    pub thp_page_bytes: u64,
    pub huge_page_bytes: u64,
    pub mmapped_chunks: u64,
    pub is_fixed: bool,
    pub mmapped_bytes: u64,
    pub sbrk_base: u64,
}

/// What the static data says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Static {
    /// Addresses of all arenas, the main one first.
    pub arenas: Vec<u64>,
    /// The parameters; `None` if they could not be distinguished from other data.
    pub parameters: Option<Parameters>,
}

impl Static {
    /// Whether it rounds to transparent huge pages (`glibc.malloc.hugetlb=1`).
    pub fn asks_for_huge_pages(&self) -> bool {
        self.parameters.is_some_and(|parameters| parameters.thp_page_bytes != 0)
    }
}

/// Looks through the writable parts of libc's file, `data`. `heap` is the area that brk moves.
pub fn locate(
    reader: &mut Reader<'_>,
    layout: &Layout,
    data: &[&Mapping],
    heap: Option<(u64, u64)>,
) -> Result<Option<Static>, Unreadable> {
    let mut arenas: Option<Vec<u64>> = None;
    let mut candidates = Vec::new();
    for mapping in data.iter().filter(|mapping| mapping.len() <= MAX_STATIC_BYTES) {
        let words = Words::read(reader.memory(), mapping.start, mapping.end)?;
        for address in (mapping.start..mapping.end).step_by(8) {
            if let Some(ring) = main_arena(reader, &words, layout, address)? {
                if arenas.is_some() {
                    return Ok(None);
                }
                arenas = Some(ring);
            }
            candidates.extend(parameters(&words, layout, address, heap));
        }
    }
    let parameters = match candidates.as_slice() {
        [only] => Some(*only),
        // Untouched defaults decide between several.
        several => {
            let mut likely = several.iter().filter(|(_, is_default)| *is_default);
            likely.next().filter(|_| likely.next().is_none()).copied()
        }
    };
    Ok(arenas.map(|arenas| Static { arenas, parameters: parameters.map(|(parameters, _)| parameters) }))
}

/// A copy of a range; words on absent pages are `None`.
struct Words {
    start: u64,
    present: Vec<bool>,
    bytes: Vec<u8>,
    page_bytes: u64,
}

impl Words {
    fn read(memory: &dyn Memory, start: u64, end: u64) -> Result<Self, Unreadable> {
        let page_bytes = memory.page_bytes();
        let mut pages = vec![Page::Absent; usize_of((end - start).div_ceil(page_bytes))];
        memory.pages(start, &mut pages)?;
        let mut words = Self {
            start,
            present: Vec::with_capacity(pages.len()),
            bytes: vec![0; pages.len() * usize_of(page_bytes)],
            page_bytes,
        };
        let copies = words.bytes.chunks_mut(usize_of(page_bytes));
        for ((index, page), copy) in (0u64..).zip(&pages).zip(copies) {
            let at = start + index * page_bytes;
            let is_there = *page == Page::Present && unless_torn(memory.copy(&[(at, copy.len())], copy))?.is_some();
            words.present.push(is_there);
        }
        Ok(words)
    }

    fn word(&self, address: u64) -> Option<u64> {
        let at = address.checked_sub(self.start)?;
        if !*self.present.get(usize_of(at / self.page_bytes))? {
            return None;
        }
        let at = usize_of(at);
        let bytes = self.bytes.get(at..at + 8)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }

    fn int(&self, address: u64) -> Option<u64> {
        let word = self.word(address & !7)?;
        Some(if address & 4 == 0 { word & 0xffff_ffff } else { word >> 32 })
    }
}

/// All arenas, if the main one is at `address`.
fn main_arena(
    reader: &mut Reader<'_>,
    words: &Words,
    layout: &Layout,
    address: u64,
) -> Result<Option<Vec<u64>>, Unreadable> {
    let fields = &layout.arena;
    let word = |offset| words.word(address + offset);
    let (Some(next), Some(top), Some(system), Some(most), Some(attached)) = (
        word(fields.next),
        word(fields.top),
        word(fields.system_mem),
        word(fields.max_system_mem),
        word(fields.attached_threads),
    ) else {
        return Ok(None);
    };
    let is_first_state = system == 0 && (top == 0 || top == initial_top(layout, address));
    if next == 0
        || next % 8 != 0
        || system > most
        || most >= 1 << 47
        || attached >= 1 << 22
        || (!is_first_state && (system == 0 || top % HEADER_BYTES != 0 || top < system))
    {
        return Ok(None);
    }
    // Before the first request nothing but the ring is filled in.
    if top == 0 {
        let is_blank = (0..fields.next).step_by(8).all(|at| word(at) == Some(0));
        return Ok((next == address && attached == 1 && is_blank).then(|| vec![address]));
    }
    if !bins_agree(words, layout, address) {
        return Ok(None);
    }
    let mut ring = vec![address];
    let mut next = next;
    while next != address {
        // A secondary arena lies after the head of its first heap.
        if next % (1 << 20) != layout.heap_head_bytes || ring.len() == MAX_ARENAS {
            return Ok(None);
        }
        ring.push(next);
        let following = unless_torn(reader.word(next.wrapping_add(fields.next)))?;
        let Some(following) = following else {
            return Ok(None);
        };
        next = following;
    }
    Ok(Some(ring))
}

/// What `top` is before the arena has memory: the head of the unsorted bin, seen as a chunk.
pub fn initial_top(layout: &Layout, arena: u64) -> u64 {
    arena + layout.arena.bins - HEADER_BYTES
}

/// Whether each bin is a list: empty, so that it points at itself, or with both ends elsewhere.
fn bins_agree(words: &Words, layout: &Layout, arena: u64) -> bool {
    (0..BINS as u64).all(|index| {
        let bin = arena + layout.arena.bins + index * 16;
        let own = bin - HEADER_BYTES;
        match (words.word(bin), words.word(bin + 8)) {
            (Some(first), Some(last)) if first == own || last == own => first == last,
            (Some(first), Some(last)) => [first, last].iter().all(|chunk| *chunk != 0 && chunk % HEADER_BYTES == 0),
            _ => false,
        }
    })
}

/// Huge pages are up to 16 GiB.
fn is_page_size(bytes: u64) -> bool {
    bytes.is_power_of_two() && (1 << 12..=1 << 34).contains(&bytes)
}

/// The parameters, if they are at `address`, and whether their settings are the built-in ones.
fn parameters(words: &Words, layout: &Layout, address: u64, heap: Option<(u64, u64)>) -> Option<(Parameters, bool)> {
    let fields = &layout.parameters;
    let word = |offset| words.word(address + offset);
    let int = |offset| words.int(address + offset);
    let optional = |offset: Option<u64>| offset.map_or(Some(0), word);
    let tcache_bins = word(fields.tcache_bins)?;
    let tcache_max_bytes = word(fields.tcache_bins + 8)?;
    let tcache_count = word(fields.tcache_bins + 16)?;
    // A libc without thread caches is not among the versions that are known.
    if tcache_bins == 0 || tcache_bins > layout.tcache.bins as u64 {
        return None;
    }
    if tcache_max_bytes > 8 << 20 || tcache_count > 0xffff {
        return None;
    }
    let (chunks, limit, most) = (int(fields.n_mmaps)?, int(fields.n_mmaps + 4)?, int(fields.n_mmaps + 8)?);
    let (mmapped, most_mmapped) = (word(fields.mmapped_mem)?, word(fields.mmapped_mem + 8)?);
    let no_dynamic = int(fields.no_dyn_threshold)?;
    let sbrk_base = word(fields.sbrk_base)?;
    let huge_pages = [optional(fields.thp_pagesize)?, optional(fields.hp_pagesize)?];
    let arena_test = word(0x18)?;
    let agrees = chunks <= most
        && (chunks == 0) == (mmapped == 0)
        && mmapped <= most_mmapped
        && mmapped % layout.mmapped_unit() == 0
        && no_dynamic <= 1
        && arena_test <= 1 << 20
        && huge_pages.iter().all(|bytes| *bytes == 0 || is_page_size(*bytes))
        && match heap {
            Some((start, end)) => (start..end).contains(&sbrk_base) || sbrk_base == 0,
            None => true,
        };
    agrees.then_some((
        Parameters {
            trim_threshold: word(0)?,
            mmap_threshold: word(0x10)?,
            arena_max: word(0x20)?,
            thp_page_bytes: huge_pages[0],
            huge_page_bytes: huge_pages[1],
            mmapped_chunks: chunks,
            is_fixed: no_dynamic == 1,
            mmapped_bytes: mmapped,
            sbrk_base,
        },
        limit == 65536 && arena_test == 8 && tcache_bins == 64,
    ))
}
