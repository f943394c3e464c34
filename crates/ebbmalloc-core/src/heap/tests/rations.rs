//! A rationed cache counts exactly: the allocation chosen as the sample is found,
//! whatever the thread, the purger and the settings do in between.

use super::{Thread, free, validate, with_access};
use crate::cache::ration::{RATIONED, Rations};
use crate::heap::Heap;
use crate::os::fake::Fake;
use crate::size::{CLASS, QUICK_MAX, class_of};
use core::ptr::NonNull;

struct Rationed {
    heap: &'static Heap<Fake>,
    thread: Thread,
    rations: NonNull<Rations>,
    /// By class: allocations since the distance to the sample was drawn, and that distance.
    passed: [u64; RATIONED + 1],
    said: [Option<u64>; RATIONED + 1],
    samples: usize,
}

impl Rationed {
    fn new() -> Self {
        let heap = &*Box::leak(Box::new(Heap::new(Fake::new(4 << 10))));
        let rations = heap.allocate_metadata(size_of::<Rations>()).unwrap().cast();
        let thread = heap.attach();
        let mut made =
            Self { heap, thread, rations, passed: [0; RATIONED + 1], said: [None; RATIONED + 1], samples: 0 };
        made.start();
        made
    }

    fn start(&mut self) {
        // SAFETY: the memory lives as long as the heap.
        assert!(unsafe { self.heap.set_rations(self.cache(), Some(self.rations)) });
        self.said = [None; RATIONED + 1];
    }

    fn cache(&self) -> &'static crate::cache::cache::Cache {
        // SAFETY: never detached here.
        unsafe { self.thread.unwrap().as_ref() }
    }

    /// As `runtime` allocates in a sampled thread; `draw` says how many are ahead of the next sample.
    fn allocate(&mut self, size: usize, draw: &mut dyn FnMut() -> u64) -> *mut u8 {
        let class = class_of(size);
        let slot = self.cache().pop_quick(size);
        if let Some(slot) = slot.or_else(|| self.cache().pop_next_ration(class)) {
            self.passed[class] += 1;
            assert!(self.passed[class] <= self.said[class].unwrap());
            return slot.as_ptr();
        }
        let heap = self.heap;
        let due = with_access(self.thread, |_| {
            let cache = self.cache();
            // SAFETY: entered, and rationed since it was made.
            unsafe {
                if cache.ahead(class).is_none() {
                    let ahead = draw();
                    cache.set_ahead(class, Some(ahead));
                    self.said[class] = Some(ahead);
                    self.passed[class] = 0;
                }
                let due = cache.ahead(class) == Some(0);
                if due {
                    cache.set_ahead(class, None);
                }
                due
            }
        });
        if due {
            assert_eq!(self.passed[class], self.said[class].unwrap());
            self.samples += 1;
            return with_access(self.thread, |access| heap.allocate_apart(access, None, size, 1));
        }
        self.passed[class] += 1;
        assert!(self.passed[class] <= self.said[class].unwrap());
        with_access(self.thread, |access| heap.allocate(access, size))
    }
}

#[test]
fn the_allocation_to_be_sampled_is_found_whatever_comes_between() {
    let mut rationed = Rationed::new();
    let mut state = 7u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (state >> 33) % below
    };
    let mut live = Vec::new();
    for step in 0..60_000 {
        let size = match random(3) {
            0 => 64,
            _ => random(QUICK_MAX as u64 + 1) as usize,
        };
        let ahead = random(300);
        let block = rationed.allocate(size, &mut || ahead);
        assert!(!block.is_null());
        live.push(block);
        // Now one block at a time, now many.
        while live.len() as u64 > [1, 20, 3000][step / 500 % 3] {
            let block = live.swap_remove(random(live.len() as u64) as usize);
            free(rationed.heap, rationed.thread, block);
        }
        match random(4000) {
            0 => drop(rationed.heap.tick(None)),
            1 => drop(rationed.heap.trim(None)),
            2 => with_access(rationed.thread, |access| rationed.heap.flush(access)),
            3 => rationed.start(),
            _ => {}
        }
    }
    assert!(rationed.samples > 100);
    validate(rationed.heap);
    for block in live {
        free(rationed.heap, rationed.thread, block);
    }
    rationed.heap.trim(None);
    assert_eq!(validate(rationed.heap), 0);
}

#[test]
fn a_block_that_goes_to_and_fro_seldom_leaves_the_fast_path() {
    let mut rationed = Rationed::new();
    let mut slow = 0;
    for _ in 0..10_000 {
        let block = if let Some(slot) = rationed.cache().pop_quick(64) {
            rationed.passed[class_of(64)] += 1;
            slot.as_ptr()
        } else {
            slow += 1;
            rationed.allocate(64, &mut || 1 << 40)
        };
        free(rationed.heap, rationed.thread, block);
    }
    assert!(slow < 10_000 / 32, "{slow}");
    let cache = rationed.cache();
    // SAFETY: no thread is inside, and the cache is rationed.
    let ahead = unsafe { cache.ahead(class_of(64)) };
    assert_eq!(ahead, Some((1 << 40) - 10_000));
    // SAFETY: no thread is inside.
    let held = unsafe { cache.bytes() } / CLASS[class_of(64)].size as usize;
    assert!((32..=200).contains(&held), "{held}");
}

#[test]
fn a_cache_whose_rations_end_is_one_like_others() {
    let mut rationed = Rationed::new();
    let block = rationed.allocate(100, &mut || 1000);
    free(rationed.heap, rationed.thread, block);
    let cache = rationed.cache();
    assert!(cache.is_rationed() && cache.pop_unrationed(class_of(100)).is_none());
    // SAFETY: there are none to live on.
    assert!(unsafe { rationed.heap.set_rations(cache, None) });
    assert!(!cache.is_rationed());
    let block = super::allocate(rationed.heap, rationed.thread, 100);
    free(rationed.heap, rationed.thread, block);
    assert_eq!(cache.pop_unrationed(class_of(100)).unwrap().as_ptr(), block);
}
