//! Regions of address space, extents of granules in them, and the return of idle extents to the
//! kernel. Used by bins (for slabs) and by the heap (for large blocks).

pub mod delay;
pub mod extents;
pub mod granule;
pub mod growth;
pub mod huge_pages;
pub mod large;
pub mod own_space;
pub mod owner_map;
pub mod purge;
pub mod region;
pub mod reset;
pub mod scarcity;
pub mod watch;

use crate::base::frames::Frames;
use crate::base::lock::{Guard, Lock, Rank, Wait};
use crate::base::sync::{AtomicUsize as LoomUsize, initialiser};
use crate::os::Os;
use crate::size::GRANULE;
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use extents::{Extents, REGIONS};
use granule::{Fill, Granule, Kind};

/// What look-ups without a lock need of a region. Written under the arena's lock; `top` last, with
/// release, which pairs with the acquire of a look-up. The order of the fields is that of
/// [`Arena::FIRST_VIEW`].
#[repr(C)]
struct View {
    base: AtomicUsize,
    top: AtomicUsize,
    map: AtomicUsize,
    descriptors: AtomicUsize,
}

/// Growth after which the first look at limits is due, and the most between two looks.
pub const GROWTH_STEP: usize = 4 << 20;

/// See the module.
pub struct Arena {
    extents: Lock<Extents>,
    views: [View; REGIONS],
    /// Bytes freed into slabs and extents, or that caches have got room for, since the last tick: what may be worth a purge. Added to by
    /// every flush and set to 0 by the purger, relaxed on both sides: it is a hint. One bit of it says
    /// that the heap has grown; see `watch`.
    pub freed_bytes: LoomUsize,
    /// Bytes of pages that were not resident when they were handed out. Relaxed: a hint.
    fresh_bytes: AtomicUsize,
    /// How much of that is reason to look at limits, less [`GROWTH_STEP`]: zero at the start. Written by the thread
    /// that looks; relaxed.
    growth_mark: AtomicUsize,
    frames: Frames,
}

impl Arena {
    initialiser! {
        /// No memory yet.
        pub fn new() -> Self {
            Self {
                extents: Lock::new(Rank::Arena, Extents::new()),
                views: Self::VIEWS,
                freed_bytes: LoomUsize::new(0),
                fresh_bytes: AtomicUsize::new(0),
                growth_mark: AtomicUsize::new(0),
                frames: Frames::NONE,
            }
        }
    }

    #[allow(clippy::declare_interior_mutable_const)] // Each use is a fresh copy, as wanted.
    const VIEWS: [View; REGIONS] = [const {
        View {
            base: AtomicUsize::new(0),
            top: AtomicUsize::new(0),
            map: AtomicUsize::new(0),
            descriptors: AtomicUsize::new(0),
        }
    }; REGIONS];

    /// The extents, locked.
    pub fn lock<'a, O: Os>(&'a self, os: &'a O) -> Guard<'a, Extents, O> {
        self.extents.lock(os)
    }

    /// The extents, or without waiting only if their lock is free: for signal handlers.
    pub fn lock_if<'a, O: Os>(&'a self, os: &'a O, wait: Wait) -> Option<Guard<'a, Extents, O>> {
        self.extents.lock_if(os, wait)
    }

    /// Where in an arena the first region's base, number of granules and byte map are found: three
    /// words, each of which may be loaded at any time.
    pub const FIRST_VIEW: usize = core::mem::offset_of!(Arena, views);
    /// Views of an arena, used or not.
    pub const VIEW_COUNT: usize = REGIONS;

    /// Class of the slab that `address` lies in, 0 where there is none; `None` outside the first
    /// region. This is the fast path of free.
    #[inline(always)]
    pub fn class_in_first_region(&self, address: usize) -> Option<usize> {
        let view = &self.views[0];
        let index = address.wrapping_sub(view.base.load(Ordering::Relaxed)) / GRANULE;
        if index >= view.top.load(Ordering::Relaxed) {
            return None;
        }
        let map = view.map.load(Ordering::Relaxed) as *const AtomicU8;
        // SAFETY: the map has a byte for each index below `top`, readable for ever. A program that
        // holds `address` got it after the map was written, by whatever way it got it.
        Some(unsafe { (*map.wrapping_add(index)).load(Ordering::Relaxed) } as usize)
    }

    /// The region that `address` lies in, and the index of its granule there.
    #[inline]
    fn find(&self, address: usize) -> Option<(&View, usize)> {
        for view in &self.views {
            // Pairs with the release of `publish`: what it says of the region is written.
            let top = view.top.load(Ordering::Acquire);
            if top == 0 {
                return None;
            }
            let index = address.wrapping_sub(view.base.load(Ordering::Relaxed)) / GRANULE;
            if index < top {
                return Some((view, index));
            }
        }
        None
    }

    /// The descriptor of the granule that `address` lies in, whatever the region; `None` if it lies
    /// in none.
    #[inline]
    pub fn granule_of(&self, address: usize) -> Option<*mut Granule> {
        let (view, index) = self.find(address)?;
        let descriptors = view.descriptors.load(Ordering::Relaxed) as *mut Granule;
        Some(descriptors.wrapping_add(index))
    }

    /// The byte of the granule that `address` lies in, whatever the region.
    #[inline]
    fn byte_of(&self, address: usize) -> Option<&AtomicU8> {
        let (view, index) = self.find(address)?;
        let map = view.map.load(Ordering::Relaxed) as *const AtomicU8;
        // SAFETY: the map has a byte for each index below `top`, which is never unmapped while the arena is used.
        Some(unsafe { &*map.wrapping_add(index) })
    }

    /// Class of the slab that `address` lies in, whatever the region; 0 if it lies in no slab.
    pub fn class_of(&self, address: usize) -> usize {
        self.byte_of(address).map_or(0, |byte| byte.load(Ordering::Relaxed) as usize)
    }

    /// Makes what was added to the regions visible to look-ups. Called with the lock held, before
    /// the new memory is handed out.
    fn publish(&self, extents: &mut Extents) {
        self.note_growth(extents);
        for (view, region) in self.views.iter().zip(&extents.regions[..extents.count]) {
            if view.top.load(Ordering::Relaxed) != region.top {
                view.base.store(region.base, Ordering::Relaxed);
                view.map.store(region.byte(0) as usize, Ordering::Relaxed);
                view.descriptors.store(region.descriptor(0) as usize, Ordering::Relaxed);
                view.top.store(region.top, Ordering::Release);
            }
        }
    }

    /// Counts the granules that were handed out clean.
    fn note_growth(&self, extents: &mut Extents) {
        let granules = core::mem::take(&mut extents.fresh_granules);
        if granules > 0 {
            self.note_fresh(granules * GRANULE);
        }
    }

    /// Takes granules for a slab of `class` and enters them into the byte map. The head's `fill`
    /// says whether its pages may be resident.
    pub fn allocate_slab<O: Os>(
        &self,
        os: &O,
        extents: &mut Extents,
        class: u8,
        granules: u32,
    ) -> Option<*mut Granule> {
        let head = extents.allocate(os, granules, 1)?;
        self.publish(extents);
        // SAFETY: the granules are ours alone until we hand them out.
        unsafe { self.mark_slab(head, class, granules) };
        Some(head)
    }

    /// Makes the `granules` at `head` those of a slab of `class`.
    ///
    /// # Safety
    /// They were allocated and belong to the caller alone; `base` of the first is set.
    unsafe fn mark_slab(&self, head: *mut Granule, class: u8, granules: u32) {
        // SAFETY: the granules belong to the caller (fn contract).
        unsafe {
            for index in 0..granules as usize {
                let granule = head.wrapping_add(index);
                (*granule).kind = if index == 0 { Kind::Slab } else { Kind::SlabTail };
                (*granule).head = head;
                (*granule).base = (*head).base + index * GRANULE;
                self.set_class((*granule).base, class);
            }
        }
    }

    /// Takes a slab's granules back.
    ///
    /// # Safety
    /// `head` is a slab from [`Arena::allocate_slab`] with no slot in use, on no list of its bin.
    pub unsafe fn free_slab(&self, extents: &mut Extents, head: *mut Granule, granules: u32, fill: Fill, tick: u32) {
        // SAFETY: the slab came from this arena, has no slot in use and is on no list (fn contract), so its granules
        // are the caller's.
        unsafe {
            for index in 0..granules as usize {
                self.set_class((*head.wrapping_add(index)).base, 0);
            }
            extents.free(head, granules, fill, tick);
        }
    }

    /// Enters a class into the byte map for the granule at `base`; 0 sends look-ups the slow way.
    pub fn set_class(&self, base: usize, class: u8) {
        if let Some(byte) = self.byte_of(base) {
            // A block is handed out after this store. So the thread that looks it up reads this value or a later one.
            // Release pairs with the acquire fence in `Heap::place_in_lender`: a thread that reads 0 then reads the
            // bitmap of tails, which was written before.
            byte.store(class, Ordering::Release);
        }
    }
}
