//! The two ticks, one by one: memory free at two successive ticks is returned at the second, and nothing else.

use super::*;
use crate::heap::heap::FIRST_TICK;
use crate::os::PageRun;
use crate::size::{CLASS, GRANULE};

const PAGE: usize = 4096;

fn heap() -> Box<Heap<Fake>> {
    let heap = Box::new(Heap::new(Fake::new(PAGE)));
    heap.os.set_cpus(1);
    heap
}

/// A slab full of slots of half a page, by address.
fn half_pages(heap: &Heap<Fake>, thread: Thread) -> Vec<*mut u8> {
    slab_of(heap, thread, PAGE / 2)
}

/// A slab full of slots of `size`, by address.
fn slab_of(heap: &Heap<Fake>, thread: Thread, size: usize) -> Vec<*mut u8> {
    let slots = CLASS[class_of(size)].slots as usize;
    let mut blocks: Vec<_> = (0..slots).map(|_| allocate(heap, thread, size)).collect();
    blocks.sort();
    assert_eq!(blocks[slots - 1] as usize - blocks[0] as usize, (slots - 1) * size, "one slab");
    blocks
}

/// One tick, and the runs that went.
fn tick(heap: &Heap<Fake>) -> Vec<PageRun> {
    let before = heap.statistics(None, true).returned;
    let tick = heap.tick(None);
    let runs = heap.os.take_discarded();
    assert_eq!(bytes_of(&runs), tick.returned_bytes);
    assert_eq!(heap.statistics(None, true).returned - before, tick.returned_bytes as u64);
    validate(heap);
    runs
}

fn bytes_of(runs: &[PageRun]) -> usize {
    runs.iter().map(|run| run.bytes).sum()
}

fn run(start: *mut u8, bytes: usize) -> Vec<PageRun> {
    vec![PageRun { start: start as usize, bytes }]
}

#[test]
fn a_page_goes_at_the_second_tick_after_its_last_slot_was_freed() {
    let heap = heap();
    let blocks = half_pages(&heap, None);
    free_all(&heap, None, &blocks[4..6]);
    assert_eq!(tick(&heap), []);
    free_all(&heap, None, &blocks[10..11]);
    assert_eq!(tick(&heap), run(blocks[4], PAGE));
    free_all(&heap, None, &blocks[11..12]);
    assert_eq!(tick(&heap), []);
    assert_eq!(tick(&heap), run(blocks[10], PAGE));
    assert_eq!(tick(&heap), []);
}

#[test]
fn neighbouring_pages_go_in_one_run() {
    let heap = heap();
    let blocks = half_pages(&heap, None);
    free_all(&heap, None, &blocks[2..10]);
    assert_eq!(tick(&heap), []);
    assert_eq!(tick(&heap), run(blocks[2], 4 * PAGE));
}

#[test]
fn a_page_that_was_touched_between_the_ticks_stays() {
    let heap = heap();
    let blocks = half_pages(&heap, None);
    free_all(&heap, None, &blocks[4..6]);
    assert_eq!(tick(&heap), []);
    let again = allocate(&heap, None, PAGE / 2);
    assert!(blocks[4..6].contains(&again));
    free_all(&heap, None, &[again]);
    assert_eq!(tick(&heap), [], "it was in use since the last tick");
    assert_eq!(tick(&heap), run(blocks[4], PAGE));
}

#[test]
fn a_free_extent_goes_at_the_second_tick_even_when_the_clock_wraps() {
    for start in [16, u32::MAX - 1, u32::MAX] {
        let heap = heap();
        heap.passes.store(start.wrapping_sub(FIRST_TICK), core::sync::atomic::Ordering::Relaxed);
        let block = allocate(&heap, None, 4 * GRANULE);
        free_all(&heap, None, &[block]);
        assert_eq!(tick(&heap), []);
        let again = allocate(&heap, None, 4 * GRANULE);
        assert_eq!(again, block);
        free_all(&heap, None, &[again]);
        assert_eq!(tick(&heap), [], "it was in use since the last tick");
        assert_eq!(tick(&heap), run(block, 4 * GRANULE));
        assert_eq!(tick(&heap), []);
    }
}

#[test]
fn old_granules_go_though_a_young_neighbour_merged_with_them() {
    let heap = heap();
    let old = allocate(&heap, None, 2 * GRANULE);
    let young = allocate(&heap, None, 2 * GRANULE);
    assert_eq!(young as usize - old as usize, 2 * GRANULE);
    free_all(&heap, None, &[old]);
    assert_eq!(tick(&heap), []);
    free_all(&heap, None, &[young]);
    assert_eq!(tick(&heap), run(old, 2 * GRANULE));
    assert_eq!(tick(&heap), run(young, 2 * GRANULE));
}

#[test]
fn slots_in_an_idle_cache_are_drained_and_gone_at_the_second_tick() {
    let heap = heap();
    let thread = heap.attach();
    let blocks: Vec<_> = (0..6).map(|_| allocate(&heap, thread, PAGE)).collect();
    free_all(&heap, thread, &blocks);
    let cached = heap.statistics(None, true).cached;
    assert!(cached >= 6 * PAGE);
    assert_eq!(tick(&heap), []);
    assert_eq!(heap.statistics(None, true).cached, cached);
    let of_heap = |run: &&PageRun| heap.arena.granule_of(run.start).is_some();
    let gone = tick(&heap);
    let gone: usize = gone.iter().filter(of_heap).map(|run| run.bytes).sum();
    assert_eq!(gone, cached);
    assert_eq!(heap.statistics(None, true).cached, 0);
    // The stack that had grown for them is small again: its metadata goes soon, and nothing else.
    let later = [tick(&heap), tick(&heap)].concat();
    assert_eq!(later.iter().filter(of_heap).count(), 0);
    assert_eq!(tick(&heap), []);
}

#[test]
fn a_busy_cache_loses_its_cold_bottom_alone() {
    let heap = heap();
    let thread = heap.attach();
    let blocks: Vec<_> = (0..8).map(|_| allocate(&heap, thread, PAGE)).collect();
    free_all(&heap, thread, &blocks);
    let cached = heap.statistics(None, true).cached;
    tick(&heap);
    let warm: Vec<_> = (0..2).map(|_| allocate(&heap, thread, PAGE)).collect();
    free_all(&heap, thread, &warm);
    let drained = heap.tick(None).drained_bytes;
    assert!(drained > 0 && drained <= cached - 2 * PAGE, "{drained} of {cached}");
    assert_eq!(heap.statistics(None, true).cached, cached - drained);
    let again = allocate(&heap, thread, PAGE);
    assert!(warm.contains(&again), "what is warm is still there");
}

/// Frees `blocks` into the cache of `thread`, ticks, uses the newest `used` of them, and ticks again; how
/// many slots of their class the cache has then.
fn kept_of(heap: &Heap<Fake>, thread: Thread, blocks: &[*mut u8], size: usize, used: usize) -> usize {
    free_all(heap, thread, blocks);
    heap.tick(None);
    for _ in 0..3 {
        let warm: Vec<_> = (0..used).map(|_| allocate(heap, thread, size)).collect();
        free_all(heap, thread, &warm);
    }
    heap.tick(None).cached_bytes / size
}

#[test]
fn what_a_tick_leaves_in_a_cache_is_about_what_was_used() {
    for used in [30, 50, 100] {
        let heap = heap();
        let thread = heap.attach();
        let blocks: Vec<_> = (0..100).map(|_| allocate(&heap, thread, 64)).collect();
        let kept = kept_of(&heap, thread, &blocks, 64, used);
        assert!((used..=2 * used + 4).contains(&kept), "{kept} for {used}");
    }
}

#[test]
fn what_a_burst_has_left_in_a_cache_goes_whole_so_that_what_is_used_lies_together() {
    let heap = heap();
    let thread = heap.attach();
    let mut blocks: Vec<_> = (0..100).map(|_| allocate(&heap, thread, 256)).collect();
    // One block of each page is freed last, and would be used from now on.
    blocks.sort_by_key(|&block| (block as usize % PAGE < 256, block));
    assert_eq!(kept_of(&heap, thread, &blocks, 256, 3), 0);
    let pages = |blocks: &[*mut u8]| {
        let pages = blocks.iter().map(|&block| block as usize / PAGE);
        pages.collect::<std::collections::BTreeSet<_>>().len()
    };
    assert!(pages(&blocks[97..]) == 3);
    let again: Vec<_> = (0..3).map(|_| allocate(&heap, thread, 256)).collect();
    assert_eq!(pages(&again), 1);
}

#[test]
fn a_pass_over_many_full_caches_comes_to_the_end_of_each() {
    let heap = heap();
    let threads: Vec<_> = (0..11).map(|_| heap.attach()).collect();
    for (number, &thread) in threads.iter().enumerate() {
        let counts = [7, 400 * (number % 3), 90 + number];
        for (count, size) in counts.into_iter().zip([16, 64, 2048]) {
            let blocks: Vec<_> = (0..count).map(|_| allocate(&heap, thread, size)).collect();
            free_all(&heap, thread, &blocks);
        }
    }
    let cached = heap.statistics(None, true).cached;
    let first = heap.tick(None);
    assert_eq!((first.drained_bytes, first.cached_bytes), (0, cached));
    let second = heap.tick(None);
    assert_eq!((second.drained_bytes, second.cached_bytes), (cached, 0));
    assert_eq!(heap.statistics(None, true).claims, 22, "each once a pass");
    validate(&heap);
}

#[test]
fn a_long_extent_goes_in_pieces_within_one_tick() {
    let heap = heap();
    let bytes = 3000 * GRANULE;
    let block = allocate(&heap, None, bytes);
    let young = allocate(&heap, None, 4 * GRANULE);
    free_all(&heap, None, &[block]);
    assert_eq!(tick(&heap), []);
    free_all(&heap, None, &[young]);
    let gone: usize = tick(&heap).iter().map(|run| run.bytes).sum();
    assert_eq!(gone, bytes);
    assert_eq!(tick(&heap), run(young, 4 * GRANULE));
    let again = allocate(&heap, None, bytes);
    assert_eq!(again, block, "in one piece");
}

#[test]
fn where_membarrier_is_refused_caches_are_left_alone() {
    let heap = heap();
    let thread = heap.attach();
    let block = allocate(&heap, thread, PAGE);
    free_all(&heap, thread, &[block]);
    let cached = heap.statistics(None, true).cached;
    heap.os.fail(crate::os::fake::Call::Membarrier, 0, 3, crate::os::OsError::Refused);
    for _ in 0..3 {
        assert_eq!(heap.tick(None).drained_bytes, 0);
    }
    assert_eq!(heap.statistics(None, true).cached, cached);
    assert_eq!(heap.statistics(None, true).claims_refused, 3);
}

#[test]
fn trim_returns_everything_at_once() {
    let heap = heap();
    let thread = heap.attach();
    let mut blocks = half_pages(&heap, thread);
    blocks.push(allocate(&heap, thread, 4 * GRANULE));
    free_all(&heap, thread, &blocks);
    assert!(heap.trim(None));
    let statistics = heap.statistics(None, true);
    assert_eq!((statistics.live, statistics.cached, statistics.idle, statistics.resident), (0, 0, 0, 0));
    assert!(!heap.trim(None), "nothing was left");
}

#[test]
fn locked_pages_are_tried_once_and_keep_their_contents() {
    let heap = heap();
    let blocks = half_pages(&heap, None);
    // SAFETY: the blocks are live.
    unsafe { blocks[0].write_bytes(7, PAGE / 2) };
    heap.os.lock_pages(blocks[0] as usize, 2 * PAGE);
    free_all(&heap, None, &blocks[2..4]);
    for _ in 0..5 {
        assert_eq!(tick(&heap), []);
    }
    let statistics = heap.statistics(None, true);
    assert_eq!((statistics.refused, statistics.discard_calls), (PAGE as u64, 1));
    assert!(!heap.trim(None));
    // SAFETY: the block is live.
    assert!(
        // SAFETY: the block is live and at least this long.
        unsafe { core::slice::from_raw_parts(blocks[0], PAGE / 2) }.iter().all(|&byte| byte == 7)
    );
    assert!(blocks[2..4].contains(&allocate(&heap, None, PAGE / 2)), "the slots are there to be used");
}

#[test]
fn pages_of_two_bins_go_in_one_call_and_a_locked_one_keeps_none_of_the_others() {
    let heap = heap();
    let (halves, wholes) = (half_pages(&heap, None), slab_of(&heap, None, PAGE));
    free_all(&heap, None, &halves[2..4]);
    free_all(&heap, None, &wholes[3..4]);
    assert_eq!(tick(&heap), []);
    assert_eq!(tick(&heap).len(), 2);
    assert_eq!(heap.statistics(None, true).discard_calls, 1);
    heap.os.lock_pages(halves[4] as usize, PAGE);
    free_all(&heap, None, &halves[4..6]);
    free_all(&heap, None, &wholes[5..6]);
    assert_eq!(tick(&heap), []);
    heap.tick(None);
    let statistics = heap.statistics(None, true);
    assert_eq!((statistics.returned, statistics.refused), (3 * PAGE as u64, PAGE as u64));
    let went = heap.os.take_discarded();
    assert!(went.iter().all(|run| run.start == wholes[5] as usize), "{went:?}");
    validate(&heap);
}

#[test]
fn the_resident_tail_of_a_large_block_goes() {
    let heap = heap();
    let whole = allocate(&heap, None, 4 * GRANULE);
    free_all(&heap, None, &[whole]);
    let used = 3 * GRANULE + PAGE;
    let block = allocate(&heap, None, used);
    assert_eq!(block, whole, "from the dirty extent");
    assert_eq!(tick(&heap), []);
    assert_eq!(tick(&heap), run(block.wrapping_add(used), GRANULE - PAGE));
    assert_eq!(tick(&heap), []);
    assert_eq!(heap.statistics(None, true).live, used);
}

#[test]
fn descriptors_inside_a_long_clean_extent_go_however_it_came_together() {
    let heap = heap();
    let blocks: Vec<_> = (0..200).map(|_| allocate(&heap, None, 2 * GRANULE)).collect();
    // Every other block goes first: no two of them are neighbours, so none is long when it goes.
    for start in [0, 1] {
        let half: Vec<_> = blocks.iter().copied().skip(start).step_by(2).collect();
        free_all(&heap, None, &half);
        tick(&heap);
        assert_eq!(tick(&heap).iter().map(|run| run.bytes).sum::<usize>(), 100 * 2 * GRANULE);
    }
    assert_eq!(tick(&heap), []);
    let metadata = heap.statistics(None, true).metadata;
    let descriptors = tick(&heap);
    let first = heap.arena.granule_of(blocks[0] as usize).unwrap() as usize;
    let last = heap.arena.granule_of(blocks[199] as usize).unwrap() as usize;
    assert_eq!(descriptors.len(), 1);
    assert_eq!(descriptors[0].start, (first + 1).next_multiple_of(PAGE), "all but the first");
    assert!(descriptors[0].start + descriptors[0].bytes + PAGE > last);
    assert_eq!(heap.statistics(None, true).metadata, metadata - descriptors[0].bytes);
    assert_eq!(tick(&heap), []);
    let again = allocate(&heap, None, 100 * GRANULE);
    validate(&heap);
    free(&heap, None, again);
    validate(&heap);
}

#[test]
fn what_caches_have_got_room_for_counts_as_freed() {
    let heap = heap();
    let threads: Vec<_> = (0..32).map(|_| heap.attach()).collect();
    for &thread in &threads {
        let blocks: Vec<_> = (0..120).map(|_| allocate(&heap, thread, 1024)).collect();
        free_all(&heap, thread, &blocks);
    }
    // Hardly any of it was flushed, and yet the purger is to be woken for it.
    let cached = heap.statistics(None, true).cached;
    assert!(cached > 2 << 20);
    assert!(heap.freed_bytes() >= cached);
    heap.tick(None);
    heap.tick(None);
    assert_eq!(heap.statistics(None, true).cached, 0);
    validate(&heap);
}

#[test]
fn what_a_thread_needed_to_keep_its_slots_goes_with_them() {
    let heap = heap();
    // A stack for these slots needs a block of metadata memory of its own.
    let size = 16;
    let blocks: Vec<_> = (0..20_000).map(|_| allocate(&heap, None, size)).collect();
    let thread = heap.attach();
    let (_, before) = heap.metadata.bytes(&heap.os);
    free_all(&heap, thread, &blocks);
    let (_, grown) = heap.metadata.bytes(&heap.os);
    assert!(grown > before, "the stack has not grown: {grown}");
    tick(&heap);
    assert_ne!(tick(&heap), []);
    assert_eq!(tick(&heap), [], "nothing is left for the third");
    let (_, after) = heap.metadata.bytes(&heap.os);
    assert!(after <= before, "{after} of {before}");
}

/// Two blocks side by side, of so many granules.
fn neighbours(heap: &Heap<Fake>, granules: [usize; 2]) -> [*mut u8; 2] {
    let blocks = granules.map(|count| allocate(heap, None, count * GRANULE));
    assert_eq!(blocks[1] as usize - blocks[0] as usize, granules[0] * GRANULE);
    // What follows is in use, so that the two become one extent and no more.
    allocate(heap, None, 2 * GRANULE);
    blocks
}

#[test]
fn all_of_many_extents_and_of_long_ones_goes_in_one_tick() {
    let heap = heap();
    let long = allocate(&heap, None, 1000 * GRANULE);
    allocate(&heap, None, 2 * GRANULE);
    let pairs: Vec<_> = (0..700).map(|_| neighbours(&heap, [2, 2])[0]).chain([long]).collect();
    free_all(&heap, None, &pairs);
    assert_eq!(tick(&heap), []);
    assert_eq!(bytes_of(&tick(&heap)), (1000 + 700 * 2) * GRANULE);
    assert_eq!(tick(&heap), []);
}

#[test]
fn young_runs_before_an_idle_one_stay_alone_unless_they_are_many() {
    // Blocks that are young when the one after them is idle, and whether that goes then.
    for (young, at_once) in [(2, true), (200, true), (255, true), (256, false), (600, false)] {
        let heap = heap();
        let first: Vec<_> = (0..young).map(|_| allocate(&heap, None, 2 * GRANULE)).collect();
        let second = allocate(&heap, None, 40 * GRANULE);
        assert_eq!(second as usize - first[0] as usize, young * 2 * GRANULE, "side by side");
        allocate(&heap, None, 2 * GRANULE);
        free_all(&heap, None, &[second]);
        assert_eq!(tick(&heap), []);
        free_all(&heap, None, &first);
        heap.arena.lock(&heap.os).validate();
        let now = tick(&heap);
        assert!(now.iter().all(|run| run.start >= second as usize));
        let now_bytes = if at_once { 40 * GRANULE } else { 0 };
        assert_eq!(bytes_of(&now), now_bytes, "{young}");
        let rest = (young * 2 + 40) * GRANULE - now_bytes;
        assert_eq!(bytes_of(&tick(&heap)), rest, "{young}");
        assert_eq!(tick(&heap), []);
    }
}

#[test]
fn what_is_cut_out_of_a_dirty_extent_leaves_the_ages_of_the_rest() {
    let heap = heap();
    let [first, second] = neighbours(&heap, [30, 40]);
    free_all(&heap, None, &[second]);
    assert_eq!(tick(&heap), []);
    free_all(&heap, None, &[first]);
    // From the front of the young run, aligned to the end of it, and then into the old one.
    let young = allocate(&heap, None, 20 * GRANULE);
    assert_eq!(young, first);
    let old = allocate(&heap, None, 35 * GRANULE);
    assert_eq!(old as usize, first as usize + 20 * GRANULE);
    heap.arena.lock(&heap.os).validate();
    let now = tick(&heap);
    assert_eq!(bytes_of(&now), 15 * GRANULE, "the rest of the old run");
    assert_eq!(now[0].start, old as usize + 35 * GRANULE);
    free_all(&heap, None, &[young, old]);
    heap.arena.lock(&heap.os).validate();
}
