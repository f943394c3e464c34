//! Metadata memory over the fake kernel: pieces keep their contents and apart, blocks come back.

use super::*;
use crate::os::OsError;
use crate::os::fake::{Call, Fake};
use std::collections::BTreeMap;

const PAGE: usize = 4096;

struct Piece {
    bytes: usize,
    byte: u8,
}

fn fill(start: usize, piece: &Piece) {
    // SAFETY: the piece is in use by the test alone.
    unsafe { (start as *mut u8).write_bytes(piece.byte, piece.bytes) };
}

fn expect_filled(start: usize, piece: &Piece) {
    // SAFETY: the piece is in use by the test alone, and as long as it says.
    let bytes = unsafe { core::slice::from_raw_parts(start as *const u8, piece.bytes) };
    assert!(bytes.iter().all(|&byte| byte == piece.byte));
}

#[test]
fn pieces_stay_apart_and_keep_their_contents_whatever_is_returned() {
    let os = Fake::new(PAGE);
    let metadata = Metadata::new();
    let mut live: BTreeMap<usize, Piece> = BTreeMap::new();
    let mut state = 7u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    for step in 0..20_000 {
        let grows = (step / 2000) % 2 == 0;
        if random(10) < if grows { 7 } else { 3 } {
            let log2 = 4 + random(12);
            let bytes = 1 + random(1 << log2);
            let piece = Piece { bytes, byte: random(256) as u8 };
            let start = metadata.allocate(&os, bytes, Wait::Yes).unwrap().as_ptr() as usize;
            assert_eq!(start % bytes.next_power_of_two().max(16), 0);
            let before = live.range(..start + bytes).next_back();
            assert!(before.is_none_or(|(&other, piece)| other + piece.bytes <= start));
            fill(start, &piece);
            live.insert(start, piece);
        } else if !live.is_empty() {
            let (&start, _) = live.iter().nth(random(live.len())).unwrap();
            let piece = live.remove(&start).unwrap();
            expect_filled(start, &piece);
            // SAFETY: the piece is not used any more.
            unsafe { metadata.free(&os, NonNull::new(start as *mut u8).unwrap(), piece.bytes, false) };
        }
        if step % 100 == 0 {
            metadata.purge(&os, random(4) == 0);
            live.iter().for_each(|(&start, piece)| expect_filled(start, piece));
        }
    }
    for (start, piece) in live {
        // SAFETY: the piece is live, and the test does not use it afterwards.
        unsafe { metadata.free(&os, NonNull::new(start as *mut u8).unwrap(), piece.bytes, false) };
    }
    metadata.purge(&os, true);
    let (used, resident) = metadata.bytes(&os);
    assert_eq!(used, 0);
    assert!(resident <= 16 * PAGE, "the chunks' descriptions: {resident}");
}

#[test]
fn an_empty_block_goes_at_the_second_pass_and_serves_again() {
    let os = Fake::new(PAGE);
    let metadata = Metadata::new();
    let piece = metadata.allocate(&os, 100, Wait::Yes).unwrap();
    assert_eq!(metadata.purge(&os, false), Purged::default());
    // SAFETY: the piece is not used any more.
    unsafe { metadata.free(&os, piece, 100, false) };
    let first = metadata.purge(&os, false);
    assert_eq!((first.returned_bytes, first.more), (0, true));
    let second = metadata.purge(&os, false);
    assert_eq!((second.returned_bytes, second.more), (BLOCK, false));
    assert_eq!(metadata.bytes(&os), (0, PAGE));
    assert_eq!(
        metadata.allocate(&os, 64 << 10, Wait::Yes),
        NonNull::new((piece.as_ptr() as usize & !(BLOCK - 1)) as *mut u8)
    );
    assert_eq!(metadata.allocate(&os, (64 << 10) + 1, Wait::Yes), None);
}

#[test]
fn a_block_whose_pieces_were_idle_when_they_came_back_has_waited_already() {
    let os = Fake::new(PAGE);
    let metadata = Metadata::new();
    let pieces = [(); 2].map(|()| metadata.allocate(&os, 100, Wait::Yes).unwrap());
    metadata.purge(&os, false);
    let free = |piece, idle| {
        // SAFETY: the piece is not used any more.
        unsafe { metadata.free(&os, piece, 100, idle) }
    };
    // One in use until now keeps the block for a pass, whichever comes last.
    free(pieces[0], false);
    free(pieces[1], true);
    assert_eq!(metadata.purge(&os, false).returned_bytes, 0);
    assert_eq!(metadata.purge(&os, false).returned_bytes, BLOCK);

    let piece = metadata.allocate(&os, 100, Wait::Yes).unwrap();
    metadata.purge(&os, false);
    free(piece, true);
    assert_eq!(metadata.purge(&os, false).returned_bytes, BLOCK);
}

#[test]
fn refused_blocks_are_tried_again() {
    let os = Fake::new(PAGE);
    let metadata = Metadata::new();
    let piece = metadata.allocate(&os, 100, Wait::Yes).unwrap();
    // SAFETY: the piece is not used any more.
    unsafe { metadata.free(&os, piece, 100, false) };
    os.fail(Call::Discard, 0, 1, OsError::Refused);
    let refused = metadata.purge(&os, true);
    assert_eq!((refused.returned_bytes, refused.refused_bytes), (0, BLOCK));
    assert_eq!(metadata.purge(&os, true).returned_bytes, BLOCK);
}
