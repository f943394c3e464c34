use super::*;
use crate::base::lock::Wait;
use crate::os::fake::Fake;

const MIB: usize = 1 << 20;

fn kernel() -> Fake {
    let os = Fake::new(4096);
    os.allow_huge_pages();
    os
}

/// A block that asks if it may, and its descriptor.
fn block(arena: &Arena, os: &Fake, bytes: usize, zeroed: bool) -> *mut Granule {
    let made = arena.allocate_large(os, bytes, 1, 16, Wait::Yes).expect("memory");
    let head = arena.granule_of(made.start).expect("a block of the arena");
    // SAFETY: the block was made just now.
    unsafe { arena.ask_for_huge_pages(os, head, zeroed) };
    head
}

fn free(arena: &Arena, os: &Fake, head: *mut Granule) {
    // SAFETY: a live block, freed once.
    assert!(unsafe { arena.free_large(os, head, (*head).base, 16, Wait::Yes) });
}

/// Makes a block, frees it and returns its pages; whether it asked for huge pages.
fn asked(arena: &Arena, os: &Fake, bytes: usize, zeroed: bool) -> bool {
    let head = block(arena, os, bytes, zeroed);
    let asked = !os.record().asking.is_empty();
    free(arena, os, head);
    assert_eq!(os.record().asking, [], "the wish ends with the block");
    arena.purge(os, 20, true);
    arena.lock(os).validate();
    asked
}

#[test]
fn a_long_block_asks_for_all_but_its_first_eighth() {
    let (os, arena) = (kernel(), Arena::new());
    let head = block(&arena, &os, 256 * MIB + 4096, false);
    // SAFETY: a live block.
    let start = unsafe { (*head).base };
    assert!(start.is_multiple_of(HUGE_PAGE));
    let asking = PageRun { start: start + 34 * MIB, bytes: 222 * MIB };
    assert_eq!(os.record().asking, [asking]);
    free(&arena, &os, head);
    assert_eq!(os.record().asking, []);
}

#[test]
fn blocks_ask_as_far_as_those_of_their_size_were_filled() {
    let (os, arena) = (kernel(), Arena::new());
    assert_eq!([4, 4, 4].map(|mib| asked(&arena, &os, mib * MIB, false)), [false, false, true]);
    assert!(asked(&arena, &os, 4 * MIB, true), "a zeroed one is filled as well");
    assert!(!asked(&arena, &os, 8 * MIB, false), "another size");
    os.set_sparse(true);
    assert_eq!([4, 4].map(|mib| asked(&arena, &os, mib * MIB, false)), [true, true]);
    assert!(!asked(&arena, &os, 4 * MIB, false));
    assert_eq!([64, 64].map(|mib| asked(&arena, &os, mib * MIB, false)), [true, false]);
    assert!(!asked(&arena, &os, 128 * MIB, true));
}

#[test]
fn nothing_asks_near_a_limit_or_against_the_setting() {
    let (os, arena) = (kernel(), Arena::new());
    arena.note_scarcity(true);
    assert!(!asked(&arena, &os, 64 * MIB, false));
    arena.note_scarcity(false);
    assert!(asked(&arena, &os, 64 * MIB, false));
    let (os, arena) = (Fake::new(4096), Arena::new());
    assert!(!asked(&arena, &os, 64 * MIB, false));
}

#[test]
fn a_huge_page_of_which_a_part_is_returned_is_split_once() {
    let (os, arena) = (kernel(), Arena::new());
    let head = block(&arena, &os, 64 * MIB, false);
    // SAFETY: a live block.
    let start = unsafe { (*head).base };
    // SAFETY: as above.
    assert!(unsafe { arena.resize_large(&os, head, 33 * MIB, 16) });
    arena.purge(&os, 20, true);
    assert_eq!(os.record().split, [start + 33 * MIB]);
    // SAFETY: as above.
    assert!(unsafe { arena.resize_large(&os, head, 32 * MIB + 64 * 1024, 16) });
    arena.purge(&os, 20, true);
    assert_eq!(os.record().split.len(), 1);
    free(&arena, &os, head);
    arena.purge(&os, 20, true);
    assert_eq!(os.record().split.len(), 1, "what goes whole is not split");
}

#[test]
fn a_frame_is_cut_into_slabs_and_stops_asking_with_the_next() {
    let (os, arena) = (kernel(), Arena::new());
    let mut last = 0;
    let mut extents = arena.lock(&os);
    let first = arena.allocate_frame(&os, &mut extents, 5, 2, &mut last).expect("memory");
    // SAFETY: made just now.
    let start = unsafe { (*first).base };
    assert_eq!(os.record().asking, [PageRun { start, bytes: HUGE_PAGE }]);
    assert_eq!(arena.class_of(start + HUGE_PAGE - 1), 5);
    let next = arena.allocate_frame(&os, &mut extents, 5, 2, &mut last).expect("memory");
    // SAFETY: made just now.
    assert_eq!(os.record().asking, [PageRun { start: unsafe { (*next).base }, bytes: HUGE_PAGE }]);
    for index in 0..FRAME / 2 {
        let slab = first.wrapping_add(2 * index as usize);
        // SAFETY: slabs of this arena, which no thread uses.
        unsafe { arena.free_slab(&mut extents, slab, 2, (*slab).fill, 16) };
    }
    extents.validate();
    let third = arena.allocate_frame(&os, &mut extents, 5, 2, &mut last);
    assert!(third.is_none(), "memory that is resident already is used first");
}
