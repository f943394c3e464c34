//! Explicit arenas with hooks over the fake kernel.

use super::explicit::{SIZES, allocate_in, end, free, heap, validate_arena};
use super::with_access;
use crate::arena::owner_map::UNIT;
use crate::heap::Access;
use crate::os::Os;
use crate::os::fake::Fake;
use crate::os::hooks::ExtentHooks;
use crate::size::{GRANULE, SMALL_MAX};
use core::ffi::{c_uint, c_void};
use core::ptr::null_mut;
use std::sync::Mutex;

/// What the hooks of the tests below were asked, and the kernel that they ask in turn.
pub(super) struct Hooked {
    pub(super) hooks: ExtentHooks,
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

    pub(super) fn boxed(clean: bool) -> Box<Self> {
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

unsafe extern "C" fn destroy(hooks: *mut ExtentHooks, start: *mut c_void, bytes: usize, _: bool, index: c_uint) {
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
                // SAFETY: memory that `alloc` gave, and that no thread uses.
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
            let (block, zero) = with_access(thread, |access| heap.allocate_in(arena, access, size, 1));
            assert!(!block.is_null());
            assert_eq!(zero, clean && size > SMALL_MAX);
            // SAFETY: the block is ours.
            assert_eq!(unsafe { *block }, if clean { 0 } else { 0xee });
            blocks.push(block);
        }
        let asked: Vec<_> = hooked.calls.lock().unwrap().clone();
        assert!(asked.len() >= 2 && asked.iter().all(|call| call.0 == "alloc" && call.3 == index));
        for block in blocks {
            free(&heap, thread, block);
        }
        if stays {
            hooked.refuse.lock().unwrap().push("dalloc");
        }
        assert!(end(&heap, thread, arena));
        let gone = if stays { "destroy" } else { "dalloc" };
        for call in asked {
            let found = hooked
                .calls
                .lock()
                .unwrap()
                .iter()
                .any(|other| other.0 == gone && (other.1, other.2, other.3) == (call.1, call.2, call.3));
            assert!(found, "{call:?} goes back as it came");
        }
        assert_eq!(hooked.os.record().reserved_bytes, 0);
        let now = heap.os.record();
        assert!(now.reserved_bytes <= own.reserved_bytes + (4 << 20));
    }
}

#[test]
fn the_grow_limit_bounds_what_is_reserved_at_a_time() {
    for (limit, most) in [(usize::MAX / 2 + 1, 8 * UNIT), (2 * UNIT, 2 * UNIT), (1, UNIT)] {
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
        free(&heap, None, block);
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
        assert_eq!(heap.statistics(None, true).returned >= 15 * GRANULE as u64, goes);
        let (again, zero) = heap.allocate_in(arena, Access::Direct, 1 << 20, 1);
        assert!(!again.is_null());
        if zero {
            // SAFETY: the block is ours.
            assert_eq!(unsafe { *again }, 0);
        }
        free(&heap, None, again);
        free(&heap, None, block);
        validate_arena(&heap, arena);
        heap.trim(None);
        assert!(end(&heap, None, arena));
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
