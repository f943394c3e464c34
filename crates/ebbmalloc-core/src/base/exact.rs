//! Conversions of whole numbers that keep their value. Of a target: addresses have 64 bits. Of a caller: the number is
//! as small as the function says, which debug builds check; each costs what `as` costs.
#![forbid(unsafe_code)]
#![expect(
    clippy::cast_possible_truncation,
    reason = "what each number can be is asserted, or fits as addresses have 64 bits"
)]

const _: () = assert!(usize::BITS == 64, "sizes and addresses are kept in 64 bits");

/// A number of the kernel's or of a setting as a size.
#[inline(always)]
pub const fn usize_of(number: u64) -> usize {
    number as usize
}

/// A signed number as one of jemalloc's `ssize_t`.
#[inline(always)]
pub const fn isize_of(number: i64) -> isize {
    number as isize
}

/// A number below 2^32: of granules, pages, slots, or a place in a table.
#[inline(always)]
pub const fn u32_of(number: usize) -> u32 {
    debug_assert!(number <= u32::MAX as usize);
    number as u32
}

/// A number below 2^16: of explicit arenas, words of a cache's first memory, or low bits.
#[inline(always)]
pub const fn u16_of(number: usize) -> u16 {
    debug_assert!(number <= u16::MAX as usize);
    number as u16
}

/// A number below 2^8: of a size class, of a shard, of a choice.
#[inline(always)]
pub const fn u8_of(number: usize) -> u8 {
    debug_assert!(number <= u8::MAX as usize);
    number as u8
}
