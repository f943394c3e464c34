//! Explicit arenas and caches over the fake kernel: where blocks lie, what a reset and an end leave
//! of it, what decay times do. What other tests use of it is `pub(super)`.

use super::{Thread, become_child, usable, validate, with_access};
use crate::cache::explicit::ExplicitArena;
use crate::heap::explicit_life::Moved;
use crate::heap::{Access, Heap};
use crate::os::fake::{Call, Fake};
use crate::os::{OsError, Scarce};
use crate::size::SMALL_MAX;
use core::ptr::null_mut;

pub(super) const SIZES: [usize; 6] = [1, 100, 5000, SMALL_MAX, SMALL_MAX + 1, 700 << 10];

pub(super) fn heap() -> Heap<Fake> {
    let heap = Heap::new(Fake::new(4096));
    heap.limit_shards(2);
    heap
}

pub(super) fn allocate_in(heap: &Heap<Fake>, thread: Thread, arena: &ExplicitArena, size: usize) -> *mut u8 {
    let block = with_access(thread, |access| heap.allocate_in(arena, access, size, 1).0);
    assert!(!block.is_null());
    // SAFETY: the block is ours and at least `size` bytes long.
    unsafe { block.write_bytes(0x5a, size) };
    block
}

/// Past the cache. The tests free each block once.
pub(super) fn free(heap: &Heap<Fake>, thread: Thread, block: *mut u8) {
    // SAFETY: the block is live: the tests free each block once.
    with_access(thread, |access| unsafe { heap.free(access, block) });
}

/// The tests use no block of an arena that they end.
pub(super) fn end(heap: &Heap<Fake>, thread: Thread, arena: &ExplicitArena) -> bool {
    // SAFETY: no block of the arena is used: the tests end an arena after its blocks.
    with_access(thread, |access| unsafe { heap.end_arena(access, arena) })
}

pub(super) fn moves(heap: &Heap<Fake>, thread: Thread, index: usize) {
    let moved = with_access(thread, |access| heap.move_cache(access, index));
    assert_eq!(moved, Moved::Done);
}

/// Every validator of an explicit arena; returns the slabs and large blocks that there are.
pub(super) fn validate_arena(heap: &Heap<Fake>, arena: &ExplicitArena) -> usize {
    for (class, bin) in arena.bins() {
        bin.lock(&heap.os).validate(crate::slab::shape::Shape::new(class, 12));
    }
    arena.arena.lock(&heap.os).validate()
}

#[test]
fn blocks_lie_in_their_arena_and_come_back_from_anywhere() {
    let heap = heap();
    let thread = heap.attach();
    let arenas: Vec<_> = (0..3).map(|_| heap.create_arena(null_mut(), 1000).unwrap()).collect();
    assert_eq!(heap.arena_indices(), 5);
    let mut blocks = Vec::new();
    for size in SIZES {
        for &arena in &arenas {
            let block = allocate_in(&heap, thread, arena, size);
            assert_eq!(heap.arena_of(block as usize + size - 1), Some(heap.index_of(arena)));
            assert!(usable(&heap, block) >= size);
            blocks.push(block);
        }
        let own = super::allocate(&heap, thread, size);
        assert!(heap.arena_of(own as usize).unwrap() < 2);
        blocks.push(own);
    }
    assert_eq!(heap.arena_of(&raw const heap as usize), None);
    validate(&heap);
    for (turn, block) in blocks.into_iter().enumerate() {
        let thread = if turn % 2 == 0 { thread } else { None };
        free(&heap, thread, block);
    }
    heap.trim(None);
    for arena in arenas {
        assert_eq!(validate_arena(&heap, arena), 0);
    }
    let statistics = heap.statistics(None, true);
    assert_eq!((statistics.live, statistics.resident), (0, 0));
}

#[test]
fn what_an_arena_has_free_is_given_up_where_something_is_scarce() {
    for scarce in [Scarce::Charge, Scarce::Addresses] {
        let heap = heap();
        let thread = heap.attach();
        let arena = heap.create_arena(null_mut(), 1000).unwrap();
        let sizes = [100, 700 << 10, 32 << 20];
        let blocks = sizes.map(|size| allocate_in(&heap, thread, arena, size));
        free(&heap, thread, blocks[2]);
        heap.trim(None);
        let before = heap.os.record().committed_bytes;
        heap.os.set_scarce(scarce);
        heap.trim(None);
        let given = before - heap.os.record().committed_bytes;
        assert!(given >= 28 << 20, "{given}");
        validate_arena(&heap, arena);
        // Returned addresses have no owner, and come back as the arena's.
        let middle = blocks[2] as usize + (16 << 20);
        let owned = scarce == Scarce::Charge;
        assert_eq!(heap.arena_of(middle).is_some(), owned);
        let again = allocate_in(&heap, thread, arena, 20 << 20);
        assert_eq!(heap.arena_of(again as usize), Some(heap.index_of(arena)));
        assert!(heap.os.record().committed_bytes > before - given + (19 << 20));
        validate_arena(&heap, arena);
        free(&heap, thread, again);
        free(&heap, thread, blocks[0]);
        heap.trim(None);
        // The end does not touch what is not the arena's any more.
        assert!(end(&heap, thread, arena));
    }
}

#[test]
fn a_thread_keeps_no_slot_of_an_arena_that_it_is_not_on() {
    let heap = heap();
    let thread = heap.attach();
    let arena = heap.create_arena(null_mut(), 1000).unwrap();
    for size in [1, 100, 5000] {
        let foreign = allocate_in(&heap, thread, arena, size);
        super::free(&heap, thread, foreign);
        let own = super::allocate(&heap, thread, size);
        assert!(heap.arena_of(own as usize).unwrap() < 2);
        super::free(&heap, thread, own);
    }
}

#[test]
fn a_thread_on_an_arena_gets_slots_and_large_blocks_of_it() {
    let heap = heap();
    let thread = heap.attach();
    let arena = heap.create_arena(null_mut(), 1000).unwrap();
    let index = heap.index_of(arena);
    let before = super::allocate(&heap, thread, 100);
    moves(&heap, thread, index);
    assert_eq!(with_access(thread, |access| heap.arena_of_thread(access)), index);
    let blocks: Vec<_> = SIZES.iter().cycle().take(300).map(|&size| super::allocate(&heap, thread, size)).collect();
    assert!(blocks.iter().all(|&block| heap.arena_of(block as usize) == Some(index)));
    super::free_all(&heap, thread, &blocks);
    super::free(&heap, thread, before);
    assert!(!end(&heap, thread, arena), "a thread is on it");
    moves(&heap, thread, 1);
    assert_eq!(with_access(thread, |access| heap.move_cache(access, 77)), Moved::NoArena);
    assert!(end(&heap, thread, arena));
    assert!(heap.explicit_arena(index).is_none());
    let next = super::allocate(&heap, thread, 100);
    assert_eq!(heap.arena_of(next as usize), Some(1));
}

#[test]
fn a_reset_takes_everything_and_an_end_gives_the_address_space_back() {
    let heap = heap();
    let thread = heap.attach();
    let untouched = heap.create_arena(null_mut(), -1).unwrap();
    let kept = allocate_in(&heap, thread, untouched, 5000);
    for round in 0..4 {
        let arena = heap.create_arena(null_mut(), -1).unwrap();
        assert_eq!(heap.index_of(arena), 3, "the index is used again");
        let reserved = heap.os.record().reserved_bytes;
        let metadata = heap.metadata.bytes(&heap.os).0;
        moves(&heap, thread, 3);
        for _ in 0..3 {
            for size in SIZES {
                for _ in 0..20 {
                    allocate_in(&heap, thread, arena, size);
                    super::allocate(&heap, thread, size);
                }
            }
            validate_arena(&heap, arena);
            // SAFETY: the blocks are forgotten.
            with_access(thread, |access| unsafe { heap.reset_arena(access, arena) });
            assert_eq!(validate_arena(&heap, arena), 0);
            assert_eq!(heap.statistics(None, true).live, usable(&heap, kept));
        }
        moves(&heap, thread, 0);
        assert!(end(&heap, thread, arena));
        assert!(!end(&heap, thread, arena), "it has ended");
        assert_eq!(heap.os.record().reserved_bytes, reserved, "round {round}");
        // But for nodes of the map of owners, where the kernel chose other addresses.
        let more = heap.metadata.bytes(&heap.os).0 - metadata;
        assert!(more.is_multiple_of(64 << 10), "round {round}: {more}");
    }
    // SAFETY: live until here.
    unsafe {
        assert_eq!(*kept, 0x5a);
        free(&heap, thread, kept);
    }
}

#[test]
fn thousands_of_arenas_find_their_blocks() {
    let heap = heap();
    let mut arenas = Vec::new();
    while let Some(arena) = heap.create_arena(null_mut(), 0) {
        arenas.push(arena);
    }
    assert_eq!(arenas.len(), crate::cache::explicit_table::MOST);
    let some = || arenas.iter().step_by(17);
    let blocks: Vec<_> = some().map(|arena| allocate_in(&heap, None, arena, 64)).collect();
    for (&arena, block) in some().zip(blocks) {
        assert_eq!(heap.arena_of(block as usize), Some(heap.index_of(arena)));
        free(&heap, None, block);
    }
    let last = arenas[17 * 200];
    let index = heap.index_of(last);
    assert!(end(&heap, None, last));
    let again = heap.create_arena(null_mut(), 0).unwrap();
    assert_eq!(heap.index_of(again), index);
}

#[test]
fn decay_times_are_kept_per_arena() {
    let heap = heap();
    let [at_once, soon, never] = [0, 1000, -1].map(|decay_ms| heap.create_arena(null_mut(), decay_ms).unwrap());
    let fill_and_free = |arena| {
        let blocks = [20_000, 1 << 20].map(|size| allocate_in(&heap, None, arena, size));
        for block in blocks {
            free(&heap, None, block);
        }
    };
    let dirty = |arena: &ExplicitArena| arena.arena.lock(&heap.os).dirty_granules;
    for arena in [at_once, soon, never] {
        fill_and_free(arena);
    }
    assert_eq!(dirty(at_once), 0);
    assert!(dirty(soon) >= 16 && dirty(never) >= 16);
    for _ in 0..3 {
        heap.tick(None);
    }
    assert_eq!(dirty(soon), 0);
    assert!(dirty(never) >= 16);
    heap.purge_arena(never, true);
    assert_eq!(dirty(never), 0);
    fill_and_free(never);
    never.set_decay_ms(10);
    for _ in 0..3 {
        heap.tick(None);
    }
    assert_eq!(dirty(never), 0);
}

#[test]
fn explicit_caches_hold_what_they_are_given_and_may_be_on_an_arena() {
    let heap = heap();
    let thread = heap.attach();
    let arena = heap.create_arena(null_mut(), 1000).unwrap();
    let index = with_access(thread, |access| heap.create_cache(access)).unwrap();
    let other = with_access(thread, |access| heap.create_cache(access)).unwrap();
    assert_ne!(index, other);
    let through = |on, work: &dyn Fn(Access) -> *mut u8| {
        with_access(thread, |access| heap.with_cache(access, heap.explicit_cache(index).unwrap(), on, work))
    };
    for on in [None, Some(arena), Some(arena), None] {
        let block = through(on, &|access| heap.allocate(access, 100));
        let is_in_arena = heap.arena_of(block as usize) == Some(heap.index_of(arena));
        let home = heap.explicit_cache(index).unwrap().home();
        assert_eq!(is_in_arena, home == arena.home());
        through(on, &|access| {
            // SAFETY: live until here.
            unsafe { heap.free(access, block) };
            null_mut()
        });
        assert_eq!(through(on, &|access| heap.allocate(access, 100)), block, "the cache kept it");
        through(on, &|access| {
            // SAFETY: live until here.
            unsafe { heap.free(access, block) };
            null_mut()
        });
    }
    assert!(heap.statistics(None, true).cached > 0);
    assert_eq!(heap.statistics(None, true).threads, 1);
    assert!(heap.flush_cache(index));
    // SAFETY: no thread uses them.
    unsafe {
        assert!(heap.end_cache(index) && !heap.end_cache(index) && heap.end_cache(other));
    }
    assert!(!heap.flush_cache(index) && heap.explicit_cache(index).is_none());
    assert_eq!(arena.threads(), 0);
    assert_eq!(heap.statistics(None, true).cached, 0);
}

#[test]
fn a_child_keeps_arenas_and_explicit_caches() {
    let heap = heap();
    let [own, other] = [heap.attach(), heap.attach()];
    let arena = heap.create_arena(null_mut(), 1000).unwrap();
    let index = heap.index_of(arena);
    for thread in [own, other] {
        moves(&heap, thread, index);
    }
    let block = super::allocate(&heap, own, 100);
    let cache = with_access(own, |access| heap.create_cache(access)).unwrap();
    assert_eq!(arena.threads(), 2);
    assert!(heap.freeze(1, None));
    become_child(&heap, own);
    assert_eq!(arena.threads(), 1, "the other thread is not there");
    assert!(heap.flush_cache(cache));
    super::free(&heap, own, block);
    validate_arena(&heap, arena);
    let block = super::allocate(&heap, own, 200);
    assert_eq!(heap.arena_of(block as usize), Some(index));
    super::free(&heap, own, block);
}

#[test]
fn without_memory_there_is_null_and_nothing_is_lost() {
    let heap = heap();
    let thread = heap.attach();
    let arena = heap.create_arena(null_mut(), 1000).unwrap();
    for call in [Call::Reserve, Call::Commit] {
        heap.os.fail(call, 0, 1000, OsError::OutOfMemory);
        for size in SIZES {
            let (block, _) = with_access(thread, |access| heap.allocate_in(arena, access, size, 1));
            assert!(block.is_null());
        }
        let huge = with_access(thread, |access| heap.allocate_in(arena, access, usize::MAX / 2, 1).0);
        assert!(huge.is_null());
        heap.os.heal();
        validate_arena(&heap, arena);
    }
    for size in SIZES {
        let block = allocate_in(&heap, thread, arena, size);
        free(&heap, thread, block);
    }
}
