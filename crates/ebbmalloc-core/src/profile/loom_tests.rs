//! Loom: tools that write a request from outside, against threads that come to a slow operation.

use core::ptr::null;
use ebb_stats::profile::Switch;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;

const FREED: usize = 1;

/// The switch, and the request that was taken last.
struct World(Switch, AtomicU64);

impl World {
    /// As `ebb_inspect` writes it: by two system calls, in this order.
    fn ask(&self, request: u64) {
        self.0.asked.store(request, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.0.attention.store(0, Ordering::Relaxed);
    }

    /// As a slow operation answers it (`runtime/profile/lease.rs`).
    fn answer(&self) {
        if self.0.take_call(FREED) {
            let asked = self.0.asked.load(Ordering::Acquire);
            let (taken, order) = (self.1.load(Ordering::Relaxed), Ordering::Relaxed);
            if asked != taken {
                let _ = self.1.compare_exchange(taken, asked, order, order);
            }
        }
    }
}

/// The last request is never lost.
#[test]
fn requests_against_slow_operations() {
    loom::model(|| {
        let world = Arc::new(World(Switch::new(null(), FREED), AtomicU64::new(0)));
        let run = |work: fn(&World)| {
            let world = world.clone();
            thread::spawn(move || work(&world))
        };
        let threads = [run(|it| it.ask(1)), run(|it| it.ask(2)), run(World::answer)];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        world.answer();
        assert_eq!(world.1.load(Ordering::Relaxed), world.0.asked.load(Ordering::Relaxed));
    });
}
