//! Which allocations are sampled, and what each of them stands for. Pure.
//!
//! The bytes that a thread allocates are a line on which points lie as in a Poisson process, one in
//! `2^lg` bytes on average; an allocation is sampled if a point falls into it. So an allocation of `s`
//! bytes is sampled with the probability `p = 1 - exp(-s / 2^lg)`, whatever the thread did before, and
//! counts for `1/p` of its kind: the sums are unbiased. Nothing is remembered between points, so the
//! next interval may start after the sampled block, whole.
#![forbid(unsafe_code)]

/// The largest mean interval: the fixed point of the weights has room for no more.
pub const LG_MAX: u32 = 48;

/// A thread's source of random intervals.
#[derive(Clone, Copy, Debug)]
pub struct Intervals(u64);

impl Intervals {
    /// Intervals that follow from `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// What the next [`Intervals::new`] needs to go on from here.
    pub const fn state(self) -> u64 {
        self.0
    }

    /// Bytes to the next point: an allocation that reaches beyond it is sampled.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a float is cut to whole numbers on purpose, and one out of range becomes the largest"
    )]
    pub fn draw(&mut self, lg: u32) -> i64 {
        // SplitMix64 (Steele, Lea and Flood, 2014): every state is a good one.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        // In (0, 1], so that the logarithm is finite.
        let uniform = ((bits >> 11) + 1) as f64 / (1u64 << 53) as f64;
        (-libm::log(uniform) * mean(lg)) as i64
    }
}

/// What a sampled allocation stands for.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// Allocations, in units of 1/[`Weight::ONE`].
    pub objects: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Weight {
    /// One allocation.
    pub const ONE: u64 = 256;

    /// Of an allocation of `bytes`.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float is cut to whole numbers on purpose, and one out of range becomes the largest"
    )]
    pub fn of(bytes: usize, lg: u32) -> Self {
        let share = chance(bytes as f64, lg);
        Self { objects: (Self::ONE as f64 / share + 0.5) as u64, bytes: (bytes as f64 / share + 0.5) as u64 }
    }

    /// The sum.
    pub fn add(&mut self, other: Self) {
        self.objects = self.objects.wrapping_add(other.objects);
        self.bytes = self.bytes.wrapping_add(other.bytes);
    }

    /// Takes a summand out again.
    pub fn sub(&mut self, other: Self) {
        self.objects = self.objects.wrapping_sub(other.objects);
        self.bytes = self.bytes.wrapping_sub(other.bytes);
    }

    /// The counts of samples, objects and bytes, that a reader of the heap_v2 format takes for this sum:
    /// it knows only the mean size, and scales by the chance that one of that size is sampled.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float is cut to whole numbers on purpose, and one out of range becomes the largest"
    )]
    pub fn as_samples(self, lg: u32) -> (u64, u64) {
        if self.objects == 0 {
            return (0, 0);
        }
        let objects = self.objects as f64 / Self::ONE as f64;
        let share = chance(self.bytes as f64 / objects, lg);
        let count = (objects * share + 0.5) as u64;
        (count.max(1), (self.bytes as f64 * share + 0.5) as u64)
    }

    /// Whole objects.
    pub const fn count(self) -> u64 {
        (self.objects + Self::ONE / 2) / Self::ONE
    }
}

fn mean(lg: u32) -> f64 {
    (1u64 << lg.min(LG_MAX)) as f64
}

/// The probability that an allocation of `bytes` is sampled.
fn chance(bytes: f64, lg: u32) -> f64 {
    -libm::expm1(-bytes / mean(lg))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Estimates of the bytes of many equal allocations, some of them freed at once, are right on
    /// average for sizes far below, near and far above the mean interval.
    #[test]
    fn sums_of_weights_are_unbiased() {
        for (lg, size) in [(0, 16), (9, 16), (12, 48), (12, 4096), (12, 100_000)] {
            let mut intervals = Intervals::new(42);
            let mut left = intervals.draw(lg);
            let mut sum = Weight::default();
            let count = 400_000;
            for _ in 0..count {
                left -= size;
                if left < 0 {
                    sum.add(Weight::of(size as usize, lg));
                    left = intervals.draw(lg);
                }
            }
            let truth = (count * size) as f64;
            let samples = count as f64 * chance(size as f64, lg);
            // Five standard deviations of a count of so many.
            let error = (5.0 / samples.sqrt()).max(1e-3);
            let ratio = sum.bytes as f64 / truth;
            assert!((ratio - 1.0).abs() < error, "lg {lg} size {size}: {ratio}");
            let ratio = sum.objects as f64 / (count as f64 * Weight::ONE as f64);
            assert!((ratio - 1.0).abs() < error, "lg {lg} size {size}: {ratio}");
        }
    }

    /// What jeprof and pprof make of the printed counts is the sum again.
    #[test]
    fn readers_find_the_sum() {
        let lg = 19;
        let mut sum = Weight::default();
        for (size, samples) in [(32, 900), (4096, 300), (1 << 20, 50)] {
            for _ in 0..samples {
                sum.add(Weight::of(size, lg));
            }
        }
        let (count, bytes) = sum.as_samples(lg);
        let scale = 1.0 / (1.0 - (-(bytes as f64 / count as f64) / mean(lg)).exp());
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.01;
        assert!(near(bytes as f64 * scale, sum.bytes as f64));
        assert!(near(count as f64 * scale, sum.count() as f64));
    }

    #[test]
    fn equal_allocations_are_printed_as_they_were_sampled() {
        let mut sum = Weight::default();
        for _ in 0..7 {
            sum.add(Weight::of(48, 19));
        }
        assert_eq!(sum.as_samples(19), (7, 7 * 48));
        for _ in 0..7 {
            sum.sub(Weight::of(48, 19));
        }
        assert_eq!(sum, Weight::default());
        assert_eq!(sum.as_samples(19), (0, 0));
    }
}
