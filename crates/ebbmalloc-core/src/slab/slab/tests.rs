//! Pages, slots and bitmaps of a slab agree.

use super::*;
use crate::base::lock::Wait;
use crate::os::fake::Fake;
use crate::size::{LEAD, leads};
use crate::slab::free_pages::all_set;

/// The shapes of all classes, without a lead and with one.
fn shapes(page_shift: u32) -> impl Iterator<Item = Shape> {
    (1..=crate::size::CLASSES).flat_map(move |class| {
        let shape = Shape::new(class, page_shift);
        [Some(shape), leads(class).then_some(Shape { lead: LEAD, ..shape })].into_iter().flatten()
    })
}

#[test]
fn pages_and_slots_agree_for_every_class_and_page_size() {
    for page_shift in [12, 14, 16] {
        for shape in shapes(page_shift) {
            for page in 0..shape.pages() {
                let (first, behind) = shape.slots_on_page(page);
                let (start, end) = ((page as usize) << page_shift, (page as usize + 1) << page_shift);
                for slot in 0..shape.slots() as usize {
                    let touches = shape.pages_of_slot(slot) >> page & 1 == 1;
                    assert_eq!(touches, (first..behind).contains(&slot), "{shape:?} page {page} slot {slot}");
                    let first_byte = shape.lead + slot * shape.class.size as usize;
                    let behind = first_byte + shape.class.size as usize;
                    assert_eq!(touches, first_byte < end && behind > start, "{shape:?} page {page} slot {slot}");
                    assert!(behind <= (shape.pages() as usize) << page_shift, "{shape:?} slot {slot}");
                }
            }
        }
    }
}

/// All pairs of a first and a last bit; between them the pages are those of each slot, or of every slot.
#[test]
fn words_of_slots_have_the_pages_of_their_slots_and_the_other_way_round() {
    for shape in [12, 14, 16].into_iter().flat_map(shapes) {
        for index in 0..shape.words() {
            let count = (shape.slots() as usize - index * 64).min(64);
            let pages = |bit: usize| shape.pages_of_slot(index * 64 + bit);
            for first in 0..count {
                let mut all = pages(first);
                for last in first..count {
                    all |= pages(last);
                    let between = mask(u32_of(first), u32_of(last - first + 1));
                    assert_eq!(shape.pages_of_slots(index, between), all, "{shape:?} {index}");
                    let ends = 1 << first | 1 << last;
                    let expected = pages(first) | pages(last);
                    assert_eq!(shape.pages_of_slots(index, ends), expected, "{shape:?} {index}");
                }
            }
            let whole = (0..count).fold(0, |sum, bit| sum | pages(bit));
            assert_eq!(shape.pages_of_word(index), whole, "{shape:?} {index}");
            for page in 0..shape.pages() {
                let touching = |bit: usize| (pages(bit) >> page & 1) << bit;
                let expected = (0..count).fold(0, |sum, bit| sum | touching(bit));
                assert_eq!(shape.slots_of_word(index, 1 << page), expected, "{shape:?} {index}");
            }
        }
    }
    for (first, count) in (0..70).flat_map(|first| (0..70).map(move |count| (first, count))) {
        let wide = ((1u128 << count) - 1) << first.min(64);
        assert_eq!(mask(first, count), wide as u64 & if first < 64 { u64::MAX } else { 0 });
    }
}

#[test]
fn runs_of_bits_across_words_are_seen_whole() {
    let bitmap = [u64::MAX << 60, u64::MAX, 1];
    assert!(all_set(&bitmap, 60, 129));
    assert!(!all_set(&bitmap, 59, 129));
    assert!(!all_set(&bitmap, 60, 130));
    assert!(all_set(&bitmap, 7, 7));
}

#[test]
fn slots_on_leaving_pages_are_taken_out_and_put_back_by_words() {
    let (os, metadata) = (Fake::new(4096), Metadata::new());
    for shape in shapes(12) {
        let mut head = Granule::new(1 << 20);
        let slab = Slab(&mut head);
        // SAFETY: the descriptor is ours, and so is its bitmap.
        assert!(unsafe { slab.create(&os, &metadata, shape, true, Wait::Yes) });
        let some = 0xF0F0_0CA5_8001_0F36 & shape.all_pages();
        for pages in [some, shape.all_pages(), 1] {
            let touches = |slot: usize| shape.pages_of_slot(slot) & pages != 0;
            // SAFETY: the descriptor and its bitmap are the test's own, and all slots are free.
            unsafe {
                slab.set_slots_on_pages(shape, pages, false);
                for slot in 0..shape.slots() as usize {
                    let free = slab.bitmap(shape)[slot / 64] >> (slot % 64) & 1 == 1;
                    assert_eq!(free, !touches(slot), "{shape:?} slot {slot}");
                }
                (*slab.0).leaving = pages;
                slab.validate(shape);
                (*slab.0).leaving = 0;
                slab.set_slots_on_pages(shape, pages, true);
                slab.validate(shape);
                assert!(slab.is_whole(shape));
            }
        }
        // SAFETY: whole, and not used any more.
        unsafe { slab.destroy(&os, &metadata, shape, false) };
        assert_eq!(head.base, 1 << 20);
    }
}
