//! The vector state of a thread, as ptrace hands it out and as a signal's frame holds it.
//!
//! Both are xsave's standard format. The frame adds to it what the kernel looks for: two marks and the sizes, in
//! bytes that the processor leaves to software, and a word after it. Without them it would restore the oldest
//! part only and drop the upper halves of the AVX registers.

use std::arch::x86_64::__cpuid_count;

/// Where software's bytes begin in the legacy area. ptrace has the features' mask there.
const SOFTWARE_BYTES: usize = 464;
/// The legacy area, and the header after it.
const LEGACY_BYTES: usize = 512;
const HEADER_BYTES: usize = 64;
const MAGIC_1: u32 = 0x4650_5853;
const MAGIC_2: u32 = 0x4650_5845;
/// Features whose room the kernel gives to a process only when it asks: the tiles of AMX.
const ON_REQUEST: u64 = 1 << 18;
/// The leaf of cpuid that tells where each feature's state lies.
const LAYOUT_LEAF: u32 = 0xd;

/// The vector state of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vectors {
    area: Vec<u8>,
}

impl Vectors {
    /// From what ptrace gave (`NT_X86_XSTATE`); `None` if that is too short to be it.
    pub fn of_thread(area: Vec<u8>) -> Option<Self> {
        (area.len() >= LEGACY_BYTES + HEADER_BYTES).then_some(Self { area })
    }

    /// The state in a signal frame's format.
    pub fn in_frame(&self) -> Vec<u8> {
        let enabled = self.word(SOFTWARE_BYTES);
        let in_use = self.word(LEGACY_BYTES);
        let features = enabled & (!ON_REQUEST | in_use);
        let bytes = bytes_of(features).min(self.area.len());
        #[expect(clippy::cast_possible_truncation, reason = "the processor's state has some KiB")]
        let size = bytes as u32;
        let mut area = self.area[..bytes].to_vec();
        let mut software = Vec::with_capacity(LEGACY_BYTES - SOFTWARE_BYTES);
        software.extend(MAGIC_1.to_le_bytes());
        software.extend((size + 4).to_le_bytes());
        software.extend(features.to_le_bytes());
        software.extend(size.to_le_bytes());
        software.resize(LEGACY_BYTES - SOFTWARE_BYTES, 0);
        area[SOFTWARE_BYTES..LEGACY_BYTES].copy_from_slice(&software);
        area.extend(MAGIC_2.to_le_bytes());
        area
    }

    fn word(&self, at: usize) -> u64 {
        let bytes = self.area[at..at + 8].try_into();
        u64::from_le_bytes(bytes.unwrap_or_default())
    }
}

/// Bytes of the standard format up to the end of the last of `features`.
fn bytes_of(features: u64) -> usize {
    // The first two are in the legacy area. Bit 63 is no feature.
    (2..63)
        .filter(|feature| features & (1 << feature) != 0)
        .map(|feature| {
            // Unsafe until Rust 1.9x, for processors without the instruction.
            #[allow(unused_unsafe, reason = "safe since")]
            // SAFETY: every 64-bit processor has the instruction.
            let layout = unsafe { __cpuid_count(LAYOUT_LEAF, feature) };
            (layout.ebx + layout.eax) as usize
        })
        .max()
        .unwrap_or(0)
        .max(LEGACY_BYTES + HEADER_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(enabled: u64, in_use: u64, bytes: usize) -> Vectors {
        let mut area = vec![0; bytes];
        area[SOFTWARE_BYTES..SOFTWARE_BYTES + 8].copy_from_slice(&enabled.to_le_bytes());
        area[LEGACY_BYTES..LEGACY_BYTES + 8].copy_from_slice(&in_use.to_le_bytes());
        Vectors { area }
    }

    fn int(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    #[test]
    fn the_marks_are_where_the_sizes_say() {
        let framed = area(0b11, 0b11, 4096).in_frame();
        assert_eq!(int(&framed, SOFTWARE_BYTES), MAGIC_1);
        let bytes = int(&framed, SOFTWARE_BYTES + 16) as usize;
        assert_eq!(bytes, LEGACY_BYTES + HEADER_BYTES);
        assert_eq!(int(&framed, SOFTWARE_BYTES + 4) as usize, bytes + 4);
        assert_eq!(int(&framed, bytes), MAGIC_2);
        assert_eq!(framed.len(), bytes + 4);
    }

    #[test]
    fn tiles_that_are_not_in_use_are_left_out() {
        let features = |vectors: Vectors| {
            let framed = vectors.in_frame();
            u64::from_le_bytes(framed[SOFTWARE_BYTES + 8..SOFTWARE_BYTES + 16].try_into().unwrap())
        };
        assert_eq!(features(area(0b11 | ON_REQUEST, 0b11, 16384)), 0b11);
        assert_eq!(features(area(0b11 | ON_REQUEST, 0b11 | ON_REQUEST, 16384)), 0b11 | ON_REQUEST);
    }

    #[test]
    fn what_is_too_short_is_no_vector_state() {
        assert_eq!(Vectors::of_thread(vec![0; 512]), None);
    }
}
