//! Which explicit arena an address belongs to: a tree of two levels over units of 2 MiB, without locks
//! for those who look. Asked only for addresses that lie in no region of the heap's own arena.

use crate::base::lock::Wait;
use crate::base::metadata::Metadata;
use crate::os::{Os, OsError};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU16, Ordering};

/// Regions of explicit arenas start and end at multiples of this.
pub const UNIT: usize = 2 << 20;
/// Addresses that a program gets unless it asks for others.
const ADDRESS_BITS: u32 = 48;
const LEAF_BITS: u32 = 15;
const ROOT_BITS: u32 = ADDRESS_BITS - UNIT.trailing_zeros() - LEAF_BITS;

type Leaf = [AtomicU16; 1 << LEAF_BITS];
type Root = [AtomicPtr<Leaf>; 1 << ROOT_BITS];

/// See the module. Nodes are made when first needed and stay. A node is published by a compare-and-swap
/// with release, which pairs with the acquire of a look-up; entries are relaxed: the thread that holds an
/// address in a unit got it after the entry was written, by whatever way it got it.
pub struct OwnerMap {
    root: AtomicPtr<Root>,
}

impl OwnerMap {
    /// No address belongs to anybody.
    pub const fn new() -> Self {
        Self { root: AtomicPtr::new(null_mut()) }
    }

    /// The owner of the unit that `address` lies in.
    #[inline]
    pub fn owner(&self, address: usize) -> Option<u16> {
        let unit = address / UNIT;
        // SAFETY: null or a node that stays.
        let root = unsafe { self.root.load(Ordering::Acquire).as_ref() }?;
        let leaf = root.get(unit >> LEAF_BITS)?.load(Ordering::Acquire);
        // SAFETY: a leaf is null or a node that is never returned.
        let leaf = unsafe { leaf.as_ref() }?;
        match leaf[unit % (1 << LEAF_BITS)].load(Ordering::Relaxed) {
            0 => None,
            owner => Some(owner - 1),
        }
    }

    /// Notes that `[start, start + bytes)`, whole units, belong to `owner`. An error if there is no
    /// memory for that, or the range lies too high: nothing is noted then that matters to anybody.
    pub fn set<O: Os>(
        &self,
        os: &O,
        metadata: &Metadata,
        start: usize,
        bytes: usize,
        owner: u16,
    ) -> Result<(), OsError> {
        if start.checked_add(bytes).is_none_or(|end| end > 1 << ADDRESS_BITS) {
            return Err(OsError::Invalid);
        }
        for unit in start / UNIT..(start + bytes) / UNIT {
            self.entry(os, metadata, unit).ok_or(OsError::OutOfMemory)?.store(owner + 1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Notes that the range has no owner any more.
    pub fn clear(&self, start: usize, bytes: usize) {
        for unit in start / UNIT..(start + bytes) / UNIT {
            // SAFETY: null or a node that stays.
            let root = unsafe { self.root.load(Ordering::Acquire).as_ref() };
            let leaf = root.and_then(|root| {
                let leaf = root.get(unit >> LEAF_BITS)?.load(Ordering::Acquire);
                // SAFETY: a leaf is null or a node that is never returned.
                unsafe { leaf.as_ref() }
            });
            if let Some(leaf) = leaf {
                leaf[unit % (1 << LEAF_BITS)].store(0, Ordering::Relaxed);
            }
        }
    }

    fn entry<O: Os>(&self, os: &O, metadata: &Metadata, unit: usize) -> Option<&AtomicU16> {
        let root = node(os, metadata, &self.root)?;
        let leaf = node(os, metadata, root.get(unit >> LEAF_BITS)?)?;
        Some(&leaf[unit % (1 << LEAF_BITS)])
    }
}

/// The node at `place`, made if there is none.
fn node<'a, N, O: Os>(os: &O, metadata: &Metadata, place: &'a AtomicPtr<N>) -> Option<&'a N> {
    let known = place.load(Ordering::Acquire);
    // SAFETY: null or a node that stays.
    if let Some(node) = unsafe { known.as_ref() } {
        return Some(node);
    }
    let piece = metadata.allocate(os, size_of::<N>(), Wait::Yes)?;
    let made = piece.cast::<N>();
    // SAFETY: the piece is ours and long enough; zeros are empty entries of either node.
    unsafe { made.write_bytes(0, 1) };
    let swap = place.compare_exchange(null_mut(), made.as_ptr(), Ordering::AcqRel, Ordering::Acquire);
    match swap {
        // SAFETY: published just now, for ever.
        Ok(_) => Some(unsafe { made.as_ref() }),
        Err(theirs) => {
            // SAFETY: no other thread has seen ours; theirs is a node that stays.
            unsafe {
                metadata.free(os, piece, size_of::<N>(), false);
                theirs.as_ref()
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::os::fake::Fake;

    #[test]
    fn what_was_noted_is_found_and_nothing_else() {
        let (os, metadata, map) = (Fake::new(4096), Metadata::new(), OwnerMap::new());
        assert_eq!(map.owner(0x7fff_1234_5678), None);
        for (start, owner) in [(5 * UNIT, 7), ((1 << 47) - UNIT, 4093), (1 << 40, 0)] {
            map.set(&os, &metadata, start, UNIT, owner).unwrap();
            for address in [start, start + 1, start + UNIT - 1] {
                assert_eq!(map.owner(address), Some(owner));
            }
            assert_eq!(map.owner(start - 1), None);
            assert_eq!(map.owner(start + UNIT), None);
            map.clear(start, UNIT);
            assert_eq!(map.owner(start), None);
        }
        assert_eq!(map.owner(usize::MAX), None);
        assert_eq!(map.set(&os, &metadata, 1 << 48, UNIT, 1), Err(OsError::Invalid));
        assert_eq!(map.set(&os, &metadata, usize::MAX - UNIT + 1, UNIT, 1), Err(OsError::Invalid));
    }

    #[test]
    fn a_range_may_cross_nodes() {
        let (os, metadata, map) = (Fake::new(4096), Metadata::new(), OwnerMap::new());
        let start = (UNIT << LEAF_BITS) - UNIT;
        map.set(&os, &metadata, start, 2 * UNIT, 3).unwrap();
        assert_eq!(map.owner(start), Some(3));
        assert_eq!(map.owner(start + UNIT), Some(3));
        map.clear(start, 2 * UNIT);
        assert_eq!(map.owner(start + UNIT), None);
    }
}
