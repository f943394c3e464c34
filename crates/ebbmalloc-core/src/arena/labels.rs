//! What a program has said of an arena and may ask back, though nothing here acts on it: settings of
//! jemalloc's that have no counterpart, and a name.

use core::sync::atomic::{AtomicI64, AtomicU8, AtomicUsize, Ordering};

/// Bytes of a name with its NUL.
pub const NAME_BYTES: usize = 32;
/// The words for the use of `sbrk`, in jemalloc's order.
pub const DSS: [&core::ffi::CStr; 3] = [c"disabled", c"primary", c"secondary"];
/// What an arena has of [`DSS`] before anybody says otherwise.
const SECONDARY: u8 = 2;

/// See the module. All fields are relaxed: nothing else depends on them.
pub struct Labels {
    /// How long memory stays between lazily and really returned; here nothing is returned lazily.
    pub muzzy_decay_ms: AtomicI64,
    /// Index into [`DSS`].
    pub dss: AtomicU8,
    /// From which size on blocks had an arena of their own; 0 for jemalloc's default.
    pub oversize_threshold: AtomicUsize,
    name: [AtomicU8; NAME_BYTES],
}

impl Labels {
    /// Nothing said.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self {
            muzzy_decay_ms: AtomicI64::new(0),
            dss: AtomicU8::new(SECONDARY),
            oversize_threshold: AtomicUsize::new(0),
            name: [const { AtomicU8::new(0) }; NAME_BYTES],
        }
    }

    /// Forgets what was said.
    pub fn reset(&self) {
        self.muzzy_decay_ms.store(0, Ordering::Relaxed);
        self.dss.store(SECONDARY, Ordering::Relaxed);
        self.oversize_threshold.store(0, Ordering::Relaxed);
        self.name[0].store(0, Ordering::Relaxed);
    }

    /// The name, with its NUL; empty if there is none.
    pub fn name(&self) -> [u8; NAME_BYTES] {
        core::array::from_fn(|at| self.name[at].load(Ordering::Relaxed))
    }

    /// Sets the name, as much of it as fits.
    pub fn set_name(&self, name: &[u8]) {
        for (at, place) in self.name.iter().enumerate() {
            let byte = match name.get(at) {
                Some(&byte) if at < NAME_BYTES - 1 => byte,
                _ => 0,
            };
            place.store(byte, Ordering::Relaxed);
        }
    }
}
