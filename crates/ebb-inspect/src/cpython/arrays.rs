//! Where pymalloc's arrays of arenas are: the main interpreter's, and since 3.12 one of each interpreter with a
//! lock of its own.
//!
//! No symbol leads there. The main one is found by its shape: some word of the data of the file points to
//! records each of which names an arena, whose pools in turn name their record. That word is a field of
//! pymalloc's state, and the state lies in the interpreter or is pointed to from there (since 3.12.2 or so): where it
//! is in the main one, it is in the others.

use crate::exact::usize_of;
use crate::memory::{Presence, Reader, Unreadable, unless_torn};
use crate::space::Space;

use super::arenas::{FIRST_RECORDS, record};
use super::layout::Layout;

const WORD: u64 = 8;
/// In pymalloc's state since 3.12: after 64 words of its lists of pools.
const ARRAY_IN_STATE: u64 = 512;
/// A state that begins so early in an interpreter is a part of it; a whole interpreter is never as small.
const INSIDE_BYTES: u64 = 64 << 10;
/// An interpreter is no larger: one of 3.12 with its state inside has 375 KiB.
const MOST_INTERPRETER_BYTES: u64 = 512 << 10;

/// The main interpreter's array, and the words that point to it: one is a field of pymalloc's state, others are left
/// over from what was at its address before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct First {
    array: u64,
    words: Vec<u64>,
}

/// Where interpreters have their arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    /// The word itself, so far into an interpreter.
    Inside(u64),
    /// So far into it a pointer to the state.
    State(u64),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrays {
    /// Their addresses.
    pub(super) found: Vec<u64>,
    /// Interpreters of whose arrays nothing is known.
    pub(super) unknown: u64,
}

impl Arrays {
    /// The only one.
    pub(super) fn one(first: &First) -> Self {
        Self { found: vec![first.array], unknown: 0 }
    }
}

/// The arrays of a process with the interpreters `states` (addresses and numbers), whose main one has `first`.
pub(super) fn of_interpreters(
    reader: &mut Reader<'_>,
    first: &First,
    states: &[(u64, i64)],
    layout: &Layout,
) -> Result<Arrays, Unreadable> {
    let mut arrays = Arrays::one(first);
    let (main, others): (Vec<_>, Vec<_>) = states.iter().partition(|(_, id)| *id == 0);
    if others.is_empty() {
        return Ok(arrays);
    }
    let field = match main.first() {
        Some((main, _)) => field(reader, first, *main)?,
        None => None,
    };
    let Some(field) = field else {
        arrays.unknown = others.len() as u64;
        return Ok(arrays);
    };
    for (other, _) in others {
        match unless_torn(array_of(reader, field, other))? {
            // It shares the main one's, or has none yet.
            Some(array) if array == 0 || arrays.found.contains(&array) => {}
            Some(array) if is_array(reader, array, layout) => arrays.found.push(array),
            _ => arrays.unknown += 1,
        }
    }
    Ok(arrays)
}

/// The first array that a word of the writable `data` of the file that defines the runtime points to. It lies in own
/// memory of no file: so most words are not followed.
pub(super) fn find(
    space: Space<'_>,
    reader: &mut Reader<'_>,
    data: &[(u64, u64)],
    layout: &Layout,
) -> Result<Option<First>, Unreadable> {
    let mut first: Option<First> = None;
    let page_bytes = reader.memory().page_bytes();
    for &(start, end) in data {
        let presence = Presence::read(reader.memory(), start, end)?;
        for (run, len) in presence.runs(start, end) {
            for page in (run..run + len as u64).step_by(usize_of(page_bytes)) {
                let mut words = vec![0; usize_of(page_bytes)];
                if unless_torn(reader.bytes(page, &mut words))?.is_none() {
                    continue;
                }
                for (at, word) in (page..).step_by(usize_of(WORD)).zip(words.as_chunks().0) {
                    let array = u64::from_ne_bytes(*word);
                    match &mut first {
                        Some(first) if first.array == array => first.words.push(at),
                        None if space.own(array).is_some() && is_array(reader, array, layout) => {
                            let words = vec![at];
                            first = Some(First { array, words });
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    Ok(first)
}

/// Whether `array` has the shape, and a pool of its first arena in use names it.
fn is_array(reader: &mut Reader<'_>, array: u64, layout: &Layout) -> bool {
    if array == 0 || !array.is_multiple_of(WORD) {
        return false;
    }
    for index in 0..FIRST_RECORDS {
        let Ok(Some(record)) = record(reader, array, index, layout) else {
            return false;
        };
        if record.address == 0 {
            continue;
        }
        let pool = record.address.next_multiple_of(layout.pool_bytes);
        if record.pool_address <= pool {
            continue;
        }
        // arenaindex, written when the pool is carved.
        return reader.int(pool.wrapping_add(32)).ok().map(u64::from) == Some(index);
    }
    false
}

/// What leads from an interpreter to its array, as the main one shows.
fn field(reader: &mut Reader<'_>, first: &First, main: u64) -> Result<Option<Field>, Unreadable> {
    let state_of = |word: u64| word.wrapping_sub(ARRAY_IN_STATE);
    let is_inside = |word: &&u64| state_of(**word).wrapping_sub(main) < INSIDE_BYTES;
    if let Some(word) = first.words.iter().find(is_inside) {
        return Ok(Some(Field::Inside(word - main)));
    }
    for offset in (0..MOST_INTERPRETER_BYTES).step_by(usize_of(WORD)) {
        let to = unless_torn(reader.word(main.wrapping_add(offset)))?;
        if first.words.iter().any(|&word| to == Some(state_of(word))) {
            return Ok(Some(Field::State(offset)));
        }
    }
    Ok(None)
}

/// The array of `interpreter`; 0 where it has no arena.
fn array_of(reader: &mut Reader<'_>, field: Field, interpreter: u64) -> Result<u64, Unreadable> {
    match field {
        Field::Inside(offset) => reader.word(interpreter.wrapping_add(offset)),
        Field::State(offset) => match reader.word(interpreter.wrapping_add(offset))? {
            // It is being made, or ends.
            0 => Ok(0),
            state => reader.word(state.wrapping_add(ARRAY_IN_STATE)),
        },
    }
}
