//! What large blocks of the allocator are to Python: an object by itself, or the table or buffer of one.
//!
//! A `bytes` or `str` is one block with its head. A list's items, a dict's table, the bytes of a `bytearray` or of an
//! array of numpy's are blocks that some small object points to, and that one lies in pymalloc's arenas: these are
//! searched for the blocks' addresses. A block gets a name only when both the block and the type look like what they
//! are to be; everything else stays without a name.

use std::collections::HashMap;

use super::arenas::{block_of, ranges};
use super::collector::{OfType, name};
use super::layout::Layout;
use crate::exact::{low_half, usize_of};
use crate::memory::{Presence, Reader, Unreadable, unless_torn};

/// In front of an object may lie: nothing, the collector's head, that and two words for its attributes.
const IN_FRONT: [u64; 3] = [0, 16, 32];
/// `PyObject`: the count of references, the type.
const TYPE: u64 = 8;
/// `PyTypeObject.tp_flags`, and the flag of `type` and its subclasses.
const TYPE_FLAGS: u64 = 168;
const IS_TYPE_OF_TYPES: u64 = 1 << 31;
/// The higher half of the count: flags since 3.14, and never an overflow. What was freed has an address there.
const OVERFLOW: u64 = 0xffff << 32;
/// Copied at a time.
const PIECE_BYTES: usize = 256 << 10;

/// What `blocks` (addresses and bytes) are, by type. `arrays` are those of the arenas; `type_of_types` is the
/// address of `type`.
pub(super) fn owners(
    reader: &mut Reader<'_>,
    blocks: &[(u64, u64)],
    arrays: &[u64],
    layout: &Layout,
    type_of_types: u64,
) -> Result<Vec<OfType>, Unreadable> {
    let mut types: HashMap<u64, Option<u64>> = HashMap::new();
    for &(block, _) in blocks {
        types.insert(block, object_at(reader, block, type_of_types)?);
    }
    for &array in arrays {
        for range in ranges(reader, array, layout) {
            if types.values().all(Option::is_some) {
                break;
            }
            search(reader, range, layout, type_of_types, &mut types)?;
        }
    }
    let mut owned: HashMap<Option<u64>, (u64, u64)> = HashMap::new();
    for (block, bytes) in blocks {
        let sum = owned.entry(types.get(block).copied().flatten()).or_default();
        *sum = (sum.0 + 1, sum.1.saturating_add(*bytes));
    }
    let mut owned: Vec<OfType> = owned
        .into_iter()
        .map(|(kind, (count, bytes))| OfType { name: kind.map(|kind| name(reader, kind)), count, bytes })
        .collect();
    OfType::sort(&mut owned);
    Ok(owned)
}

/// Searches an arena for the addresses of blocks that have no owner yet.
fn search(
    reader: &mut Reader<'_>,
    (start, end): (u64, u64),
    layout: &Layout,
    type_of_types: u64,
    types: &mut HashMap<u64, Option<u64>>,
) -> Result<(), Unreadable> {
    let wanted = types.iter().filter(|(_, kind)| kind.is_none());
    let (least, most) = wanted.fold((u64::MAX, 0), |(least, most), (&block, _)| (least.min(block), most.max(block)));
    let presence = Presence::read(reader.memory(), start, end)?;
    let mut piece = vec![0; PIECE_BYTES];
    for (run, length) in presence.runs(start, end) {
        for at in (run..run + length as u64).step_by(PIECE_BYTES) {
            let bytes = &mut piece[..PIECE_BYTES.min(usize_of(run + length as u64 - at))];
            let copied = reader.memory().copy(&[(at, bytes.len())], bytes);
            if unless_torn(copied)?.is_none() {
                continue;
            }
            let words = bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word));
            for (word, from) in words.zip((at..).step_by(8)) {
                if word < least || word > most || types.get(&word) != Some(&None) {
                    continue;
                }
                let block = unless_torn(block_of(reader, from, layout))?.flatten();
                if let Some(block) = block {
                    types.insert(word, object_at(reader, block, type_of_types)?);
                }
            }
        }
    }
    Ok(())
}

/// The type of the object in the block at `block`, if there is one.
fn object_at(reader: &mut Reader<'_>, block: u64, type_of_types: u64) -> Result<Option<u64>, Unreadable> {
    for in_front in IN_FRONT {
        let object = block.wrapping_add(in_front);
        if let Some(kind) = unless_torn(type_of(reader, object, type_of_types))?.flatten() {
            return Ok(Some(kind));
        }
    }
    Ok(None)
}

/// The type of the object at `object`, if it has a count, and a type whose type is one: of `type`'s kind.
fn type_of(reader: &mut Reader<'_>, object: u64, type_of_types: u64) -> Result<Option<u64>, Unreadable> {
    let references = reader.word(object)?;
    if low_half(references) == 0 || references & OVERFLOW != 0 {
        return Ok(None);
    }
    let kind = reader.word(object.wrapping_add(TYPE))?;
    if kind == 0 || !kind.is_multiple_of(8) {
        return Ok(None);
    }
    let of_kind = reader.word(kind.wrapping_add(TYPE))?;
    let root = reader.word(of_kind.wrapping_add(TYPE))?;
    // An object of any type would pass but for this: a list's items begin with its first two.
    let is_of_types = reader.word(of_kind.wrapping_add(TYPE_FLAGS))? & IS_TYPE_OF_TYPES != 0;
    Ok((root == type_of_types && is_of_types).then_some(kind))
}
