//! Loom: a thread's use of its cache, its exit, that of the thread after it, and a fork, each against the purger that claims all
//! caches.
//!
//! The shipped functions run over a kernel whose membarrier is a fence, with another fence in the
//! owner (see `cache`). Loom watches the cells of each cache: two threads at work on one is a data
//! race that it reports by itself. The assertions add that no slot is lost or given out twice.

use super::super::bins::Bins;
use super::super::cache::{Cache, Entered};
use super::Registry;
use crate::base::lock::Wait;
use crate::base::purged::Drained;
use crate::base::sync::spin_hint;
use crate::slab::bin::Age;
use crate::slab::loom_tests::{CLASS_NUMBER, Ground, Slot, model, spawn};
use core::ptr::NonNull;
use loom::sync::Arc;

struct World {
    ground: Ground,
    bins: Bins,
    registry: Registry,
}

/// A cache, as it is handed to the thread that owns it.
#[derive(Clone, Copy)]
struct Own(NonNull<Cache>);

// SAFETY: a cache may be handed to the thread that owns it from then on.
unsafe impl Send for Own {}

impl Own {
    fn cache(&self) -> &Cache {
        // SAFETY: the models unmake a cache only as their last use of it.
        unsafe { self.0.as_ref() }
    }
}

impl World {
    /// A world with `threads` caches, each of which holds `held` slots.
    fn new(threads: usize, held: usize) -> (Arc<Self>, Vec<Own>) {
        let world = Self { ground: Ground::new(), bins: Bins::new(), registry: Registry::new() };
        let caches = (0..threads).map(|_| {
            let own = Own(world.registry.attach(&world.ground.supply(), 1, None).expect("memory"));
            world.take(held).into_iter().for_each(|slot| world.keep(own.cache(), slot));
            own
        });
        let caches = caches.collect();
        (Arc::new(world), caches)
    }

    /// Puts a slot into a cache, which grows if it has to.
    fn keep(&self, cache: &Cache, slot: Slot) {
        assert_eq!(cache.enter(), Entered::Mine);
        // SAFETY: entered, and the slot is of the class.
        unsafe {
            cache.push_or_flush(&self.ground.supply(), &self.bins, CLASS_NUMBER, slot.0);
        }
        cache.leave();
    }

    fn take(&self, count: usize) -> Vec<Slot> {
        self.ground.take(self.bins.get(0, CLASS_NUMBER), count)
    }

    fn put(&self, slot: Slot) {
        self.ground.check(slot);
        // SAFETY: the slot came from these bins.
        let done = unsafe { self.bins.put(&self.ground.supply(), CLASS_NUMBER, &[slot.0], Age::Fresh, Wait::Yes) };
        assert_eq!(done, 1);
    }

    /// What the owner of a cache does in malloc and free, around a claim too.
    fn use_one(&self, own: Own) {
        let slot = match own.cache().pop(CLASS_NUMBER) {
            Some(slot) => self.ground.write(Slot(slot.as_ptr())),
            None => self.slow_pop(own.cache()),
        };
        self.ground.check(slot);
        if !own.cache().push(CLASS_NUMBER, slot.0) {
            self.put(slot);
        }
    }

    fn slow_pop(&self, cache: &Cache) -> Slot {
        if cache.enter() != Entered::Mine {
            return self.take(1)[0];
        }
        // SAFETY: entered.
        let slot = unsafe { cache.pop_or_refill(&self.ground.supply(), &self.bins, CLASS_NUMBER) };
        cache.leave();
        assert!(!slot.is_null());
        self.ground.write(Slot(slot))
    }

    fn purge(&self) -> Drained {
        self.registry.drain(&self.ground.supply(), &self.bins, true, None)
    }

    fn exit(&self, own: Own) {
        // SAFETY: the models' owners do not use the cache again.
        unsafe { self.registry.detach(&self.ground.supply(), &self.bins, own.0) };
    }

    /// Every slot is back once all threads are gone.
    fn finish(&self, caches: &[Own]) {
        caches.iter().for_each(|&own| self.exit(own));
        assert_eq!(self.registry.count(&self.ground.os), 0);
        let bin = self.bins.get(0, CLASS_NUMBER);
        assert_eq!(bin.lock(&self.ground.os).slots_out, 0);
        self.ground.validate(bin);
    }
}

#[test]
fn owner_against_claim() {
    model(|| {
        let (world, caches) = World::new(1, 2);
        let own = caches[0];
        let owner = spawn({
            let world = world.clone();
            move || world.use_one(own)
        });
        let drained = world.purge();
        assert_eq!(drained.claimed + drained.busy, 1);
        owner.join().unwrap();
        world.finish(&caches);
    });
}

#[test]
fn exit_against_claim() {
    model(|| {
        let (world, caches) = World::new(2, 1);
        let leaver = spawn({
            let (world, own) = (world.clone(), caches[0]);
            move || world.exit(own)
        });
        let drained = world.purge();
        assert!(drained.claimed == 1 || drained.claimed == 2);
        leaver.join().unwrap();
        assert_eq!(world.registry.count(&world.ground.os), 1);
        world.finish(&caches[1..]);
    });
}

#[test]
fn next_owner_against_claim() {
    model(|| {
        let (world, caches) = World::new(1, 2);
        let own = caches[0];
        // SAFETY: the owner does not use the cache again.
        unsafe { world.registry.leave(&world.ground.supply(), &world.bins, own.0) };
        let next = spawn({
            let world = world.clone();
            move || {
                let next = Own(world.registry.take_left().expect("was left"));
                world.use_one(next);
                // SAFETY: as above.
                unsafe { world.registry.leave(&world.ground.supply(), &world.bins, next.0) };
            }
        });
        world.purge();
        next.join().unwrap();
        let left: Vec<_> = world.registry.take_left().map(Own).into_iter().collect();
        world.finish(&left);
    });
}

#[test]
fn fork_against_claim() {
    model(|| {
        let (world, caches) = World::new(1, 1);
        let own = caches[0];
        let owner = spawn({
            let world = world.clone();
            move || own.cache().pop(CLASS_NUMBER).into_iter().for_each(|slot| world.put(Slot(slot.as_ptr())))
        });
        let purger = spawn({
            let world = world.clone();
            move || {
                world.purge();
            }
        });
        let os = &world.ground.os;
        world.registry.freeze(os, None);
        while !world.registry.is_quiet(os, None) {
            spin_hint();
        }
        // At this point the child would get its copy of the caches, and take them over as is done
        // here: the owner is outside, and stays outside until the thaw.
        // No thread is at work on the list then.
        let list = world.registry.list.lock(os);
        // SAFETY: frozen, and quiet since then: the owner may look, and goes away again.
        unsafe {
            own.cache().drain(&world.ground.supply(), &world.bins, true);
            assert_eq!(own.cache().bytes(), 0);
        }
        drop(list);
        world.registry.thaw(os);
        owner.join().unwrap();
        purger.join().unwrap();
        world.finish(&caches);
    });
}
