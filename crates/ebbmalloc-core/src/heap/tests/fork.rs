//! What the child of a fork does with the memory that it shares with its parent.

use super::explicit::{allocate_in, validate_arena};
use super::*;
use crate::arena::granule::{Granule, Kind, Room, TAIL_LEAVING, TAIL_LISTED};
use crate::base::corrupt::torn;
use crate::cache::explicit::ExplicitArena;
use crate::os::OsError;
use crate::os::fake::Call;
use crate::size::{CLASS, GRANULE};
use core::ptr::null_mut;
use core::sync::atomic::Ordering;

const SIZE: usize = 1024;
/// Number of the thread that forks.
const THREAD: usize = 1;

/// A heap that was forked: with a slab of which every other slot is live, by address.
fn forked() -> (Box<Heap<Fake>>, Vec<*mut u8>) {
    let heap = Box::new(Heap::new(Fake::new(4096)));
    heap.os.set_cpus(1);
    let slots = CLASS[class_of(SIZE)].slots as usize;
    let mut blocks: Vec<_> = (0..slots).map(|_| allocate(&heap, None, SIZE)).collect();
    blocks.sort();
    for &block in blocks.iter().skip(1).step_by(2) {
        free(&heap, None, block);
    }
    let live = blocks.into_iter().step_by(2).collect();
    assert!(heap.freeze(THREAD, None));
    become_child(&heap, None);
    validate(&heap);
    (heap, live)
}

fn slab(block: *mut u8) -> usize {
    block as usize / GRANULE
}

#[test]
fn a_child_takes_slots_of_slabs_of_its_own() {
    let (heap, live) = forked();
    let own: Vec<_> = (0..5).map(|_| allocate(&heap, None, SIZE)).collect();
    assert!(own.iter().all(|&block| slab(block) != slab(live[0])));
    free(&heap, None, live[3]);
    assert_ne!(slab(allocate(&heap, None, SIZE)), slab(live[0]));
    assert_eq!(validate(&heap), 2);
    for (index, &block) in live.iter().enumerate() {
        if index != 3 {
            free(&heap, None, block);
        }
    }
    assert_eq!(validate(&heap), 1, "the parent's slab is whole and gone");
}

#[test]
fn a_child_without_memory_takes_what_it_shares() {
    let (heap, live) = forked();
    // Nothing fresh: neither more of the region nor another.
    while !allocate(&heap, None, 32 * GRANULE).is_null() {
        heap.os.fail(Call::Commit, 0, 1000, OsError::OutOfMemory);
        heap.os.fail(Call::Reserve, 0, 1000, OsError::OutOfMemory);
    }
    // The rest are single granules: slabs of another class.
    while !allocate(&heap, None, 2 * SIZE).is_null() {}
    let shared = allocate(&heap, None, SIZE);
    assert_eq!(slab(shared), slab(live[0]));
    validate(&heap);
}

/// A heap as it is at the moment of a fork that runs no handlers: blocks of every kind, each with its size and
/// filled with a byte of its own, and half as many of each size that are free.
struct Copied {
    heap: Box<Heap<Fake>>,
    thread: Thread,
    live: Vec<(*mut u8, usize)>,
}

/// Takes all locks that a change of the heap takes, for ever.
fn hold_all(heap: &Heap<Fake>) {
    heap.purging.store(true, Ordering::Relaxed);
    heap.parts.bins.explicit.freeze_table(&heap.os);
    for bin in heap.used_bins() {
        bin.raw().freeze(&heap.os);
    }
    heap.parts.bins.explicit.freeze_bins(&heap.os);
    heap.arena.freeze(&heap.os);
    heap.parts.bins.explicit.freeze_arenas(&heap.os);
    heap.metadata.freeze(&heap.os);
}

/// A size that was not allocated before: such blocks are made of free slots of 16 or 64 bytes.
const LENT: usize = 128;
const SIZES: [usize; 7] = [16, 64, SIZE, 5000, SMALL_MAX, SMALL_MAX + 1, 700 << 10];

fn own_cache(thread: Thread) -> Option<&'static Cache> {
    // SAFETY: the tests do not detach it, and use it no longer than the heap.
    thread.map(|cache| unsafe { &*cache.as_ptr() })
}

fn byte_of(index: usize) -> u8 {
    1 + (index % 250) as u8
}

impl Copied {
    fn new() -> Self {
        let heap = Box::new(super::explicit::heap());
        let thread = heap.attach();
        let arena = heap.create_arena(null_mut(), 1000).expect("memory");
        let mut all = Vec::new();
        for size in SIZES {
            let count = 1 + ((2 << 20) / size).min(10_000);
            for _ in 0..count {
                all.push((allocate(&heap, thread, size), size));
            }
            all.push((allocate_in(&heap, thread, arena, size), size));
        }
        // Its tail, all but a granule, is on the list of tails.
        let tailed = allocate(&heap, thread, 80 << 10);
        all.push((tailed, 80 << 10));
        let (mut live, mut freed) = (Vec::new(), Vec::new());
        for (index, block) in all.into_iter().enumerate() {
            match index % 3 {
                1 => freed.push(block.0),
                _ => live.push(block),
            }
        }
        free_all(&heap, thread, &freed);
        // Blocks that take several slots of a smaller class.
        live.extend((0..100).map(|_| (allocate(&heap, thread, LENT), LENT)));
        let is_lent = |&(block, size): &(*mut u8, usize)| size == LENT && heap.quick_class(block as usize) == Some(0);
        assert!(live.iter().any(is_lent));
        heap.tick(None);
        for (index, &(block, size)) in live.iter().enumerate() {
            // SAFETY: live, and as long.
            unsafe { block.write_bytes(byte_of(index), size) };
        }
        Self { heap, thread, live }
    }

    /// After every block.
    fn end(&self) -> usize {
        let arena = &self.heap.arena;
        let ours = |&&(block, _): &&(*mut u8, usize)| arena.granule_of(block as usize).is_some();
        let ends = self.live.iter().filter(ours);
        ends.map(|&(block, size)| block as usize + size).max().expect("live blocks")
    }

    fn arena(&self) -> &ExplicitArena {
        self.heap.parts.bins.explicit.live().next().expect("made by new")
    }

    /// What a thread that was in the middle of everything might leave, or worse.
    fn tear(&self) {
        let heap = &*self.heap;
        for (index, &(block, _)) in self.live.iter().enumerate() {
            self.tear_descriptor(block as usize, [TAIL_LISTED, TAIL_LEAVING][index % 2]);
        }
        heap.arena.lock(&heap.os).tear();
        self.arena().arena.lock(&heap.os).tear();
        for bin in heap.used_bins() {
            bin.lock(&heap.os).tear();
        }
        for (_, bin) in self.arena().bins() {
            bin.lock(&heap.os).tear();
        }
        heap.metadata.tear(&heap.os);
        let cache = own_cache(self.thread).expect("attached by new");
        // SAFETY: no other thread has the cache.
        unsafe { cache.tear() };
        // In the middle of everything: a thread that ends holds every lock, and a pass is under way.
        std::thread::scope(|scope| scope.spawn(|| hold_all(heap)).join()).expect("held");
    }

    /// What in the descriptors of a block is not its owner's.
    fn tear_descriptor(&self, address: usize, flag: u8) {
        let arena = &self.heap.arena;
        let own = || self.arena().arena.granule_of(address);
        let Some(granule) = arena.granule_of(address).or_else(own) else {
            return;
        };
        // SAFETY: the descriptor of a live block, in a heap that no other thread uses.
        unsafe {
            if (*granule).kind == Kind::Large {
                (*granule).flags = (*granule).flags & !(TAIL_LISTED | TAIL_LEAVING) | flag;
                (*granule).prev = torn();
                (*granule).next = torn();
                return;
            }
            let head: &mut Granule = &mut *(*granule).head;
            head.room = Room::Some;
            head.listed = true;
            head.free = CLASS[head.class as usize].slots;
            head.leaving = u64::MAX;
            (head.prev, head.next) = (torn(), torn());
            (head.left, head.right) = (torn(), torn());
        }
    }

    /// All blocks are as they were written.
    fn check(&self) {
        for (index, &(block, size)) in self.live.iter().enumerate() {
            // SAFETY: live, and as long.
            let bytes = unsafe { core::slice::from_raw_parts(block, size) };
            assert!(bytes.iter().all(|&byte| byte == byte_of(index)), "block {index} of {size} bytes");
        }
    }

    /// The child goes on with everything: it takes blocks, and returns what it got from its parent.
    fn go_on(mut self) -> Self {
        let heap = &*self.heap;
        let mut own = Vec::new();
        for size in SIZES {
            for _ in 0..200 {
                let block = allocate(heap, self.thread, size);
                assert!(!block.is_null());
                // SAFETY: live, and as long.
                unsafe { block.write_bytes(0xff, size) };
                own.push(block);
            }
            let block = allocate_in(heap, self.thread, self.arena(), size);
            own.push(block);
        }
        self.check();
        validate(heap);
        validate_arena(heap, self.arena());
        for (index, (block, size)) in core::mem::take(&mut self.live).into_iter().enumerate() {
            // SAFETY: live until it is returned, as is what it became.
            unsafe {
                assert!(heap.usable_size(block) >= size);
                let goal = [2 * size, size / 2, 0][index % 3];
                if goal == 0 {
                    free(heap, self.thread, block);
                    continue;
                }
                let moved = with_access(self.thread, |access| heap.reallocate(access, block, goal));
                assert!(!moved.is_null());
                assert_eq!(*moved, byte_of(index));
                free(heap, self.thread, moved);
            }
        }
        free_all(heap, self.thread, &own);
        for _ in 0..3 {
            heap.tick(None);
            validate(heap);
            validate_arena(heap, self.arena());
        }
        heap.trim(None);
        validate(heap);
        self
    }
}

#[test]
fn a_copy_that_was_torn_is_left_and_the_child_goes_on() {
    let copied = Copied::new();
    let end = copied.end();
    copied.tear();
    become_child(&copied.heap, copied.thread);
    let first = allocate(&copied.heap, copied.thread, SIZE);
    assert!(first as usize >= end);
    let copied = copied.go_on();
    let heap = &*copied.heap;
    free_all(heap, copied.thread, &[first]);
    // A child of the child, forked with handlers: the torn slabs stay what they are, the others are inherited.
    let kept = allocate(heap, copied.thread, SIZE);
    assert!(heap.freeze(THREAD, own_cache(copied.thread)));
    become_child(heap, copied.thread);
    free_all(heap, copied.thread, &[kept]);
    validate(heap);
    // Its arena can be ended: what was torn of it goes with its addresses.
    assert!(super::explicit::end(heap, copied.thread, copied.arena()));
    // The thread ends: its cache lies in metadata of before.
    // SAFETY: the cache is not used again.
    unsafe { heap.detach(copied.thread.expect("attached by new")) };
    validate(heap);
    // That memory is never allocated: its live blocks stay live.
    assert!(heap.attach().is_some_and(|cache| Some(cache) != copied.thread));
}

#[test]
fn a_copy_at_rest_is_used_as_it_is() {
    let copied = Copied::new();
    let end = copied.end();
    become_child(&copied.heap, copied.thread);
    for size in SIZES {
        let block = allocate(&copied.heap, copied.thread, size);
        assert!((block as usize) < end, "{size} bytes");
        free_all(&copied.heap, copied.thread, &[block]);
    }
    copied.go_on();
}

#[test]
fn whoever_was_at_work_is_noticed() {
    let copied = Copied::new();
    let (heap, arena) = (&*copied.heap, copied.arena());
    assert!(heap.is_at_rest());
    // SAFETY: each lock was frozen just before.
    unsafe {
        heap.metadata.freeze(&heap.os);
        assert!(!heap.is_at_rest());
        heap.metadata.thaw(&heap.os);
        for arena in [&heap.arena, &arena.arena] {
            arena.freeze(&heap.os);
            assert!(!heap.is_at_rest());
            arena.thaw(&heap.os);
        }
        for bin in heap.used_bins().chain(arena.bins().map(|(_, bin)| bin)) {
            bin.raw().freeze(&heap.os);
            assert!(!heap.is_at_rest());
            bin.raw().thaw(&heap.os);
        }
        heap.parts.bins.explicit.freeze_table(&heap.os);
        assert!(!heap.is_at_rest());
        heap.parts.bins.explicit.thaw(&heap.os);
    }
    heap.purging.store(true, Ordering::Relaxed);
    assert!(!heap.is_at_rest());
    heap.purging.store(false, Ordering::Relaxed);
    assert!(heap.is_at_rest());
}

#[test]
fn a_cache_whose_owner_was_inside_is_lost_and_the_rest_is_whole() {
    let copied = Copied::new();
    let (heap, end) = (&*copied.heap, copied.end());
    let other = heap.attach();
    for _ in 0..20 {
        let block = allocate(heap, other, SIZE);
        free_all(heap, other, &[block]);
    }
    let inside = own_cache(other).expect("memory");
    assert_eq!(inside.enter(), Entered::Mine);
    assert_eq!(heap.parts.caches.count(&heap.os), 2);
    become_child(heap, copied.thread);
    assert_eq!(heap.parts.caches.count(&heap.os), 1);
    let block = allocate(heap, copied.thread, SIZE);
    assert!((block as usize) < end);
    free_all(heap, copied.thread, &[block]);
    copied.go_on();
}

#[test]
fn a_thread_that_a_fork_keeps_waiting_is_served_outside() {
    let copied = Copied::new();
    let (heap, own) = (&*copied.heap, own_cache(copied.thread));
    assert!(heap.freeze(THREAD, own));
    assert!(!heap.parts.gate.is_closed_to(THREAD) && heap.parts.gate.is_closed_to(2));
    assert!(!heap.freeze(THREAD, own), "a fork within the fork");
    let mut blocks = Vec::new();
    for size in SIZES {
        let block = heap.allocate(Access::Outside, size);
        assert!(heap.arena.granule_of(block as usize).is_none());
        // SAFETY: live, and as long.
        unsafe { block.write_bytes(7, size) };
        // SAFETY: live, and not used again.
        let moved = unsafe { heap.reallocate(Access::Outside, block, 3 * size) };
        // SAFETY: live, and longer than `size`.
        assert_eq!(unsafe { *moved.add(size - 1) }, 7);
        blocks.push(moved);
    }
    let inside = allocate(heap, copied.thread, SIZE);
    for block in blocks {
        // SAFETY: live until here.
        unsafe { heap.free(Access::Outside, block) };
    }
    assert_eq!(heap.parts.outside.bytes(), 0);
    // SAFETY: live until here. Freed memory keeps its contents until the heap is open.
    unsafe { heap.free(Access::Outside, inside) };
    assert!(!heap.parts.pending.load(Ordering::Relaxed).is_null());
    assert!(!heap.thaw(2) && !heap.thaw(THREAD), "one fork is left");
    assert!(heap.thaw(THREAD) && !heap.thaw(THREAD));
    assert!(!heap.parts.gate.is_closed_to(2));
    copied.go_on();
}

#[test]
fn whoever_finds_no_room_outside_is_served_from_the_heap() {
    let heap = Heap::new(Fake::new(4096));
    assert!(!heap.allocate(Access::Direct, SIZE).is_null());
    heap.os.fail(Call::Reserve, 0, 1000, OsError::OutOfMemory);
    let block = heap.allocate(Access::Outside, SIZE);
    assert!(heap.arena.granule_of(block as usize).is_some());
    let large = heap.allocate(Access::Outside, 2 * SMALL_MAX);
    assert!(heap.arena.granule_of(large as usize).is_some());
}
