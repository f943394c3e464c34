//! A record of a few words that comes and goes while any thread reads it whole or not at all, without
//! waiting and without a lock: also in a signal handler, and in a child whose parent's thread was writing.
//!
//! The version says by its remainder by four what the record is: empty, being written, or full. A reader looks at
//! it before and after. Used by `runtime::request_hooks`.

use super::sync::{AtomicPtr, AtomicUsize, Ordering};
use core::ptr::null_mut;

const STEPS: usize = 4;
const EMPTY: usize = 0;
const WRITING: usize = 1;
const FULL: usize = 2;

/// See the module.
#[derive(Debug)]
pub struct Versioned<const WORDS: usize> {
    version: AtomicUsize,
    words: [AtomicPtr<()>; WORDS],
}

impl<const WORDS: usize> Versioned<WORDS> {
    /// An empty record.
    #[cfg(not(loom))]
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self {
            version: AtomicUsize::new(EMPTY),
            words: [const { AtomicPtr::new(null_mut()) }; WORDS],
        }
    }

    /// An empty record (loom's atomics are not const).
    #[cfg(loom)]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self {
            version: AtomicUsize::new(EMPTY),
            words: core::array::from_fn(|_| AtomicPtr::new(null_mut())),
        }
    }

    /// Fills the record, if it is empty.
    pub fn fill(&self, words: [*mut (); WORDS]) -> bool {
        let version = self.version.load(Ordering::Relaxed);
        if version % STEPS != EMPTY || !self.step(version, WRITING) {
            return false;
        }
        for (place, word) in self.words.iter().zip(words) {
            // Pairs with the load in `read`: who reads the word finds the version changed.
            place.store(word, Ordering::Release);
        }
        // Pairs with the first load in `read`.
        self.version
            .store(version.wrapping_add(FULL), Ordering::Release);
        true
    }

    /// Empties the record, if it is full.
    pub fn empty(&self) -> bool {
        let version = self.version.load(Ordering::Relaxed);
        version % STEPS == FULL && self.step(version, STEPS - FULL)
    }

    fn step(&self, version: usize, by: usize) -> bool {
        let next = version.wrapping_add(by);
        self.version
            .compare_exchange(version, next, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// The words of a full record; `None` if it is empty, or changes meanwhile.
    pub fn read(&self) -> Option<[*mut (); WORDS]> {
        // Pairs with the last store in `fill`.
        let version = self.version.load(Ordering::Acquire);
        if version % STEPS != FULL {
            return None;
        }
        let words = core::array::from_fn(|index| {
            // Pairs with the store in `fill`: a word of a later record comes with its version.
            self.words[index].load(Ordering::Acquire)
        });
        let same = self.version.load(Ordering::Relaxed) == version
            || cfg!(ebb_mutation = "versioned_again");
        same.then_some(words)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_full_or_empty() {
        let record = Versioned::<2>::new();
        let words = |number: usize| [number as *mut (), (number + 1) as *mut ()];
        assert_eq!(record.read(), None);
        assert!(!record.empty());
        assert!(record.fill(words(1)));
        assert!(!record.fill(words(3)));
        assert_eq!(record.read(), Some(words(1)));
        assert!(record.empty());
        assert!(!record.empty());
        assert_eq!(record.read(), None);
        assert!(record.fill(words(5)));
        assert_eq!(record.read(), Some(words(5)));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    #[test]
    fn a_record_is_read_whole() {
        loom::model(|| {
            let record = Arc::new(Versioned::<2>::new());
            let words = |number: usize| [number as *mut (), (number + 1) as *mut ()];
            assert!(record.fill(words(1)));
            let writer = loom::thread::spawn({
                let record = record.clone();
                move || {
                    assert!(record.empty());
                    assert!(record.fill(words(3)));
                }
            });
            if let Some(read) = record.read() {
                assert!(read == words(1) || read == words(3), "{read:?}");
            }
            writer.join().unwrap();
            assert_eq!(record.read(), Some(words(3)));
        });
    }
}
