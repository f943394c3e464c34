//! Explicit arenas and caches over the fake kernel: where blocks lie, what a reset and an end leave
//! behind, what decay times and hooks do, and random programs in which blocks of all arenas come and go.

use super::{Thread, validate, with_access};
use crate::arena::hooks::ExtentHooks;
use crate::arena::owner_map::UNIT;
use crate::cache::explicit::ExplicitArena;
use crate::heap::explicit::Moved;
use crate::heap::{Access, Heap};
use crate::os::fake::{Call, Fake};
use crate::os::{Os, OsError};
use crate::size::{GRANULE, SMALL_MAX};
use core::ffi::{c_uint, c_void};
use core::ptr::null_mut;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Mutex;

const SIZES: [usize; 6] = [1, 100, 5000, SMALL_MAX, SMALL_MAX + 1, 700 << 10];

fn heap() -> Heap<Fake> {
    let heap = Heap::new(Fake::new(4096));
    heap.limit_shards(2);
    heap
}

fn allocate_in(heap: &Heap<Fake>, thread: Thread, arena: &ExplicitArena, size: usize) -> *mut u8 {
    let block = with_access(thread, |access| heap.allocate_in(arena, access, size, 1).0);
    assert!(!block.is_null());
    // SAFETY: the block is ours and at least `size` bytes long.
    unsafe { block.write_bytes(0x5a, size) };
    block
}

/// # Safety
/// The block is live.
unsafe fn free(heap: &Heap<Fake>, thread: Thread, block: *mut u8) {
    // SAFETY: the caller's promise.
    with_access(thread, |access| unsafe { heap.free(access, block) });
}

/// # Safety
/// Nobody uses a block of the arena any more.
unsafe fn end(heap: &Heap<Fake>, thread: Thread, arena: &ExplicitArena) -> bool {
    // SAFETY: the caller's promise.
    with_access(thread, |access| unsafe { heap.end_arena(access, arena) })
}

fn moves(heap: &Heap<Fake>, thread: Thread, index: usize) {
    let moved = with_access(thread, |access| heap.move_cache(access, index));
    assert_eq!(moved, Moved::Done);
}

/// Every validator of an explicit arena; returns the slabs and large blocks that there are.
fn validate_arena(heap: &Heap<Fake>, arena: &ExplicitArena) -> usize {
    for (class, bin) in arena.bins() {
        bin.lock(&heap.os)
            .validate(crate::slab::slab::Shape::new(class, 12));
    }
    arena.arena.lock(&heap.os).validate()
}

#[test]
fn blocks_lie_in_their_arena_and_come_back_from_anywhere() {
    let heap = heap();
    let thread = heap.attach();
    let arenas: Vec<_> = (0..3)
        .map(|_| heap.create_arena(null_mut(), 1000).unwrap())
        .collect();
    assert_eq!(heap.arena_indices(), 5);
    let mut blocks = Vec::new();
    for size in SIZES {
        for &arena in &arenas {
            let block = allocate_in(&heap, thread, arena, size);
            assert_eq!(
                heap.arena_of(block as usize + size - 1),
                Some(heap.index_of(arena))
            );
            // SAFETY: live.
            assert!(unsafe { heap.usable_size(block) } >= size);
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
        // SAFETY: live until here.
        unsafe { free(&heap, thread, block) };
    }
    heap.trim(None);
    for arena in arenas {
        assert_eq!(validate_arena(&heap, arena), 0);
    }
    let statistics = heap.statistics(None, true);
    assert_eq!((statistics.live, statistics.resident), (0, 0));
}

#[test]
fn a_thread_keeps_no_slot_of_an_arena_that_it_is_not_on() {
    let heap = heap();
    let thread = heap.attach();
    let arena = heap.create_arena(null_mut(), 1000).unwrap();
    for size in [1, 100, 5000] {
        let foreign = allocate_in(&heap, thread, arena, size);
        // SAFETY: live until here.
        unsafe { super::free(&heap, thread, foreign) };
        let own = super::allocate(&heap, thread, size);
        assert!(heap.arena_of(own as usize).unwrap() < 2);
        // SAFETY: live until here.
        unsafe { super::free(&heap, thread, own) };
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
    assert_eq!(
        with_access(thread, |access| heap.arena_of_thread(access)),
        index
    );
    let blocks: Vec<_> = SIZES
        .iter()
        .cycle()
        .take(300)
        .map(|&size| super::allocate(&heap, thread, size))
        .collect();
    assert!(
        blocks
            .iter()
            .all(|&block| heap.arena_of(block as usize) == Some(index))
    );
    for block in blocks {
        // SAFETY: live until here.
        unsafe { super::free(&heap, thread, block) };
    }
    // SAFETY: live until here.
    unsafe { super::free(&heap, thread, before) };
    // SAFETY: no block of it is left.
    assert!(!unsafe { end(&heap, thread, arena) }, "a thread is on it");
    moves(&heap, thread, 1);
    assert_eq!(
        with_access(thread, |access| heap.move_cache(access, 77)),
        Moved::NoArena
    );
    // SAFETY: as above.
    assert!(unsafe { end(&heap, thread, arena) });
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
            assert_eq!(
                heap.statistics(None, true).live,
                // SAFETY: live.
                unsafe { heap.usable_size(kept) }
            );
        }
        moves(&heap, thread, 0);
        // SAFETY: no block is left.
        assert!(unsafe { end(&heap, thread, arena) });
        // SAFETY: as above.
        assert!(!unsafe { end(&heap, thread, arena) }, "it has ended");
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
    assert_eq!(arenas.len(), crate::cache::explicit::MOST);
    let some = || arenas.iter().step_by(17);
    let blocks: Vec<_> = some()
        .map(|arena| allocate_in(&heap, None, arena, 64))
        .collect();
    for (&arena, block) in some().zip(blocks) {
        assert_eq!(heap.arena_of(block as usize), Some(heap.index_of(arena)));
        // SAFETY: live until here.
        unsafe { free(&heap, None, block) };
    }
    let last = arenas[17 * 200];
    let index = heap.index_of(last);
    // SAFETY: no block is left.
    assert!(unsafe { end(&heap, None, last) });
    let again = heap.create_arena(null_mut(), 0).unwrap();
    assert_eq!(heap.index_of(again), index);
}

#[test]
fn decay_times_are_kept_per_arena() {
    let heap = heap();
    let [at_once, soon, never] =
        [0, 1000, -1].map(|decay_ms| heap.create_arena(null_mut(), decay_ms).unwrap());
    let fill_and_free = |arena| {
        let blocks = [20_000, 1 << 20].map(|size| allocate_in(&heap, None, arena, size));
        for block in blocks {
            // SAFETY: live until here.
            unsafe { free(&heap, None, block) };
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
        with_access(thread, |access| {
            heap.with_cache(access, heap.explicit_cache(index).unwrap(), on, work)
        })
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
        assert_eq!(
            through(on, &|access| heap.allocate(access, 100)),
            block,
            "the cache kept it"
        );
        through(on, &|access| {
            // SAFETY: live until here.
            unsafe { heap.free(access, block) };
            null_mut()
        });
    }
    assert!(heap.statistics(None, true).cached > 0);
    assert_eq!(heap.statistics(None, true).threads, 1);
    assert!(heap.flush_cache(index));
    // SAFETY: nobody uses them.
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
    heap.freeze(None);
    // SAFETY: frozen just above.
    unsafe { heap.thaw(true, own.map(|cache| &*cache.as_ptr())) };
    assert_eq!(arena.threads(), 1, "the other thread is not there");
    assert!(heap.flush_cache(cache));
    // SAFETY: live until here.
    unsafe { super::free(&heap, own, block) };
    validate_arena(&heap, arena);
    let block = super::allocate(&heap, own, 200);
    assert_eq!(heap.arena_of(block as usize), Some(index));
    // SAFETY: live until here.
    unsafe { super::free(&heap, own, block) };
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
        let huge = with_access(thread, |access| {
            heap.allocate_in(arena, access, usize::MAX / 2, 1).0
        });
        assert!(huge.is_null());
        heap.os.heal();
        validate_arena(&heap, arena);
    }
    for size in SIZES {
        let block = allocate_in(&heap, thread, arena, size);
        // SAFETY: live until here.
        unsafe { free(&heap, thread, block) };
    }
}

/// What the hooks of the tests below were asked, and the kernel that they ask in turn.
struct Hooked {
    hooks: ExtentHooks,
    os: Fake,
    calls: Mutex<Vec<(&'static str, usize, usize, c_uint)>>,
    refuse: Mutex<Vec<&'static str>>,
    clean: bool,
}

impl Hooked {
    fn note(&self, what: &'static str, start: usize, bytes: usize, index: c_uint) -> bool {
        self.calls.lock().unwrap().push((what, start, bytes, index));
        self.refuse.lock().unwrap().contains(&what)
    }

    fn of<'a>(hooks: *mut ExtentHooks) -> &'a Self {
        // SAFETY: the hooks are the first field, and outlive the arena.
        unsafe { &*hooks.cast::<Self>() }
    }

    fn count(&self, what: &str) -> usize {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|call| call.0 == what).count()
    }

    fn boxed(clean: bool) -> Box<Self> {
        const {
            assert!(core::mem::offset_of!(Hooked, hooks) == 0);
        }
        Box::new(Self {
            hooks: ExtentHooks {
                alloc: Some(alloc),
                dalloc: Some(dalloc),
                destroy: Some(destroy),
                commit: Some(commit),
                decommit: Some(decommit),
                purge_lazy: Some(purge_lazy),
                purge_forced: Some(purge_forced),
                split: None,
                merge: None,
            },
            os: Fake::new(4096),
            calls: Mutex::default(),
            refuse: Mutex::default(),
            clean,
        })
    }
}

unsafe extern "C" fn alloc(
    hooks: *mut ExtentHooks,
    wanted: *mut c_void,
    bytes: usize,
    align: usize,
    zero: *mut bool,
    commit: *mut bool,
    index: c_uint,
) -> *mut c_void {
    let hooked = Hooked::of(hooks);
    assert!(wanted.is_null() && bytes.is_multiple_of(UNIT) && align >= UNIT);
    let Ok(start) = hooked.os.reserve(bytes, align) else {
        return null_mut();
    };
    if hooked.note("alloc", start.as_ptr() as usize, bytes, index) {
        return null_mut();
    }
    // SAFETY: reserved just now; the flags are the caller's.
    unsafe {
        assert!(*commit && !*zero);
        hooked.os.commit(start.as_ptr() as usize, bytes).unwrap();
        if !hooked.clean {
            start.write_bytes(0xee, bytes);
        }
        *zero = hooked.clean;
    }
    start.as_ptr().cast()
}

unsafe extern "C" fn dalloc(
    hooks: *mut ExtentHooks,
    start: *mut c_void,
    bytes: usize,
    committed: bool,
    index: c_uint,
) -> bool {
    let hooked = Hooked::of(hooks);
    assert!(committed);
    if hooked.note("dalloc", start as usize, bytes, index) {
        return true;
    }
    // SAFETY: as `alloc` gave it.
    unsafe { hooked.os.release(start as usize, bytes) };
    false
}

unsafe extern "C" fn destroy(
    hooks: *mut ExtentHooks,
    start: *mut c_void,
    bytes: usize,
    _: bool,
    index: c_uint,
) {
    let hooked = Hooked::of(hooks);
    hooked.note("destroy", start as usize, bytes, index);
    // SAFETY: as `alloc` gave it.
    unsafe { hooked.os.release(start as usize, bytes) };
}

macro_rules! hooks_on_pages {
    ($($name:ident $returns:expr;)+) => {$(
        unsafe extern "C" fn $name(
            hooks: *mut ExtentHooks,
            start: *mut c_void,
            _: usize,
            offset: usize,
            bytes: usize,
            index: c_uint,
        ) -> bool {
            let hooked = Hooked::of(hooks);
            let start = start as usize + offset;
            if hooked.note(stringify!($name), start, bytes, index) {
                return true;
            }
            if $returns {
                // SAFETY: memory that `alloc` gave, and that nobody uses.
                unsafe { hooked.os.discard(&[crate::os::PageRun { start, bytes }]) };
            }
            false
        }
    )+};
}

hooks_on_pages! {
    commit false;
    decommit true;
    purge_lazy false;
    purge_forced true;
}

#[test]
fn hooks_give_the_address_space_and_get_it_back() {
    for (clean, stays) in [(true, false), (false, true)] {
        let heap = heap();
        let thread = heap.attach();
        let mut hooked = Hooked::boxed(clean);
        let hooks = &raw mut hooked.hooks;
        let arena = heap.create_arena(hooks, 1000).unwrap();
        let index = heap.index_of(arena) as c_uint;
        let own = heap.os.record();
        let mut blocks = Vec::new();
        for size in SIZES.into_iter().chain([5 << 20]) {
            let (block, zero) =
                with_access(thread, |access| heap.allocate_in(arena, access, size, 1));
            assert!(!block.is_null());
            assert_eq!(zero, clean && size > SMALL_MAX);
            // SAFETY: the block is ours.
            assert_eq!(unsafe { *block }, if clean { 0 } else { 0xee });
            blocks.push(block);
        }
        let asked: Vec<_> = hooked.calls.lock().unwrap().clone();
        assert!(
            asked.len() >= 2
                && asked
                    .iter()
                    .all(|call| call.0 == "alloc" && call.3 == index)
        );
        for block in blocks {
            // SAFETY: live until here.
            unsafe { free(&heap, thread, block) };
        }
        if stays {
            hooked.refuse.lock().unwrap().push("dalloc");
        }
        // SAFETY: no block is left.
        assert!(unsafe { end(&heap, thread, arena) });
        let gone = if stays { "destroy" } else { "dalloc" };
        for call in asked {
            let found = hooked.calls.lock().unwrap().iter().any(|other| {
                other.0 == gone && (other.1, other.2, other.3) == (call.1, call.2, call.3)
            });
            assert!(found, "{call:?} goes back as it came");
        }
        assert_eq!(hooked.os.record().reserved_bytes, 0);
        let now = heap.os.record();
        assert!(now.reserved_bytes <= own.reserved_bytes + (4 << 20));
    }
}

#[test]
fn the_grow_limit_bounds_what_is_reserved_at_a_time() {
    for (limit, most) in [
        (usize::MAX / 2 + 1, 8 * UNIT),
        (2 * UNIT, 2 * UNIT),
        (1, UNIT),
    ] {
        let heap = heap();
        let mut hooked = Hooked::boxed(true);
        let hooks = &raw mut hooked.hooks;
        let arena = heap.create_arena(hooks, -1).unwrap();
        arena.set_grow_limit(limit);
        for _ in 0..(10 * UNIT) / (256 << 10) {
            allocate_in(&heap, None, arena, 256 << 10);
        }
        let calls = hooked.calls.lock().unwrap();
        assert_eq!(calls.iter().map(|call| call.2).max(), Some(most));
    }
}

#[test]
fn hooks_purge_in_the_order_of_what_goes() {
    let orders: [(&[&str], &str); 4] = [
        (&[], "decommit"),
        (&["decommit"], "purge_forced"),
        (&["decommit", "purge_forced"], "purge_lazy"),
        (&["decommit", "purge_forced", "purge_lazy"], "purge_lazy"),
    ];
    for (refuse, expected) in orders {
        let heap = heap();
        let mut hooked = Hooked::boxed(false);
        hooked.refuse.lock().unwrap().extend(refuse);
        let hooks = &raw mut hooked.hooks;
        let arena = heap.create_arena(hooks, 1000).unwrap();
        let block = allocate_in(&heap, None, arena, 1 << 20);
        // SAFETY: live until here.
        unsafe { free(&heap, None, block) };
        for _ in 0..4 {
            heap.tick(None);
        }
        assert_eq!(hooked.count(expected), 0, "the purger calls no hook");
        // An operation after the ticks does.
        let block = allocate_in(&heap, None, arena, 100);
        assert!(hooked.count(expected) > 0, "{expected}");
        if expected == "decommit" {
            assert_eq!(hooked.count("commit"), hooked.count("decommit"));
        }
        let goes = expected != "purge_lazy";
        assert_eq!(
            heap.statistics(None, true).returned >= 15 * GRANULE as u64,
            goes
        );
        let (again, zero) = heap.allocate_in(arena, Access::Direct, 1 << 20, 1);
        assert!(!again.is_null());
        if zero {
            // SAFETY: the block is ours.
            assert_eq!(unsafe { *again }, 0);
        }
        // SAFETY: live until here.
        unsafe {
            free(&heap, None, again);
            free(&heap, None, block);
        }
        validate_arena(&heap, arena);
        heap.trim(None);
        // SAFETY: no block is left.
        assert!(unsafe { end(&heap, None, arena) });
    }
}

#[test]
fn a_hook_that_gives_nothing_is_no_memory() {
    let heap = heap();
    let mut hooked = Hooked::boxed(true);
    hooked.refuse.lock().unwrap().push("alloc");
    let hooks = &raw mut hooked.hooks;
    let arena = heap.create_arena(hooks, 1000).unwrap();
    for size in SIZES {
        assert!(heap.allocate_in(arena, Access::Direct, size, 1).0.is_null());
    }
    hooked.hooks.alloc = None;
    assert!(heap.allocate_in(arena, Access::Direct, 100, 1).0.is_null());
    assert!(!heap.allocate(Access::Direct, 100).is_null());
}

#[derive(Clone, Debug)]
enum Step {
    Allocate {
        arena: usize,
        size: usize,
        way: usize,
    },
    Free {
        which: usize,
        way: usize,
    },
    Resize {
        which: usize,
        size: usize,
    },
    Reset {
        arena: usize,
    },
    Renew {
        arena: usize,
    },
    Move {
        to: usize,
    },
    Tick,
    Trim,
    Fork {
        child: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let size = prop_oneof![
        6 => 1..2000usize,
        2 => 2000..SMALL_MAX,
        2 => SMALL_MAX..(3 * GRANULE),
        1 => (1usize << 20)..(6 << 20),
    ];
    prop_oneof![
        12 => (0..4usize, size.clone(), 0..4usize)
            .prop_map(|(arena, size, way)| Step::Allocate { arena, size, way }),
        10 => (any::<usize>(), 0..4usize).prop_map(|(which, way)| Step::Free { which, way }),
        3 => (any::<usize>(), size).prop_map(|(which, size)| Step::Resize { which, size }),
        1 => (1..4usize).prop_map(|arena| Step::Reset { arena }),
        1 => (1..4usize).prop_map(|arena| Step::Renew { arena }),
        1 => (0..5usize).prop_map(|to| Step::Move { to }),
        3 => Just(Step::Tick),
        1 => Just(Step::Trim),
        1 => any::<bool>().prop_map(|child| Step::Fork { child }),
    ]
}

/// Blocks by address: the arena they lie in (0: the heap's own), their size and the byte that fills them.
type Shadow = BTreeMap<usize, (usize, usize, u8)>;

/// Arena 3 has hooks, and its memory is not clean.
fn check(steps: &[Step]) {
    let heap = heap();
    let thread = heap.attach();
    let mut hooked = Hooked::boxed(false);
    let hooks = &raw mut hooked.hooks;
    let make = |arena: usize| match arena {
        3 => heap.create_arena(hooks, 0).unwrap(),
        _ => heap.create_arena(null_mut(), 1000).unwrap(),
    };
    let mut arenas: Vec<_> = (1..4).map(make).collect();
    let cache = with_access(thread, |access| heap.create_cache(access)).unwrap();
    let mut shadow = Shadow::new();
    let mut seed = 0u8;
    for step in steps {
        seed = seed.wrapping_add(1);
        match *step {
            Step::Allocate { arena, size, way } => {
                let chosen = arena.checked_sub(1).map(|at| arenas[at]);
                let block = with_access(thread, |access| match (chosen, way) {
                    (_, 1) => {
                        let cache = heap.explicit_cache(cache).unwrap();
                        heap.with_cache(access, cache, chosen, |access| heap.allocate(access, size))
                    }
                    (None, 2) => heap.allocate(access.without_cache(), size),
                    (None, _) => heap.allocate(access, size),
                    (Some(chosen), _) => heap.allocate_in(chosen, access, size, 1).0,
                });
                assert!(!block.is_null());
                let index = heap.arena_of(block as usize).unwrap();
                let lies = arenas
                    .iter()
                    .position(|arena| heap.index_of(arena) == index);
                let lies = lies.map_or(0, |at| at + 1);
                assert!(chosen.is_none() || lies == arena);
                // SAFETY: the block is ours and that long.
                unsafe { block.write_bytes(seed, size) };
                let entry = (lies, size, seed);
                assert!(shadow.insert(block as usize, entry).is_none());
            }
            Step::Free { which, way } => {
                let Some((&start, &(_, size, seed))) =
                    shadow.iter().nth(which % shadow.len().max(1))
                else {
                    continue;
                };
                shadow.remove(&start);
                let block = start as *mut u8;
                // SAFETY: live until here.
                unsafe {
                    assert_eq!((*block, *block.add(size - 1)), (seed, seed));
                    with_access(thread, |access| match way {
                        0 => heap.free(access, block),
                        1 => heap.free(access.without_cache(), block),
                        2 => heap.free(Access::Nested, block),
                        _ => {
                            let cache = heap.explicit_cache(cache).unwrap();
                            heap.with_cache(access, cache, None, |access| heap.free(access, block));
                        }
                    });
                }
            }
            Step::Resize { which, size } => {
                let Some((&start, &(lies, old, seed))) =
                    shadow.iter().nth(which % shadow.len().max(1))
                else {
                    continue;
                };
                shadow.remove(&start);
                // SAFETY: live until here; then the result is.
                unsafe {
                    let block = with_access(thread, |access| {
                        heap.reallocate(access, start as *mut u8, size)
                    });
                    let last = size.min(old) - 1;
                    assert_eq!((*block, *block.add(last)), (seed, seed));
                    block.write_bytes(seed, size);
                    let found = heap.arena_of(block as usize).unwrap();
                    assert!(lies == 0 || found == heap.index_of(arenas[lies - 1]));
                    let lies = arenas
                        .iter()
                        .position(|arena| heap.index_of(arena) == found)
                        .map_or(0, |at| at + 1);
                    shadow.insert(block as usize, (lies, size, seed));
                }
            }
            Step::Reset { arena } => {
                shadow.retain(|_, block| block.0 != arena);
                let arena = arenas[arena - 1];
                // SAFETY: its blocks are forgotten.
                with_access(thread, |access| unsafe { heap.reset_arena(access, arena) });
                assert_eq!(validate_arena(&heap, arena), 0);
            }
            Step::Renew { arena } => {
                let old = arenas[arena - 1];
                if old.threads() > 0 {
                    continue;
                }
                shadow.retain(|_, block| block.0 != arena);
                // SAFETY: its blocks are forgotten.
                assert!(unsafe { end(&heap, thread, old) });
                arenas[arena - 1] = make(arena);
            }
            Step::Move { to } => {
                let index = to.checked_sub(2).map_or(to, |at| heap.index_of(arenas[at]));
                moves(&heap, thread, index);
            }
            Step::Tick => {
                with_access(thread, |_| heap.tick(None));
            }
            Step::Trim => {
                heap.trim(None);
            }
            Step::Fork { child } => {
                heap.freeze(None);
                // SAFETY: frozen just above.
                unsafe { heap.thaw(child, thread.map(|cache| &*cache.as_ptr())) };
            }
        }
    }
    validate(&heap);
    for arena in &arenas {
        validate_arena(&heap, arena);
    }
    // SAFETY: the blocks of the shadow are live.
    let held: usize = shadow
        .keys()
        .map(|&start| unsafe { heap.usable_size(start as *const u8) })
        .sum();
    heap.trim(None);
    let statistics = heap.statistics(None, true);
    assert_eq!(statistics.live, held, "{statistics:?}");
    for (&start, &(_, size, seed)) in &shadow {
        // SAFETY: live until here.
        unsafe {
            let block = start as *mut u8;
            assert_eq!((*block, *block.add(size - 1)), (seed, seed));
            free(&heap, thread, block);
        }
    }
    assert!(heap.flush_cache(cache));
    heap.trim(None);
    for arena in arenas {
        heap.purge_arena(arena, true);
        assert_eq!(validate_arena(&heap, arena), 0);
    }
    let statistics = heap.statistics(None, true);
    assert_eq!(
        (statistics.live, statistics.resident, statistics.cached),
        (0, 0, 0)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_with_arenas(steps in vec(step(), 1..250)) {
        check(&steps);
    }
}
