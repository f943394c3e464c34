//! The name that a program gives an arena. The statistics show it; nothing here acts on it.

use core::sync::atomic::{AtomicU8, Ordering};

/// Bytes of a name with its NUL.
pub const NAME_BYTES: usize = 32;

/// See the module. Relaxed: nothing depends on the bytes.
pub struct Name([AtomicU8; NAME_BYTES]);

impl Name {
    /// No name.
    pub const fn new() -> Self {
        Self([const { AtomicU8::new(0) }; NAME_BYTES])
    }

    /// The name, with its NUL; empty if there is none.
    pub fn get(&self) -> [u8; NAME_BYTES] {
        core::array::from_fn(|at| self.0[at].load(Ordering::Relaxed))
    }

    /// Sets the name, as much of it as fits.
    pub fn set(&self, name: &[u8]) {
        for (at, place) in self.0.iter().enumerate() {
            let byte = name.get(at).filter(|_| at < NAME_BYTES - 1);
            place.store(byte.copied().unwrap_or(0), Ordering::Relaxed);
        }
    }
}
