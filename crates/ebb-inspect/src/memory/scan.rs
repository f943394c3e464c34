//! Every word of a range of addresses whose page is present: for structures that no symbol leads to.

use super::{Memory, Presence, Unreadable};

/// Bytes read at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Calls `each` with address and value of every word of `from..to` that is not 0.
pub fn words(
    memory: &dyn Memory,
    (from, to): (u64, u64),
    mut each: impl FnMut(u64, u64),
) -> Result<(), Unreadable> {
    let presence = Presence::read(memory, from, to)?;
    let mut buffer = vec![0; PIECE_BYTES];
    for (start, len) in presence.runs(presence.start(), presence.end()) {
        for offset in (0..len).step_by(PIECE_BYTES) {
            let at = start + offset as u64;
            let piece = &mut buffer[..PIECE_BYTES.min(len - offset)];
            match memory.copy(&[(at, piece.len())], piece) {
                Ok(()) => {}
                Err(error) if error.is_final() => return Err(error),
                // Unmapped meanwhile.
                Err(_) => continue,
            }
            for (address, bytes) in (at..).step_by(8).zip(piece.as_chunks().0) {
                let word = u64::from_ne_bytes(*bytes);
                if word != 0 && address >= from && address < to {
                    each(address, word);
                }
            }
        }
    }
    Ok(())
}
