//! Classes of large blocks, for statistics alone: a large block has the pages that it asked for, and is
//! counted under the smallest class that holds them. Four to a doubling, as jemalloc has them.
#![forbid(unsafe_code)]

use super::SMALL_MAX;

/// How many there are: up to 7 EiB.
pub const LARGE_CLASSES: usize = 187;

/// Size of the largest blocks of a class, numbered from 0.
pub const fn large_class_size(class: usize) -> usize {
    let group = SMALL_MAX << (class / 4);
    group + (class % 4 + 1) * (group / 4)
}

/// The class of a block of `bytes`.
pub const fn large_class_of(bytes: usize) -> usize {
    if bytes <= large_class_size(0) {
        return 0;
    }
    let last = bytes - 1;
    let log2 = usize::BITS - 1 - last.leading_zeros();
    let group = (log2 - SMALL_MAX.trailing_zeros()) as usize;
    let quarter = (last >> (log2 - 2)) & 3;
    let class = group * 4 + quarter;
    if class < LARGE_CLASSES { class } else { LARGE_CLASSES - 1 }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_holds_what_is_larger_than_the_one_before() {
        assert_eq!(large_class_size(0), 80 << 10);
        assert_eq!(large_class_size(LARGE_CLASSES - 1), 7 << 60);
        for class in 1..LARGE_CLASSES {
            let (before, size) = (large_class_size(class - 1), large_class_size(class));
            assert!(size > before);
            assert_eq!(large_class_of(size), class);
            assert_eq!(large_class_of(before + 1), class);
        }
        assert_eq!(large_class_of(0), 0);
        assert_eq!(large_class_of(usize::MAX), LARGE_CLASSES - 1);
    }
}
