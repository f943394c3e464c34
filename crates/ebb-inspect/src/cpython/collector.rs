//! The interpreters of a process and the garbage collector of each: whether it is on, its thresholds, and what it tracks, by generation and type.
//!
//! Its lists are doubly linked, so that each step can be checked by the way back: a list that changed under
//! our eyes, or was never one, ends the walk and cannot make it go round.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde::{Deserialize, Serialize};

use super::layout::{Frozen, Gc, Layout};
use crate::heap::Unsupported;
use crate::memory::{Reader, Unreadable, unless_torn};

/// `struct _gc_runtime_state`, the same from 3.8 to 3.14: two fields of the trash can, enabled, debug, then
/// the generations.
const ENABLED: u64 = 12;
/// The generations begin after these, in most builds at a multiple of 8, in Debian's 3.13.5 at 20.
const GENERATIONS: [u64; 2] = [24, 20];
/// `struct gc_generation`: the list's head, threshold, count.
const GENERATION_BYTES: u64 = 24;
const THRESHOLD: u64 = 16;
const COUNT: u64 = 20;
/// `PyGC_Head` before each object; its low bits are flags.
const HEAD_BYTES: u64 = 16;
const FLAGS: u64 = 3;
/// `PyObject`: the count of references, the type, then for sequences the number of items.
const TYPE: u64 = 8;
const SIZE: u64 = 16;
/// `PyTypeObject`.
const TYPE_NAME: u64 = 24;
const BASIC_SIZE: u64 = 32;
const ITEM_SIZE: u64 = 40;
/// Types with items that do not begin as sequences do: another field lies where the number would be.
const NOT_SEQUENCES: [&str; 4] = ["frame", "generator", "coroutine", "async_generator"];
/// No process has more interpreters; a longer list is torn.
const MOST_INTERPRETERS: usize = 1024;
/// No longer list is followed: half a minute.
const MOST_OBJECTS: u64 = 50_000_000;
/// A name is cut here.
const MOST_NAME_BYTES: usize = 200;
/// No object is larger than the address space.
const MOST_BYTES: u64 = 1 << 47;

/// One interpreter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interpreter {
    /// Its number; the main one has 0.
    pub id: i64,
    /// Its garbage collector. In 3.8 all interpreters share one; it stands with the main one.
    pub collector: Option<Collector>,
}

/// The state of one collector. It is its layout in the files that `ebb snap` writes as well.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collector {
    /// Whether it runs by itself (`gc.isenabled()`).
    pub enabled: bool,
    /// `gc.get_threshold()`: a collection is due when the count is above it; the first is 0 where it never runs.
    pub thresholds: [i32; 3],
    /// `gc.get_count()`. Of the youngest generation: allocations less deallocations since; of the others: collections of the
    /// one below.
    pub counts: [i32; 3],
    /// Objects in each generation, the youngest first.
    pub tracked: [u64; 3],
    /// Objects that `gc.freeze()` has set aside: in no generation, never collected.
    pub frozen: u64,
    /// Whether every list was read to its end; if not, there are more than that.
    pub complete: bool,
    /// Whether one led into a page that is in swap, which is not read.
    #[serde(default)]
    pub swapped: bool,
    /// What it tracks, frozen objects included, by type, the most bytes first.
    #[serde(skip)]
    pub types: Vec<OfType>,
}

/// Objects or blocks of one type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfType {
    /// The type's name; absent for blocks that no object was found to have.
    pub name: Option<String>,
    /// Number of objects or blocks.
    pub count: u64,
    /// Their bytes: of objects with the collector's head, without what they point to (a list's array, a dict's table).
    pub bytes: u64,
}

impl OfType {
    /// Sorts by bytes, the most first.
    pub fn sort(all: &mut [Self]) {
        all.sort_by(|one, other| (other.bytes, &one.name).cmp(&(one.bytes, &other.name)));
    }
}

/// Counts of one type while lists are followed.
struct Tally {
    name: String,
    basic: u64,
    item: u64,
    count: u64,
    bytes: u64,
}

/// Addresses and numbers of the interpreters, the newest first.
pub(super) fn states(reader: &mut Reader<'_>, runtime: u64, layout: &Layout) -> Result<Vec<(u64, i64)>, Unsupported> {
    let mut states = Vec::new();
    let mut next = reader.word(runtime.wrapping_add(layout.head))?;
    while next != 0 {
        if states.len() == MOST_INTERPRETERS {
            return Err(Unsupported::Build("its list of interpreters has no end".to_owned()));
        }
        states.push((next, reader.word(next.wrapping_add(layout.id))?.cast_signed()));
        next = reader.word(next.wrapping_add(layout.next))?;
    }
    if states.is_empty() {
        return Err(Unsupported::Build("it has no interpreter (yet)".to_owned()));
    }
    Ok(states)
}

/// The address of the interpreter that the process began with.
pub(super) fn main_interpreter(reader: &mut Reader<'_>, runtime: u64, layout: &Layout) -> Result<u64, Unsupported> {
    states(reader, runtime, layout)?
        .into_iter()
        .find(|&(_, id)| id == 0)
        .map(|(state, _)| state)
        .ok_or_else(|| Unsupported::Build("it has no main interpreter".to_owned()))
}

pub(super) fn interpreters(
    reader: &mut Reader<'_>,
    runtime: u64,
    layout: &Layout,
) -> Result<Vec<Interpreter>, Unsupported> {
    let mut interpreters = Vec::new();
    for (state, id) in states(reader, runtime, layout)? {
        let gc = match layout.gc {
            Gc::Interpreter(offset) => Some(state.wrapping_add(offset)),
            Gc::Runtime(offset) => (id == 0).then(|| runtime.wrapping_add(offset)),
        };
        let collector = match gc.map(|at| read(reader, at, layout.frozen)) {
            Some(Err(Unreadable::Late)) => None,
            collector => collector.transpose()?,
        };
        interpreters.push(Interpreter { id, collector });
    }
    Ok(interpreters)
}

/// Reads the collector whose state is at `gc`.
pub(super) fn read(reader: &mut Reader<'_>, gc: u64, frozen: Frozen) -> Result<Collector, Unreadable> {
    let mut collector = Collector { enabled: reader.int(gc.wrapping_add(ENABLED))? != 0, ..Collector::default() };
    let mut tallies = HashMap::new();
    let mut ends = Vec::new();
    let first = generations(reader, gc)?;
    let head = |generation: usize| first.wrapping_add(generation as u64 * GENERATION_BYTES);
    // The lists later, as long as there is time.
    for generation in 0..3 {
        let head = head(generation);
        let word = reader.int(head.wrapping_add(THRESHOLD))?;
        collector.thresholds[generation] = word.cast_signed();
        collector.counts[generation] = reader.int(head.wrapping_add(COUNT))?.cast_signed();
    }
    for generation in 0..3 {
        let (tracked, end) = count(reader, head(generation), &mut tallies)?;
        collector.tracked[generation] = tracked;
        ends.push(end);
    }
    let frozen = match frozen {
        Frozen::InState(offset) => gc.wrapping_add(offset),
        Frozen::BehindGenerations => head(3),
    };
    let (frozen, end) = count(reader, frozen, &mut tallies)?;
    collector.frozen = frozen;
    ends.push(end);
    collector.complete = ends.iter().all(|end| *end == End::Reached);
    collector.swapped = ends.contains(&End::Swapped);
    let types = tallies.into_values();
    collector.types = types.map(|it| OfType { name: Some(it.name), count: it.count, bytes: it.bytes }).collect();
    OfType::sort(&mut collector.types);
    Ok(collector)
}

/// Where the youngest generation begins: where a list's neighbours on both sides point back at it.
fn generations(reader: &mut Reader<'_>, gc: u64) -> Result<u64, Unreadable> {
    let places = GENERATIONS.map(|offset| gc.wrapping_add(offset));
    for head in places {
        let forth = unless_torn(step(reader, head))?.is_some();
        let back = unless_torn(reader.word(head.wrapping_add(8)))?;
        let back = back.map(|back| reader.word(back & !FLAGS));
        let next = back.map(unless_torn).transpose()?.flatten();
        if forth && next.is_some_and(|next| next & !FLAGS == head) {
            return Ok(head);
        }
    }
    // A list that changes at this moment.
    Ok(places[0])
}

/// Why a list was followed no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It is followed to its end.
    Reached,
    /// It leads into a page that is in swap.
    Swapped,
    /// It changed.
    Torn,
    /// The time was over.
    Late,
}

/// The objects of one list, as far as it can be followed.
fn count(reader: &mut Reader<'_>, head: u64, tallies: &mut HashMap<u64, Tally>) -> Result<(u64, End), Unreadable> {
    match follow(reader, head, tallies) {
        (tracked, Ok(())) => Ok((tracked, End::Reached)),
        (tracked, Err(Unreadable::Late)) => Ok((tracked, End::Late)),
        (_, Err(error)) if error.is_final() => Err(error),
        (tracked, Err(Unreadable::Swapped(_))) => Ok((tracked, End::Swapped)),
        (tracked, Err(_)) => Ok((tracked, End::Torn)),
    }
}

/// Counts the objects of one list; where it cannot be followed to its end, those until there.
fn follow(reader: &mut Reader<'_>, head: u64, tallies: &mut HashMap<u64, Tally>) -> (u64, Result<(), Unreadable>) {
    let mut tracked = 0;
    let mut at = head;
    loop {
        let next = match step(reader, at) {
            Ok(next) if next == head => return (tracked, Ok(())),
            Ok(next) => next,
            Err(error) => return (tracked, Err(error)),
        };
        if tracked == MOST_OBJECTS {
            return (tracked, Err(Unreadable::Unmapped(next)));
        }
        if let Err(error) = tally(reader, next.wrapping_add(HEAD_BYTES), tallies) {
            return (tracked, Err(error));
        }
        tracked += 1;
        at = next;
    }
}

/// The element after `at`, if that one agrees.
fn step(reader: &mut Reader<'_>, at: u64) -> Result<u64, Unreadable> {
    let next = reader.word(at)? & !FLAGS;
    let back = reader.word(next.wrapping_add(8))? & !FLAGS;
    if back == at { Ok(next) } else { Err(Unreadable::Unmapped(next)) }
}

fn tally(reader: &mut Reader<'_>, object: u64, tallies: &mut HashMap<u64, Tally>) -> Result<(), Unreadable> {
    let address = reader.word(object.wrapping_add(TYPE))?;
    let tally = match tallies.entry(address) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(unknown) => {
            let name = name(reader, address);
            let is_sequence = !NOT_SEQUENCES.contains(&name.as_str());
            unknown.insert(Tally {
                name,
                basic: reader.word(address.wrapping_add(BASIC_SIZE))?,
                item: if is_sequence { reader.word(address.wrapping_add(ITEM_SIZE))? } else { 0 },
                count: 0,
                bytes: 0,
            })
        }
    };
    let items = match tally.item {
        0 => 0,
        // Negative for the sign of some numbers.
        _ => (reader.word(object.wrapping_add(SIZE))?.cast_signed()).unsigned_abs(),
    };
    // What no object has is no number of items: a type of an extension that is laid out otherwise.
    let bytes = tally
        .item
        .checked_mul(items)
        .filter(|&bytes| bytes < MOST_BYTES)
        .unwrap_or(0)
        .saturating_add(tally.basic)
        .saturating_add(HEAD_BYTES);
    tally.count += 1;
    tally.bytes = tally.bytes.saturating_add(bytes);
    Ok(())
}

/// The type's name; its address where that cannot be read.
pub(super) fn name(reader: &mut Reader<'_>, address: u64) -> String {
    let mut text = Vec::new();
    let start = reader.word(address.wrapping_add(TYPE_NAME)).unwrap_or(0);
    while text.len() < MOST_NAME_BYTES {
        let mut byte = [0];
        match reader.bytes(start.wrapping_add(text.len() as u64), &mut byte) {
            Ok(()) if byte[0] != 0 => text.push(byte[0]),
            _ => break,
        }
    }
    match String::from_utf8(text) {
        Ok(name) if !name.is_empty() && !name.chars().any(char::is_control) => name,
        _ => format!("type at {address:#x}"),
    }
}
