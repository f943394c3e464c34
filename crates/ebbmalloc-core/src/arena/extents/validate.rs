//! The validator of the extents: what always holds of them, checked unit by unit after every step of
//! the tests.

use super::Extents;
use crate::arena::granule::{Fill, Kind};
use crate::base::best_fit::BestFit;
use crate::base::list::Walk;
use crate::size::GRANULE;

impl Extents {
    /// As a change might leave them that was never completed, or worse.
    pub fn tear(&mut self) {
        self.dirty = BestFit::torn();
        self.clean = BestFit::torn();
        self.aging = Walk::torn();
        self.stale = Walk::torn();
        self.tails = Walk::torn();
        self.dirty_granules = 1 << 40;
        self.leaving_granules = 7;
    }

    /// Walks all regions unit by unit and checks every invariant of this file; returns how many units
    /// are not free.
    pub fn validate(&self) -> usize {
        let mut listed = std::collections::BTreeSet::new();
        for (extents, fill) in [(&self.dirty, Fill::Dirty), (&self.clean, Fill::Clean)] {
            // SAFETY: `&self` is reached through the lock.
            unsafe {
                extents.validate(&mut |node| {
                    assert_eq!((*node).fill, fill);
                    listed.insert((*node).base);
                });
            }
        }
        let (mut dirty, mut clean, mut hollow, mut used) = (0, 0, 0, 0);
        for region in &self.regions[..self.count] {
            let mut index = region.abandoned;
            let mut previous = None;
            while index < region.top {
                let head = region.descriptor(index);
                // SAFETY: every index below `top` has a descriptor.
                unsafe {
                    let len = (*head).len;
                    assert!(len > 0 && index + len as usize <= region.top);
                    assert_eq!((*head).base & !(GRANULE - 1), region.base + index * GRANULE);
                    assert_eq!((*head).head, head, "{:?}", (*head).kind);
                    let last = head.wrapping_add(len as usize - 1);
                    assert_eq!((*last).head, head);
                    if (*head).kind == Kind::Free {
                        let joined = previous != Some((*head).fill);
                        assert!(joined || !self.borders.joins_all(), "unmerged neighbours");
                        assert!(listed.remove(&(*head).base));
                        assert_eq!((*last).kind, Kind::Free);
                        previous = Some((*head).fill);
                        if (*head).fill == Fill::Dirty {
                            dirty += len as usize;
                            let mut at = 0;
                            while at < len {
                                let run = head.wrapping_add(at as usize);
                                assert!((*run).stamp >= (*head).oldest && (*run).free > 0);
                                at += (*run).free;
                            }
                            assert_eq!(at, len, "runs end with their extent");
                        } else {
                            clean += len as usize;
                            hollow += self.hollow_inside(head);
                        }
                    } else {
                        previous = None;
                        used += 1;
                        if len > 1 {
                            assert!(matches!((*last).kind, Kind::LargeTail | Kind::SlabTail | Kind::Leaving));
                        }
                    }
                    index += len as usize;
                }
            }
        }
        assert!(listed.is_empty());
        assert_eq!((dirty, clean), (self.dirty_granules, self.clean_granules));
        assert_eq!(hollow, self.hollow_bytes);
        used
    }
}
