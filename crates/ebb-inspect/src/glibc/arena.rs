//! One arena: its heaps walked chunk by chunk and counted. A heap is read again if its chain breaks, because the process
//! goes on running.

use crate::heap::Quality;
use crate::memory::{Presence, Unreadable, unless_torn};

use super::census::{Census, Counting};
use super::fast::{self, Fast, Known};
use super::heaps;
use super::layout::{HEADER_BYTES, Layout};
use super::locate::Static;
use super::space::Space;
use super::walk::{self, Chunk, Stop, Visitor};

/// How often a heap is read whose chain breaks.
const ATTEMPTS: u32 = 3;
/// How often a walk is led back onto the chain.
const MAX_BREAKS: u64 = 256;

impl Space<'_> {
    /// Reads the heaps of `arena`, one again if its chain breaks. Returns their bytes.
    pub fn read_arena(
        &self,
        arena: u64,
        mut its: Vec<(heaps::Heap, Presence)>,
        found: &Static,
        quality: &mut Quality,
        all: &mut Census,
        presences: &mut Vec<Presence>,
    ) -> Result<u64, Unreadable> {
        let mut fast = self.fast_of(arena, &its)?;
        let mut known = fast.known();
        let mut walked = 0;
        for index in 0..its.len() {
            let (mut heap, mut presence) = its[index].clone();
            let start = heap.start;
            let mut look = self.walk_heap(arena, &heap, &presence, &fast, found)?;
            for _ in 1..ATTEMPTS {
                if look.breaks == 0 || look.is_late {
                    break;
                }
                // Its end has moved perhaps, and so have the lists.
                let now = match self.heaps_of(arena, found) {
                    Err(Unreadable::Late) => break,
                    now => now?,
                };
                let Some(own) = now.iter().find(|(heap, _)| heap.start == start).cloned() else {
                    break;
                };
                let again = self.fast_of(arena, &now)?;
                let second = self.walk_heap(arena, &own.0, &own.1, &again, found)?;
                if second.census.breakdown.unread.bytes < look.census.breakdown.unread.bytes {
                    (heap, presence) = own;
                    (look, known) = (second, again.known());
                    fast = again;
                }
            }
            quality.breaks += look.breaks;
            quality.counted &= !look.is_late;
            quality.swapped_bytes += presence.swapped_bytes();
            walked += look.census.breakdown.system.bytes;
            all.merge(look.census);
            its[index] = (heap, presence);
        }
        quality.fastbins_complete &= known == Known::All;
        quality.counted &= known != Known::Cut;
        presences.extend(its.into_iter().map(|(_, presence)| presence));
        Ok(walked)
    }

    /// The chunks in the fastbins of `arena`, whose heaps are `its`.
    fn fast_of(&self, arena: u64, its: &[(heaps::Heap, Presence)]) -> Result<Fast, Unreadable> {
        let mut fast = Fast::new(its.iter().map(|(heap, _)| heap));
        let mut reader = self.reader();
        let followed = fast.follow(&mut reader, &self.layout, arena);
        let is_short = match followed {
            Err(Unreadable::Late) => {
                fast.cut();
                true
            }
            followed => unless_torn(followed)?.unwrap_or(true),
        };
        if is_short {
            return Ok(fast);
        }
        let heads = || match fast::heads(&mut self.reader(), &self.layout, arena) {
            Err(Unreadable::Late) => Ok(Vec::new()),
            heads => Ok(unless_torn(heads)?.unwrap_or_default()),
        };
        let before = heads()?;
        let mut in_order: Vec<_> = its.iter().collect();
        in_order.sort_by_key(|(heap, _)| heap.start);
        for (heap, presence) in in_order {
            let mut notes = Notes { fast: &mut fast, layout: &self.layout };
            let end = self.walk_chain(arena, heap, presence, None, &mut notes)?;
            if end.is_late || fast.known() == Known::Cut {
                fast.cut();
                break;
            }
        }
        let heads: Vec<[u64; 2]> =
            before.into_iter().zip(heads()?).map(|((before, _), (after, _))| [before, after]).collect();
        if heads.is_empty() {
            fast.cut();
        }
        fast.follow_notes(&heads);
        Ok(fast)
    }

    fn walk_heap(
        &self,
        arena: u64,
        heap: &heaps::Heap,
        presence: &Presence,
        fast: &Fast,
        found: &Static,
    ) -> Result<Look, Unreadable> {
        let census = Census::new(self.layout.tcache.chunk_bytes, self.trimmer(found));
        let mut counting = Counting { census, heap, presence, fast };
        counting.begin();
        let end = self.walk_chain(arena, heap, presence, Some(fast), &mut counting)?;
        Ok(Look { census: counting.close(), breaks: end.breaks, is_late: end.is_late })
    }

    /// Walks a heap; where the chain breaks the next chunk that the arena's lists know leads back.
    fn walk_chain(
        &self,
        arena: u64,
        heap: &heaps::Heap,
        presence: &Presence,
        fast: Option<&Fast>,
        visitor: &mut impl Visitor,
    ) -> Result<End, Unreadable> {
        let mut end = End::default();
        let mut anchors: Option<Vec<u64>> = None;
        let mut from = heap.first;
        while let Some(stop) = walk::walk(self.memory, heap, presence, visitor, from)? {
            let at = match stop {
                Stop::Broken(at) => at,
                Stop::Late(at) => {
                    end.is_late = true;
                    visitor.unread(at, heap.end);
                    break;
                }
            };
            end.breaks += 1;
            let known = match &anchors {
                Some(known) => known,
                None => {
                    let known = heaps::anchors(&mut self.reader(), &self.layout, arena);
                    let known = match known {
                        Err(Unreadable::Late) => Vec::new(),
                        known => unless_torn(known)?.unwrap_or_default(),
                    };
                    anchors.insert(known)
                }
            };
            let binned = known.get(known.partition_point(|chunk| *chunk <= at)).copied();
            let fast = fast.and_then(|fast| fast.next_behind(at));
            let next = match (binned, fast) {
                (Some(binned), Some(fast)) => Some(binned.min(fast)),
                (binned, fast) => binned.or(fast),
            };
            match next.filter(|chunk| *chunk < heap.end && end.breaks < MAX_BREAKS) {
                Some(chunk) => {
                    visitor.unread(at, chunk);
                    from = chunk;
                }
                None => {
                    visitor.unread(at, heap.end);
                    break;
                }
            }
        }
        Ok(end)
    }
}

/// One walk through a heap.
struct Look {
    census: Census,
    breaks: u64,
    is_late: bool,
}

/// How a walk went.
#[derive(Default)]
struct End {
    /// Places where the chain broke.
    breaks: u64,
    /// Whether the time was over before the heap was.
    is_late: bool,
}

/// Notes the links of chunks that may be in fastbins.
struct Notes<'a> {
    fast: &'a mut Fast,
    layout: &'a Layout,
}

impl Visitor for Notes<'_> {
    fn chunk(&mut self, chunk: Chunk) {
        if let (false, Some(stored)) = (chunk.is_free, chunk.link) {
            let link = self.layout.link(chunk.at + HEADER_BYTES, stored);
            self.fast.note(chunk.at, link);
        }
    }

    fn goes_on(&self) -> bool {
        self.fast.known() != Known::Cut
    }
}
