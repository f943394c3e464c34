//! Loom: holders of the thread against the thread, and against its start.
//!
//! The kernel of these models sleeps and wakes as Linux does: at a thread's end it clears the word and wakes one
//! sleeper. Timeouts do not run out, so that nothing here depends on one. Loom itself reports a sleep that no thread
//! ends, and a thread that runs while it is held away, since both touch the cell.

use super::{Futex, Life, Order, STARTING, Start};
use crate::base::sync::{AtomicU32, Ordering, UnsafeCell};
use crate::slab::loom_tests::{model, spawn};
use loom::sync::{Arc, Condvar, Mutex};

struct World {
    life: Life,
    lock: Mutex<()>,
    orders: Condvar,
    thread: Condvar,
    /// Touched by the thread as long as it lives, and by each holder.
    cell: UnsafeCell<u32>,
    /// Holders touch the cell one at a time.
    holders: Mutex<()>,
}

// SAFETY: the cell is what the models check; loom reports a race.
unsafe impl Sync for World {}

impl Futex for World {
    fn sleep(&self, word: &AtomicU32, expected: u32, _: Option<u64>) {
        let guard = self.lock.lock().unwrap();
        // Relaxed, as the kernel's own look is no barrier to the caller.
        if word.load(Ordering::Relaxed) == expected {
            drop(self.sleepers(word).wait(guard).unwrap());
        }
    }

    fn wake(&self, word: &AtomicU32) {
        let _guard = self.lock.lock().unwrap();
        self.sleepers(word).notify_all();
    }
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            life: Life::new(),
            lock: Mutex::new(()),
            orders: Condvar::new(),
            thread: Condvar::new(),
            cell: UnsafeCell::new(0),
            holders: Mutex::new(()),
        })
    }

    fn sleepers(&self, word: &AtomicU32) -> &Condvar {
        if core::ptr::eq(word, &self.life.orders) { &self.orders } else { &self.thread }
    }

    fn touch(&self) {
        // SAFETY: loom reports the race if there is one.
        self.cell.with_mut(|cell| unsafe { *cell += 1 });
    }

    /// The thread, from its first look to what the kernel does at its end.
    fn live(&self) {
        loop {
            self.touch();
            match self.life.order() {
                Order::End => break,
                Order::Hasten => {}
                Order::Nothing => self.life.sleep(self, 1000),
            }
        }
        let _guard = self.lock.lock().unwrap();
        self.life.thread.store(0, Ordering::Release);
        self.thread.notify_one();
    }

    fn hold(&self) {
        self.life.begin_hold(self);
        assert!(self.life.wait_for_end(self, None));
        let _one = self.holders.lock().unwrap();
        self.touch();
    }
}

fn start(world: &Arc<World>) -> Start {
    world.life.start(&**world, |word| {
        assert_eq!(word.load(Ordering::Relaxed), STARTING);
        word.store(7, Ordering::Relaxed);
        let world = world.clone();
        drop(spawn(move || world.live()));
        true
    })
}

#[test]
fn life_two_holders_of_a_thread_that_runs() {
    model(|| {
        let world = World::new();
        assert_eq!(start(&world), Start::Running);
        let other = spawn({
            let world = world.clone();
            move || world.hold()
        });
        world.hold();
        other.join().unwrap();
        world.life.let_go();
        world.life.let_go();
        assert!(!world.life.is_held() && !world.life.is_there());
    });
}

#[test]
fn life_holder_against_a_start() {
    model(|| {
        let world = World::new();
        let starter = spawn({
            let world = world.clone();
            move || {
                start(&world);
                world.life.hasten(&*world);
            }
        });
        world.hold();
        assert!([0, STARTING].contains(&world.life.thread.load(Ordering::Relaxed)));
        starter.join().unwrap();
        assert!(!world.life.is_there());
        world.life.let_go();
        assert_eq!(start(&world), Start::Running);
        world.hold();
    });
}

#[test]
fn life_two_holders_against_a_start() {
    model(|| {
        let world = World::new();
        let holder = spawn({
            let world = world.clone();
            move || {
                world.hold();
                world.life.let_go();
            }
        });
        let starter = spawn({
            let world = world.clone();
            move || start(&world)
        });
        world.hold();
        holder.join().unwrap();
        starter.join().unwrap();
        assert!(!world.life.is_there());
    });
}
