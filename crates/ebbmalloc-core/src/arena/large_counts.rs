//! How many large blocks of each class were made and freed. Behind the arena's lock.

use crate::size::large::{LARGE_CLASSES, large_class_of};

/// Of one class: blocks made and freed since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LargeCount {
    /// Blocks made.
    pub made: u64,
    /// Blocks freed.
    pub freed: u64,
}

/// Of all classes.
pub struct LargeCounts {
    /// By class.
    pub classes: [LargeCount; LARGE_CLASSES],
}

impl LargeCounts {
    /// No block yet.
    pub const NONE: Self = Self { classes: [LargeCount { made: 0, freed: 0 }; LARGE_CLASSES] };

    /// A block of `bytes` was made.
    pub fn made(&mut self, bytes: usize) {
        self.classes[large_class_of(bytes)].made += 1;
    }

    /// A block of `bytes` was freed.
    pub fn freed(&mut self, bytes: usize) {
        self.classes[large_class_of(bytes)].freed += 1;
    }
}
