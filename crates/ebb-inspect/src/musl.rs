//! musl's malloc since 1.2.1 (mallocng) on x86-64: every group of slots, so live blocks are known exactly.
//!
//! [`read`] is the entry. `groups` reads the records of all groups, which lie apart from the blocks, and
//! sets each into the slot that it lies in; here they are counted. The place of malloc's state has no name: it
//! is the one that begins with a secret which the first area of records repeats.
//!
//! musl has no settings and no caches of threads. A slot that is freed stays with its group until the whole
//! group is free. What is read is held against musl's own count of slots in each class.

mod groups;
#[cfg(test)]
mod tests;

use std::path::Path;

use ebb_allocators::Allocator;

use crate::breakdown::Breakdown;
use crate::heap::{Classes, Heap, Unsupported, consistent};
use crate::image::Image;
use crate::memory::{Presence, Unreadable, unless_torn, words};
use crate::space::Space;
use crate::target::Target;

use groups::{CLASSES, Group, Groups, UNIT};

const NAME: &str = Allocator::Musl.name();
/// `malloc_context`: the offsets of the fields that are read. It begins with the secret.
const INITIALISED: u64 = 8;
const FIRST_AREA: u64 = 56;
const SLOTS_BY_CLASS: u64 = 464;
/// The part of all slots by which the records may differ from musl's count: the process runs meanwhile.
const MAX_DIFFERENCE: f64 = 0.05;
const LEAST_DIFFERENCE: u64 = 64;
/// `1.2.3` between two zeros.
const VERSION_BYTES: usize = 12;

/// What a group that was torn may have: slots are smaller than that.
const TORN_BYTES: u64 = 1 << 20;

/// What the musl in the mapped file `file` of `target` holds: its libc, or the program that has it inside.
pub fn read(target: &Target, file: &Path) -> Result<Heap, Unsupported> {
    let mappings = target.mappings()?;
    let space = Space { memory: target.memory(), mappings: &mappings };
    let image = Image::of(target, &mappings, file).ok_or(Unsupported::NotThere(NAME))?;
    of_data(space, image.data(), version(&image).as_deref())
}

/// What the musl whose data is `data` holds.
fn of_data(
    space: Space<'_>,
    data: &[(u64, u64)],
    version: Option<&str>,
) -> Result<Heap, Unsupported> {
    let name = version.map_or(NAME.to_owned(), |version| format!("{NAME} {version}"));
    let Some(context) = locate(space, data)? else {
        return Err(match version {
            // Before 1.2.1, and where a distribution chose it, musl has another malloc.
            Some(_) => Unsupported::Layout(format!("{name} without mallocng")),
            None => Unsupported::NotThere("musl's mallocng"),
        });
    };
    consistent(|| once(space, context, &name))
}

/// The address of malloc's state.
fn locate(space: Space<'_>, data: &[(u64, u64)]) -> Result<Option<u64>, Unreadable> {
    let mut candidates = Vec::new();
    for &range in data {
        words(space.memory, range, |at, word| {
            if space.own(word).is_some() && word % 4096 == 0 {
                candidates.push((at.wrapping_sub(FIRST_AREA), word));
            }
        })?;
    }
    let mut reader = space.reader();
    for (context, area) in candidates {
        let secret = unless_torn(reader.word(context))?;
        let again = unless_torn(reader.word(area))?;
        let initialised = unless_torn(reader.int(context.wrapping_add(INITIALISED)))?;
        if secret.is_some_and(|secret| secret != 0) && secret == again && initialised == Some(1) {
            return Ok(Some(context));
        }
    }
    Ok(None)
}

/// Reads all once; in words where the figures contradict each other.
fn once(space: Space<'_>, context: u64, name: &str) -> Result<Result<Heap, String>, Unreadable> {
    let mut reader = space.reader();
    let area = unless_torn(reader.word(context + FIRST_AREA))?.unwrap_or(0);
    let groups = Groups::read(space, area)?;
    let mut reader = space.reader();
    let (mut counted, mut difference) = (0u64, 0u64);
    for class in 0..CLASSES.len() as u64 {
        let slots = unless_torn(reader.word(context + SLOTS_BY_CLASS + class * 8))?.unwrap_or(0);
        counted = counted.saturating_add(slots);
        difference = difference.saturating_add(slots.abs_diff(groups.slots(class)));
    }
    if difference as f64 > (counted as f64 * MAX_DIFFERENCE).max(LEAST_DIFFERENCE as f64) {
        return Ok(Err(format!(
            "{name}: it counts {counted} slots, but {difference} of them are not in its records"
        )));
    }
    let mut sum = Sum::default();
    for group in groups.outer() {
        let presence = space.presence(group.start, group.end)?;
        sum.group(&groups, group, &presence);
    }
    for &(from, to) in &groups.areas {
        sum.breakdown.overhead.add(from, to, &space.presence(from, to)?);
    }
    sum.breakdown.close();
    Ok(Ok(Heap {
        classes: sum.classes.0,
        torn: groups.torn,
        missing: groups.torn.saturating_mul(TORN_BYTES),
        error: difference as f64 / counted.max(1) as f64,
        ..Heap::of(name, sum.breakdown)
    }))
}

#[derive(Default)]
struct Sum {
    breakdown: Breakdown,
    classes: Classes,
}

impl Sum {
    /// Counts `group` slot by slot, and the groups that lie in its slots.
    fn group(&mut self, groups: &Groups, group: &Group, presence: &Presence) {
        let storage = group.start + UNIT;
        self.breakdown.overhead.add(group.start, storage, presence);
        // Nothing lives in it: it is returned as a whole, or serves again.
        let idle = (0..group.slots).all(|slot| group.is_free(slot));
        for slot in 0..group.slots {
            let from = storage + slot * group.stride;
            let to = from + group.stride;
            if group.is_free(slot) {
                let line = if idle { &mut self.breakdown.kept } else { &mut self.breakdown.free };
                line.add(from, to, presence);
            } else if let Some(inner) = groups.inside(from, to) {
                self.group(groups, inner, presence);
                self.breakdown.overhead.add(inner.end, to, presence);
            } else {
                self.breakdown.live.add(from, to, presence);
                self.classes.count(group.stride, 1);
            }
        }
        let end = storage + group.slots * group.stride;
        if end < group.end {
            self.breakdown.overhead.add(end, group.end, presence);
        }
    }
}

/// The number that musl's loader prints; a static program has none.
fn version(image: &Image) -> Option<String> {
    image.search(VERSION_BYTES, |bytes| {
        let mut starts = memchr::memmem::find_iter(bytes, b"\x001.");
        starts.find_map(|at| {
            let rest = &bytes[at + 1..];
            let text = &rest[..rest.iter().position(|byte| *byte == 0)?];
            let text = std::str::from_utf8(text).ok()?;
            let numbers: Vec<u32> =
                text.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
            // musl's numbers: 1.1.24, 1.2.3.
            matches!(numbers[..], [1, 1..=2, 0..=99]).then(|| text.to_owned())
        })
    })
}
