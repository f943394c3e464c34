//! Size classes: which slot a request gets. Pure and const; every layer above uses it.
//!
//! Classes are numbered from 1; number 0 means "no class" (large or unknown), so that a zeroed byte
//! map says so. Up to 128 bytes they are 16 apart, above there are eight to a doubling, which wastes
//! at most 1/9 of a slot: within the 12.5 % that we promise, at half the classes of a finer grid. From
//! 512 bytes to 1024 there are sixteen: `docs/decisions/0006-granules.md` tells why.
#![forbid(unsafe_code)]

pub mod large;

use crate::base::exact::u32_of;

/// Distance of the smallest classes, and the alignment that every block has at least.
pub const QUANTUM: usize = 16;
/// Largest request that is served from a slab; larger ones are large blocks.
pub const SMALL_MAX: usize = 64 * 1024;
/// Number of size classes; they are numbered `1..=CLASSES`.
pub const CLASSES: usize = 88;
/// Bytes before the first slot of a slab that has a lead ([`leads`]).
pub const LEAD: usize = 48;
/// Largest slot of which a slab may have a lead.
pub const LEAD_MAX: usize = 512;
/// Largest request whose class is looked up in a table; the class of larger ones is computed.
pub const QUICK_MAX: usize = 1024;
/// The unit in which address space is cut: a slab or a large block is a whole number of granules.
pub const GRANULE: usize = 64 * 1024;
/// Largest block, and largest alignment: all the address space that a program has on x86-64, where no mapping can
/// be as large, and half of that on aarch64. The granules of a block fit 32 bits, and so do those of two.
pub const BLOCK_MAX: usize = 1 << 47;

const LINEAR_CLASSES: usize = 8;
/// log2 of where the first doubling begins.
const DOUBLINGS_FROM: u32 = 7;
/// log2 of where the doubling begins whose classes are half as far apart as those of the others.
const FINE_DOUBLING: u32 = 9;

/// log2 of the number of classes in the doubling that begins at 2^`log2`.
const fn steps_log2(log2: u32) -> u32 {
    if log2 == FINE_DOUBLING { 4 } else { 3 }
}

/// The last class before those of the doubling that begins at 2^`log2`.
const fn class_before(log2: u32) -> usize {
    let finer = if log2 > FINE_DOUBLING { 8 } else { 0 };
    LINEAR_CLASSES + (log2 - DOUBLINGS_FROM) as usize * 8 + finer
}

/// Whether there can be a block of `size` bytes aligned to `align`: the one check of sizes. Everything that computes with
/// the size of a large block comes after it.
pub const fn is_possible(size: usize, align: usize) -> bool {
    size <= BLOCK_MAX && align <= BLOCK_MAX
}

/// Granules that hold `bytes`, at most [`BLOCK_MAX`]; at least one.
pub const fn granules_for(bytes: usize) -> u32 {
    debug_assert!(bytes <= BLOCK_MAX);
    let granules = bytes.div_ceil(GRANULE);
    if granules == 0 { 1 } else { u32_of(granules) }
}

/// Class of a request of `size` bytes.
///
/// Precondition: `size <= SMALL_MAX`; a request of 0 bytes gets the smallest slot.
#[inline(always)]
pub const fn class_of(size: usize) -> usize {
    if size <= 128 {
        let size = if size == 0 { 1 } else { size };
        return size.div_ceil(QUANTUM);
    }
    let last = size - 1;
    let log2 = usize::BITS - 1 - last.leading_zeros();
    let steps = steps_log2(log2);
    let step = (last >> (log2 - steps)) - (1 << steps);
    class_before(log2) + step + 1
}

const fn size_of_class(class: usize) -> usize {
    if class <= LINEAR_CLASSES {
        return class * QUANTUM;
    }
    let mut log2 = DOUBLINGS_FROM;
    while class > class_before(log2 + 1) {
        log2 += 1;
    }
    let steps = steps_log2(log2);
    ((1 << steps) + class - class_before(log2)) << (log2 - steps)
}

/// What is known of a class; the table [`CLASS`] has one for each number.
#[derive(Clone, Copy, Debug)]
pub struct Class {
    /// Size of a slot in bytes.
    pub size: u32,
    /// Slots in a slab.
    pub slots: u32,
    /// Granules in a slab.
    pub granules: u32,
    /// `ceil(2^40 / size)`: turns the division of an offset by the size into a multiplication, exact
    /// for every offset of a slab (below 2^18) since 2^18 * size < 2^40.
    pub inverse: u64,
    /// Most slots that a thread cache keeps.
    pub cache_slots: u32,
}

impl Class {
    /// Number of the slot that `offset` bytes into a slab lie in.
    #[inline(always)]
    pub const fn slot_of(&self, offset: usize) -> usize {
        ((offset as u64 * self.inverse) >> 40) as usize
    }
}

/// A slab's pages fit one 64-bit word (four granules of 4 KiB pages), and from 1 KiB on its slots
/// do too, so that the bitmap of slots lies inside the descriptor.
const fn granules_of(size: usize) -> usize {
    if size <= 2048 {
        1
    } else if size <= 4096 {
        2
    } else {
        4
    }
}

/// A cache keeps up to 128 KiB of a class, and no fewer than 7 slots (a batch that is worth a lock; 3 of
/// those above 32 KiB) nor more than 2047. One less than a power of two: a stack has one word more than it has entries.
const fn cache_slots_of(size: usize) -> usize {
    let slots = 128 * 1024 / size;
    let slots = if size > 32 * 1024 {
        4
    } else if slots < 8 {
        8
    } else if slots > 2048 {
        2048
    } else {
        slots
    };
    (1 << slots.ilog2()) - 1
}

const fn class(number: usize) -> Class {
    if number == 0 {
        return Class { size: 0, slots: 0, granules: 0, inverse: 0, cache_slots: 0 };
    }
    let size = size_of_class(number);
    let granules = granules_of(size);
    Class {
        size: u32_of(size),
        slots: u32_of(granules * GRANULE / size),
        granules: u32_of(granules),
        inverse: (1u64 << 40).div_ceil(size as u64),
        cache_slots: u32_of(cache_slots_of(size)),
    }
}

/// The size classes by number; entry 0 is "no class".
pub static CLASS: [Class; CLASSES + 1] = {
    let mut table = [class(0); CLASSES + 1];
    let mut number = 1;
    while number <= CLASSES {
        table[number] = class(number);
        number += 1;
    }
    table
};

/// Whether slabs of `class` have a lead in a heap that keeps CPython's objects. CPython puts 16 bytes for its collector
/// before an object. After a lead of 48 bytes, objects whose sizes are multiples of 64 bytes begin with a cache line,
/// and the line that ends one has the collector's bytes of the next: the collector finds them in the cache.
/// `docs/decisions/0038-cpython.md` has figures. Such slots are aligned to [`QUANTUM`] only.
pub const fn leads(class: usize) -> bool {
    let size = CLASS[class].size as usize;
    size >= 64 && size <= LEAD_MAX && size.is_multiple_of(32)
}

/// Smallest class whose slots hold `size` bytes and are all aligned to `align` (a power of two), or
/// `None` if only a large block can be.
///
/// Slots start at multiples of their size from a granule's start, so a slot is aligned to the
/// largest power of two that divides its size. Slabs with a lead ([`leads`]) are another matter.
pub fn class_aligned(size: usize, align: usize) -> Option<usize> {
    if align <= QUANTUM {
        return (size <= SMALL_MAX).then(|| class_of(size));
    }
    if size > SMALL_MAX || align > SMALL_MAX {
        return None;
    }
    let mut class = class_of(size.max(align));
    while class <= CLASSES {
        if (CLASS[class].size as usize).is_multiple_of(align) {
            return Some(class);
        }
        class += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::large::{LARGE_CLASSES, large_class_of, large_class_size};
    use super::*;

    #[test]
    fn every_small_size_fits_its_class_and_no_smaller_one() {
        for size in 0..=SMALL_MAX {
            let class = class_of(size);
            assert!((1..=CLASSES).contains(&class), "{size}");
            assert!(CLASS[class].size as usize >= size);
            if class > 1 {
                assert!((CLASS[class - 1].size as usize) < size.max(1), "{size}");
            }
            if size <= QUICK_MAX {
                // What the table of the fast path rests on.
                let rounded = size.div_ceil(QUANTUM) * QUANTUM;
                assert_eq!(class_of(rounded), class, "{size}");
            }
        }
    }

    #[test]
    fn waste_above_128_bytes_is_at_most_an_eighth_and_half_of_it_in_the_finer_doubling() {
        for size in 129..=SMALL_MAX {
            let slot = CLASS[class_of(size)].size as usize;
            let share = if (513..=1024).contains(&size) { 16 } else { 8 };
            assert!((slot - size) * share <= slot, "{size} in {slot}");
        }
    }

    #[test]
    fn the_inverse_divides_exactly_at_every_offset_of_a_slab() {
        for class in &CLASS[1..] {
            for offset in 0..class.granules as usize * GRANULE {
                assert_eq!(class.slot_of(offset), offset / class.size as usize);
            }
        }
    }

    #[test]
    fn slabs_fit_their_bitmaps() {
        for class in &CLASS[1..] {
            assert!(class.granules <= 4);
            assert!(class.slots >= 4 && class.slots <= 4096);
            assert!(class.size < 1024 || class.slots <= 64);
        }
    }

    #[test]
    fn aligned_classes_are_the_smallest_and_large_alignments_are_refused() {
        for align in (0..=17).map(|log2| 1usize << log2) {
            for size in 0..=SMALL_MAX {
                let fits = |class: &usize| {
                    let slot = CLASS[*class].size as usize;
                    slot >= size && slot.is_multiple_of(align)
                };
                let from = class_of(size);
                assert_eq!(class_aligned(size, align), (from..=CLASSES).find(fits), "{size} {align}");
            }
        }
    }

    /// The number of granules never falls as the size grows, so the two sizes at each step speak for those between.
    #[test]
    fn granules_hold_what_is_larger_than_one_fewer() {
        let counts = (1..1 << 16).chain((16..31).flat_map(|log2| [-1, 0, 1].map(|it| (1 << log2) + it)));
        for count in counts {
            let bytes = count as usize * GRANULE;
            assert_eq!(granules_for(bytes), count as u32);
            assert_eq!(granules_for(bytes + 1), count as u32 + 1);
        }
        assert_eq!((granules_for(0), granules_for(BLOCK_MAX)), (1, 1 << 31));
    }

    /// A class follows from the three highest bits of the size less one: it is that of all sizes between two that share them.
    #[test]
    fn a_class_holds_what_is_larger_than_the_one_before() {
        assert_eq!(large_class_size(0), 80 << 10);
        assert_eq!(large_class_size(LARGE_CLASSES - 1), 7 << 60);
        for class in 1..LARGE_CLASSES {
            let (before, size) = (large_class_size(class - 1), large_class_size(class));
            assert!(size > before);
            assert_eq!(large_class_of(size), class);
            assert_eq!(large_class_of(before + 1), class);
        }
        assert_eq!(large_class_of(0), 0);
        assert_eq!(large_class_of(usize::MAX), LARGE_CLASSES - 1);
    }
}
