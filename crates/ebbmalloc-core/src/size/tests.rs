//! Exhaustive: every size up to the largest small one, every alignment.
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
fn aligned_classes_are_aligned_and_large_alignments_are_refused() {
    for log2 in 0..=17 {
        let align = 1usize << log2;
        for size in (0..=SMALL_MAX).step_by(7) {
            match class_aligned(size, align) {
                Some(class) => {
                    let slot = CLASS[class].size as usize;
                    assert!(slot >= size && slot.is_multiple_of(align));
                }
                None => assert!(align > SMALL_MAX),
            }
        }
    }
}

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
