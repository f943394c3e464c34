//! The preload object's own memory functions, against plain loops: every length and overlap around
//! the places where they change their way.
//!
//! This program is linked with them in place of libc's, so it also runs on them.

#[macro_use]
#[path = "../src/hidden_names.rs"]
mod hidden_names;
#[allow(missing_docs)]
#[path = "../src/memory_functions.rs"]
mod memory_functions;

use memory_functions::{compare, copy, copy_overlapping, fill, length};

/// Room around what is written, to see that nothing else is.
const ROOM: usize = 64;

fn lengths() -> impl Iterator<Item = usize> {
    (0..=130).chain(500..=530).chain([1000, 4095, 4096, 4097, 65536])
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// What `to[..bytes] = from[..bytes]` leaves, byte by byte, from a copy of the old contents.
// `copy_from_slice` would be the function under test.
#[allow(clippy::manual_memcpy)]
fn moved(memory: &[u8], to: usize, from: usize, bytes: usize) -> Vec<u8> {
    let mut after = memory.to_vec();
    for at in 0..bytes {
        after[to + at] = memory[from + at];
    }
    after
}

#[test]
fn copies_are_exact() {
    for bytes in lengths() {
        for offset in [0, 1, 7, 8, 15] {
            let before = pattern(2 * (bytes + 2 * ROOM));
            let (to, from) = (ROOM + offset, bytes + 3 * ROOM);
            let mut memory = before.clone();
            let base = memory.as_mut_ptr();
            // SAFETY: both ranges lie in the memory.
            let returned = unsafe { copy(base.add(to), base.add(from), bytes) };
            assert_eq!(returned.addr(), base.addr() + to);
            assert!(memory == moved(&before, to, from, bytes), "{bytes} bytes to {to}");
        }
    }
}

#[test]
fn overlapping_copies_are_exact_in_both_directions() {
    for bytes in lengths() {
        for distance in [1, 2, 8, 15, 16, 17, 31, 63] {
            for (to, from) in [(ROOM, ROOM + distance), (ROOM + distance, ROOM), (ROOM, ROOM)] {
                let before = pattern(bytes + 3 * ROOM);
                let mut memory = before.clone();
                let base = memory.as_mut_ptr();
                // SAFETY: both ranges lie in the memory.
                unsafe { copy_overlapping(base.add(to), base.add(from), bytes) };
                assert!(memory == moved(&before, to, from, bytes), "{bytes}: {from} to {to}");
            }
        }
    }
}

#[test]
fn fills_are_exact() {
    for bytes in lengths() {
        let before = pattern(bytes + 2 * ROOM);
        let mut memory = before.clone();
        // SAFETY: the range lies in the memory. Only the value's low byte counts.
        unsafe { fill(memory.as_mut_ptr().add(ROOM), 0x1234_56a5, bytes) };
        let mut expected = before;
        for byte in &mut expected[ROOM..ROOM + bytes] {
            *byte = 0xa5;
        }
        assert!(memory == expected, "{bytes} bytes");
    }
}

#[test]
fn comparisons_find_the_first_difference_as_unsigned_bytes() {
    for bytes in lengths().filter(|&bytes| bytes > 0) {
        let left = pattern(bytes);
        // SAFETY: both are as long as said.
        let equal = unsafe { compare(left.as_ptr(), left.as_ptr(), bytes) };
        assert_eq!(equal, 0);
        for at in [0, bytes / 2, bytes - 1] {
            let mut right = left.clone();
            right[at] = right[at].wrapping_add(128);
            // SAFETY: both are as long as said.
            let order = unsafe { compare(left.as_ptr(), right.as_ptr(), bytes) };
            assert_eq!(order > 0, left[at] > right[at], "{bytes} bytes, at {at}");
            assert_ne!(order, 0);
            // SAFETY: both have more than `at` bytes, and the difference is the next one.
            assert_eq!(unsafe { compare(left.as_ptr(), right.as_ptr(), at) }, 0);
        }
    }
}

#[test]
fn lengths_of_strings_end_at_the_first_nul() {
    for bytes in lengths() {
        let mut text = vec![b'x'; bytes];
        text.extend(b"\0yz\0");
        // SAFETY: the text holds a NUL.
        assert_eq!(unsafe { length(text.as_ptr()) }, bytes);
    }
}
