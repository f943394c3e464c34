//! Requests that say more than a size: an alignment, zeros, a cache, an arena. `mallocx` and its kin come here.

use core::ptr::NonNull;
use ebbmalloc_core::cache::cache::Cache;
use ebbmalloc_core::cache::explicit::ExplicitArena;
use ebbmalloc_core::heap::Access;
use ebbmalloc_core::runtime::face::{HEAP, observer, quick_class, with_access};
use ebbmalloc_core::runtime::{self, Maker, face, strict};
use ebbmalloc_core::size::{CLASS, GRANULE, QUANTUM, SMALL_MAX, class_aligned};

/// Which cache a request goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheChoice {
    /// The thread's own.
    Own,
    /// None.
    None,
    /// The explicit one of this index.
    Explicit(u32),
}

/// The parts of a request other than its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// A power of two; 1 if it does not matter.
    pub align: usize,
    /// The block reads as zero.
    pub zero: bool,
    /// The cache that serves it.
    pub cache: CacheChoice,
    /// The arena of this index; `None` is the one that the thread, or the cache, is on.
    pub arena: Option<u32>,
}

impl Choice {
    /// A request that says nothing but its size.
    pub const PLAIN: Self = Self { align: 1, zero: false, cache: CacheChoice::Own, arena: None };

    /// What the flags of `mallocx` say: log2 of the alignment in the low six bits; 0x40 for zeros; from
    /// bit 8 on which cache, from bit 20 on which arena.
    pub fn from_flags(flags: i32) -> Self {
        const LOG2_ALIGN: i32 = 0x3f;
        const ZERO: i32 = 0x40;
        const TWELVE_BITS: u32 = 0xfff;
        let cache = flags.cast_unsigned() >> 8 & TWELVE_BITS;
        let arena = flags.cast_unsigned() >> 20 & TWELVE_BITS;
        Self {
            align: 1 << (flags & LOG2_ALIGN),
            zero: flags & ZERO != 0,
            cache: match cache {
                0 => CacheChoice::Own,
                1 => CacheChoice::None,
                index => CacheChoice::Explicit(index - 2),
            },
            arena: arena.checked_sub(1),
        }
    }

    /// Whether it leaves the place to the thread.
    fn is_placed_by_thread(&self) -> bool {
        self.cache == CacheChoice::Own && self.arena.is_none()
    }
}

/// A block of at least `size` bytes; null if there is no memory, or no such cache or arena.
///
/// Zeros reach to the end of what is usable.
pub fn allocate_with(size: usize, choice: &Choice) -> *mut u8 {
    if is_strict() {
        return allocate_strictly(size, choice);
    }
    if !choice.zero {
        return allocate_as_chosen(size, choice);
    }
    let bytes = usable_of_request(size, choice);
    if bytes == 0 {
        return core::ptr::null_mut();
    }
    let block = allocate_as_chosen(bytes, choice);
    if !block.is_null() {
        // A block from another class than its own is longer, as a signal handler may get it.
        // SAFETY: allocated just now.
        unsafe { zero_from(block, bytes) };
    }
    block
}

/// Whether each block has a tag. At the first request of the process the settings are read for it.
fn is_strict() -> bool {
    observer();
    strict::is_on()
}

/// [`allocate_with`] in strict mode: of such a block just the bytes that were asked for are usable.
fn allocate_strictly(size: usize, choice: &Choice) -> *mut u8 {
    let size = size.max(1);
    let block = if choice.is_placed_by_thread() {
        allocate_as_chosen(size, choice)
    } else {
        strict::allocate(observer(), size, choice.align, Maker::Malloc, |align, bytes| {
            allocate_placed_elsewhere(bytes, &Choice { align, ..*choice })
        })
    };
    if choice.zero && !block.is_null() {
        // SAFETY: allocated just now. Where the alignment leaves no place for a tag, it is longer.
        unsafe { zero_from(block, size) };
    }
    block
}

/// Makes the usable bytes of a block after its first `from` bytes read as zero.
///
/// # Safety
/// The block is the caller's.
unsafe fn zero_from(block: *mut u8, from: usize) {
    // SAFETY: the fn contract: the bytes up to the usable size are the caller's.
    unsafe {
        let usable = runtime::usable_size(block);
        if usable > from {
            HEAP.zero(block.add(from), usable - from);
        }
    }
}

/// [`allocate_with`]; with `zero`, `size` bytes of zeros.
fn allocate_as_chosen(size: usize, choice: &Choice) -> *mut u8 {
    if choice.is_placed_by_thread() {
        if choice.zero && choice.align <= QUANTUM {
            return runtime::malloc_zeroed(size);
        }
        if !choice.zero || size <= SMALL_MAX || is_strict() {
            let block = runtime::memalign(choice.align, size);
            if choice.zero && !block.is_null() {
                // SAFETY: the block is ours and at least `size` bytes long.
                unsafe { block.write_bytes(0, size) };
            }
            return block;
        }
    }
    allocate_placed_elsewhere(size, choice)
}

/// The same where the thread, or in a large block for zeros the heap, does not choose the place.
fn allocate_placed_elsewhere(size: usize, choice: &Choice) -> *mut u8 {
    if let Some(block) = allocate_sampled(size, choice) {
        if choice.zero {
            // SAFETY: the block is ours and at least `size` bytes long.
            unsafe { block.write_bytes(0, size) };
        }
        return block;
    }
    let (block, zero) = match slot_of_cache(size, choice) {
        Some(slot) => (slot.as_ptr(), false),
        None => with_access(|access| allocate_placed(access, size, choice)),
    };
    if block.is_null() {
        return block;
    }
    if choice.zero && !zero {
        // SAFETY: the block is ours and at least `size` bytes long.
        unsafe { HEAP.zero(block, size) };
    }
    if let Some(observer) = observer() {
        // SAFETY: the block is live since just now, and not handed out yet.
        unsafe {
            face::note_new(observer, block);
            if !choice.zero {
                face::fill_new_by_settings(observer, block);
            }
        }
    }
    block
}

/// A small block, if it is one to be sampled: it lies apart, in the arena that was chosen.
fn allocate_sampled(size: usize, choice: &Choice) -> Option<*mut u8> {
    let observer = observer()?;
    let class = class_aligned(size, choice.align)?;
    let arena = match (choice.arena, choice.cache) {
        (Some(index), _) if (index as usize) < HEAP.shards() => None,
        (Some(index), _) => Some(HEAP.explicit_arena(index as usize)?),
        (None, CacheChoice::Explicit(index)) => HEAP.arena_of_cache(HEAP.explicit_cache(index as usize)?),
        (None, _) => None,
    };
    face::take_sampled_in(observer, arena, CLASS[class].size as usize)
}

/// A slot that the chosen explicit cache holds; `None` says nothing about memory.
fn slot_of_cache(size: usize, choice: &Choice) -> Option<NonNull<u8>> {
    let CacheChoice::Explicit(index) = choice.cache else {
        return None;
    };
    let class = HEAP.class_in_caches(size, choice.align)?;
    let cache = HEAP.explicit_cache(index as usize)?;
    if let Some(index) = choice.arena
        && HEAP.explicit_arena(index as usize)?.home() != cache.home()
    {
        return None;
    }
    cache.pop(class)
}

/// Keeps a free slot in an explicit cache; false says only that another way must be taken.
fn slot_to_cache(cache: &Cache, block: *mut u8) -> bool {
    let address = block as usize;
    let class = match quick_class(address) {
        Some(class) if class != 0 => cache.keeps_heap_slots().then_some(class),
        _ => HEAP.class_at_home(cache, address),
    };
    class.is_some_and(|class| cache.push(class, block))
}

/// A block from the cache and the arena that were chosen, and whether it is known to read as zero.
fn allocate_placed(access: Access, size: usize, choice: &Choice) -> (*mut u8, bool) {
    const NOTHING: (*mut u8, bool) = (core::ptr::null_mut(), false);
    let align = choice.align;
    let arena = choice.arena.map(|index| index as usize);
    let explicit = arena.and_then(|index| HEAP.explicit_arena(index));
    if arena.is_some_and(|index| explicit.is_none() && index >= HEAP.shards()) {
        return NOTHING;
    }
    if let CacheChoice::Explicit(index) = choice.cache {
        let Some(cache) = HEAP.explicit_cache(index as usize) else {
            return NOTHING;
        };
        // A shard is as good as another; a cache that is on an arena of its own stays there.
        return HEAP.with_cache(access, cache, explicit, |access| match explicit {
            // The purger has the cache, or a signal handler asks.
            Some(arena) if !HEAP.is_on(access, arena) => allocate_in(arena, access, size, align),
            _ => HEAP.allocate_chosen(access, size, align),
        });
    }
    let around = choice.cache == CacheChoice::None;
    let is_there = |index| !around && HEAP.arena_of_thread(access) == index;
    match (arena, explicit) {
        (None, _) if around => HEAP.allocate_chosen(access.without_cache(), size, align),
        (None, _) => HEAP.allocate_chosen(access, size, align),
        (Some(index), _) if is_there(index) => HEAP.allocate_chosen(access, size, align),
        (_, Some(explicit)) => allocate_in(explicit, access, size, align),
        (Some(index), None) => HEAP.allocate_in_shard(index, access, size, align),
    }
}

/// A block of an explicit arena; a signal handler that finds the locks taken is served from elsewhere.
fn allocate_in(arena: &ExplicitArena, access: Access, size: usize, align: usize) -> (*mut u8, bool) {
    let made = HEAP.allocate_in(arena, access, size, align);
    if made.0.is_null() && matches!(access, Access::Nested | Access::Outside) {
        return HEAP.allocate_chosen(access, size, align);
    }
    made
}

/// Takes a block back.
///
/// # Safety
/// As for [`runtime::free`].
pub unsafe fn free_with(block: *mut u8, choice: &Choice) {
    if choice.cache == CacheChoice::Own || block.is_null() || is_strict() {
        // SAFETY: the block is null or from here, and not used any more (contract of `free`).
        return unsafe { runtime::free(block) };
    }
    if let Some(observer) = observer() {
        // SAFETY: the block is live until it is freed below, and not null.
        observer.count_freed(unsafe { HEAP.usable_size(block) });
    }
    let cache = match choice.cache {
        CacheChoice::Explicit(index) => HEAP.explicit_cache(index as usize),
        _ => None,
    };
    if cache.is_some_and(|cache| slot_to_cache(cache, block)) {
        return;
    }
    with_access(|access| match cache {
        // SAFETY: the block is from here and not used any more (contract of `free`).
        Some(cache) => HEAP.with_cache(access, cache, None, |access| unsafe {
            HEAP.free(access, block);
        }),
        // SAFETY: the block is from here and not used any more (contract of `free`).
        None => unsafe { HEAP.free(access.without_cache(), block) },
    });
}

/// Makes a block larger or smaller; null if there is no memory, and the block is unchanged then. With
/// `zero`, what is beyond its old usable size reads as zero. The block is as long as
/// [`usable_of_request`] says.
///
/// # Safety
/// As for [`runtime::realloc`].
pub unsafe fn reallocate_with(block: *mut u8, size: usize, choice: &Choice) -> *mut u8 {
    // SAFETY: the block is live and from here (fn contract).
    let old = unsafe { runtime::usable_size(block) };
    // SAFETY: the block is live and the caller's (contract of `realloc`), and `old` is its usable size.
    let new = unsafe { reallocate(block, old, size, choice) };
    if choice.zero && !new.is_null() {
        // SAFETY: the block is ours.
        unsafe { zero_from(new, old) };
    }
    new
}

/// # Safety
/// As for [`reallocate_with`]; `old` is the usable size of `block`.
unsafe fn reallocate(block: *mut u8, old: usize, size: usize, choice: &Choice) -> *mut u8 {
    let wanted = usable_of_request(size, choice);
    if wanted == 0 {
        return core::ptr::null_mut();
    }
    // In strict mode every change is a new block.
    if !is_strict() && (block as usize).is_multiple_of(choice.align) {
        // SAFETY: the block is live and the caller's (contract of `reallocate_with`).
        if old == wanted || unsafe { resize_in_place(block, size, size, false) } == wanted {
            return block;
        }
        // A block that grows to a large one begins at a granule.
        let is_aligned = choice.align <= QUANTUM || size > SMALL_MAX && choice.align <= GRANULE;
        if choice.is_placed_by_thread() && is_aligned && size > old {
            // Knows how to grow.
            // SAFETY: the block is live and the caller's (contract of `reallocate_with`).
            return unsafe { runtime::realloc(block, size) };
        }
    }
    let plain = Choice { zero: false, ..*choice };
    let new = allocate_with(size, &plain);
    if !new.is_null() {
        // SAFETY: both blocks are live, apart, and at least this long.
        unsafe {
            HEAP.hand_over(block, new, old.min(size));
            free_with(block, choice);
        }
    }
    new
}

/// Makes a block at least `least` bytes long where it is, up to `most` if there is room, and no longer
/// than that if it is a large one; returns its usable size afterwards. With `zero`, what is new reads
/// as zero.
///
/// # Safety
/// `block` is a live block from here, which no other thread changes meanwhile.
pub unsafe fn resize_in_place(block: *mut u8, least: usize, most: usize, zero: bool) -> usize {
    // SAFETY: the block is live and from here (fn contract).
    let old = unsafe { runtime::usable_size(block) };
    if is_strict() {
        return old;
    }
    // SAFETY: the block is live, and no other thread changes it (fn contract).
    let new = with_access(|access| unsafe { HEAP.resize_in_place(access, block, least, most) });
    if zero && new > old {
        // SAFETY: the block is as long as the line above returned.
        unsafe { HEAP.zero(block.add(old), new - old) };
    }
    if let Some(observer) = observer()
        && new != old
    {
        observer.count_freed(old);
        face::count_new(observer, new);
    }
    new
}

/// Usable bytes of the block that [`allocate_with`] would give; 0 if it would give none whatever the
/// memory.
pub fn usable_of_request(size: usize, choice: &Choice) -> usize {
    match HEAP.usable_of_request(size, choice.align) {
        0 => 0,
        _ if is_strict() && choice.align <= GRANULE => size.max(1),
        bytes => bytes,
    }
}
