//! Loom: the lock hands its value over, with everything that was written before.

use super::{Lock, Rank};
use crate::os::fake::Fake;
use loom::sync::Arc;

#[test]
fn lock_hands_over_the_value() {
    loom::model(|| {
        let shared = Arc::new((Fake::new(4096), Lock::new(Rank::Bin, 0)));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let shared = shared.clone();
                loom::thread::spawn(move || *shared.1.lock(&shared.0) += 1)
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(*shared.1.lock(&shared.0), 2);
    });
}
