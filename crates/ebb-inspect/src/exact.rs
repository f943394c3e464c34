//! Conversions of whole numbers that keep their value, or that take the part that is meant.

const _: () = assert!(usize::BITS == 64, "sizes and addresses are kept in 64 bits");

/// A number of 64 bits as a size or a place.
#[expect(clippy::cast_possible_truncation, reason = "sizes have 64 bits, as is asserted")]
pub const fn usize_of(number: u64) -> usize {
    number as usize
}

/// The lower half of a word.
#[expect(clippy::cast_possible_truncation, reason = "the other half is not meant")]
pub const fn low_half(word: u64) -> u32 {
    word as u32
}

/// The lowest 16 bits of a word.
#[expect(clippy::cast_possible_truncation, reason = "the others are not meant")]
pub const fn low_quarter(word: u64) -> u16 {
    word as u16
}
