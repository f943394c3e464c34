//! Which key an unknown one was meant to be: the one that the fewest changes of a letter lead to.
#![forbid(unsafe_code)]

use super::keys::{IGNORED, KEYS};

/// The longest key that is looked at.
const LONGEST: usize = 48;

/// The known key that is closest to `name`, if it is close: no more than a third of its letters away.
pub fn nearest(name: &[u8]) -> Option<&'static str> {
    if name.is_empty() || name.len() > LONGEST {
        return None;
    }
    let (distance, key) = KEYS
        .iter()
        .map(|key| key.name)
        .chain(IGNORED.iter().copied())
        .filter(|key| key.len() <= LONGEST)
        .map(|key| (distance(name, key.as_bytes()), key))
        .min()?;
    (distance <= name.len().max(3) / 3).then_some(key)
}

/// Letters to insert, leave out or replace (Levenshtein's distance), over one row of the table.
fn distance(from: &[u8], to: &[u8]) -> usize {
    let mut row = [0; LONGEST + 1];
    for (at, cell) in row.iter_mut().enumerate() {
        *cell = at;
    }
    for (at, letter) in from.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}
