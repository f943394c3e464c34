//! mimalloc's settings in force, from its table of options, which has their names.

use std::collections::BTreeMap;

use crate::exact::{low_half, usize_of};
use crate::memory::{Reader, Unreadable, unless_torn, words};
use crate::space::Space;

/// An entry: value, state and number, name, and the name that it had before.
const ENTRY_BYTES: u64 = 32;
/// The table has no more entries, and no fewer.
const MAX_OPTIONS: u64 = 128;
const LEAST_OPTIONS: usize = 8;
/// Candidates for the table's beginning that are looked at.
const MAX_CANDIDATES: usize = 4096;
const MAX_NAME_BYTES: usize = 48;
/// Options that decide what is returned to the kernel, and when: those whose name has one of these.
const ABOUT_RETURNING: [&str; 6] = ["purge", "decommit", "reset", "abandon", "eager_commit", "retain"];

/// The options about returning memory, by name; empty where no table was found.
pub fn read(space: Space<'_>, data: &[(u64, u64)]) -> Result<BTreeMap<String, String>, Unreadable> {
    let mut candidates = Vec::new();
    for &range in data {
        words(space.memory, range, |at, word| {
            // The second entry's state and number: initialised or at its default, number 1.
            if matches!(word, 0x1_0000_0000..=0x1_0000_0002) && candidates.len() < MAX_CANDIDATES {
                candidates.push(at.wrapping_sub(8 + ENTRY_BYTES));
            }
        })?;
    }
    let mut reader = space.reader();
    for table in candidates {
        let options = table_at(&mut reader, table)?;
        if options.len() >= LEAST_OPTIONS {
            let about = options.into_iter().filter(|(name, _)| ABOUT_RETURNING.iter().any(|part| name.contains(part)));
            return Ok(about.map(|(name, value)| (name, value.cast_signed().to_string())).collect());
        }
    }
    Ok(BTreeMap::new())
}

/// The options of the table at `table`, up to the first entry that is none.
fn table_at(reader: &mut Reader<'_>, table: u64) -> Result<Vec<(String, u64)>, Unreadable> {
    let mut options = Vec::new();
    for number in 0..MAX_OPTIONS {
        let at = table.wrapping_add(number * ENTRY_BYTES);
        match unless_torn(option_at(reader, at, number))?.flatten() {
            Some(option) => options.push(option),
            None => break,
        }
    }
    Ok(options)
}

fn option_at(reader: &mut Reader<'_>, at: u64, number: u64) -> Result<Option<(String, u64)>, Unreadable> {
    let value = reader.word(at)?;
    let state = reader.word(at.wrapping_add(8))?;
    if state >> 32 != number || low_half(state) > 2 {
        return Ok(None);
    }
    let mut bytes = [0; MAX_NAME_BYTES];
    let name = reader.word(at.wrapping_add(16))?;
    // The text may end with its page, and what follows not be there.
    let here = usize_of(4096 - name % 4096).min(MAX_NAME_BYTES);
    reader.bytes(name, &mut bytes[..here])?;
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(0);
    let is_name = |byte: &u8| byte.is_ascii_lowercase() || *byte == b'_' || byte.is_ascii_digit();
    if end < 3 || !bytes[..end].iter().all(is_name) {
        return Ok(None);
    }
    let name = String::from_utf8_lossy(&bytes[..end]).into_owned();
    Ok(Some((name, value)))
}
