//! musl's malloc since 1.2.1 (mallocng) on x86-64: every group of slots, so live blocks are known exactly.
//!
//! [`read`] is the entry. `groups` reads the records of all groups, which lie apart from the blocks, and
//! sets each into the slot that it lies in; here they are counted. The place of malloc's state has no name: it
//! is the one that begins with a secret which the first area of records repeats.
//!
//! musl has no settings and no caches of threads. A slot that is freed stays with its group until the whole
//! group is free. What is read is held against musl's own count of slots in each class.

mod groups;

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

fn of_data(space: Space<'_>, data: &[(u64, u64)], version: Option<&str>) -> Result<Heap, Unsupported> {
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
        return Ok(Err(format!("{name}: it counts {counted} slots, but {difference} of them are not in its records")));
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
            let numbers: Vec<u32> = text.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
            // musl's numbers: 1.1.24, 1.2.3.
            matches!(numbers[..], [1, 1..=2, 0..=99]).then(|| text.to_owned())
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::memory::fake::{FakeMemory, harmful, mapping};
    use crate::target::{Backing, Mapping};

    const DATA: u64 = 0x7f00_0000_0000;
    const CONTEXT: u64 = DATA + 0x100;
    const AREA: u64 = 0x5555_0000_1000;
    const OUTER: u64 = 0x7e00_0000_0000;
    const OUTER_BYTES: u64 = 0x4000;
    const LARGE: u64 = 0x7e00_0010_0000;
    const LARGE_BYTES: u64 = 0x2_2000;
    const SECRET: u64 = 0x1234_5678_9abc_def0;

    /// The class of the outer group: four slots of 255 units; one of them holds a group of ten slots of 2.
    const CLASS: u64 = 27;
    const INNER_CLASS: u64 = 1;

    struct Fake {
        memory: FakeMemory,
        mappings: Vec<Mapping>,
        records: u64,
    }

    impl Fake {
        fn new() -> Self {
            let mut fake = Self {
                memory: FakeMemory::new(),
                mappings: vec![
                    mapping(AREA, 0x1000, Backing::Heap),
                    mapping(OUTER, OUTER_BYTES, Backing::Anonymous),
                    mapping(LARGE, LARGE_BYTES, Backing::Anonymous),
                    mapping(DATA, 0x1000, Backing::File("/lib/libc.so".into())),
                ],
                records: 0,
            };
            let memory = &mut fake.memory;
            memory.write_word(CONTEXT, SECRET);
            memory.write_word(CONTEXT + INITIALISED, 1);
            memory.write_word(CONTEXT + FIRST_AREA, AREA);
            memory.write_word(CONTEXT + SLOTS_BY_CLASS + CLASS * 8, 4);
            memory.write_word(CONTEXT + SLOTS_BY_CLASS + INNER_CLASS * 8, 10);
            memory.write_word(AREA, SECRET);
            memory.write_word(AREA + 8, 0);
            memory.write_word(AREA + 16, 3);
            // The last slot was never used, the one before is freed.
            fake.group(OUTER, 3, CLASS, OUTER_BYTES >> 12, 1 << 3 | 1 << (2 + 32));
            fake.group(OUTER + UNIT + 255 * UNIT, 9, INNER_CLASS, 0, 0b11);
            fake.group(LARGE, 0, 63, LARGE_BYTES >> 12, 0);
            for page in 0..4 {
                fake.memory.write(OUTER + page * 4096 + 0x80, &[1]);
            }
            fake
        }

        fn group(&mut self, at: u64, last: u64, class: u64, pages: u64, masks: u64) {
            let record = AREA + 24 + self.records * 40;
            self.records += 1;
            self.memory.write_word(record + 16, at);
            self.memory.write_word(record + 24, masks);
            self.memory.write_word(record + 32, last | 1 << 5 | class << 6 | pages << 12);
            self.memory.write_word(at, record);
        }

        fn read(&self) -> Result<Heap, Unsupported> {
            let space = Space { memory: &self.memory, mappings: &self.mappings };
            of_data(space, &[(DATA, DATA + 0x1000)], Some("1.2.3"))
        }
    }

    #[test]
    fn a_sound_one_is_read_exactly() {
        let heap = Fake::new().read().unwrap();
        let breakdown = heap.breakdown;
        assert!(breakdown.adds_up(), "{breakdown:?}");
        assert_eq!(heap.reader, "musl 1.2.3");
        // The outer group's first slot, eight of the inner group's, and the large block.
        assert_eq!(breakdown.live.chunks, 10);
        assert_eq!(breakdown.live.bytes, 255 * UNIT + 8 * 2 * UNIT + LARGE_BYTES - UNIT);
        assert_eq!(breakdown.free.chunks, 4);
        assert_eq!(breakdown.free.bytes, 2 * 255 * UNIT + 2 * 2 * UNIT);
        assert_eq!(breakdown.system.bytes, OUTER_BYTES + LARGE_BYTES + 4096);
        assert_eq!(breakdown.system.resident, OUTER_BYTES + 4096 + 4096);
        assert_eq!((heap.torn, heap.error), (0, 0.0));
    }

    #[test]
    fn a_count_that_the_records_do_not_show_is_refused() {
        let mut fake = Fake::new();
        fake.memory.write_word(CONTEXT + SLOTS_BY_CLASS, 1 << 20);
        assert!(matches!(fake.read(), Err(Unsupported::Contradicts(_))));
    }

    #[test]
    fn a_group_that_does_not_lead_back_is_left_out_and_said() {
        let mut fake = Fake::new();
        fake.memory.write_word(LARGE, AREA);
        let heap = fake.read().unwrap();
        assert_eq!(heap.torn, 1);
        assert!(heap.breakdown.adds_up());
        assert_eq!(heap.breakdown.live.chunks, 9);
    }

    #[test]
    fn without_the_secret_it_is_another_malloc() {
        let mut fake = Fake::new();
        fake.memory.write_word(AREA, SECRET + 1);
        let error = fake.read().unwrap_err();
        assert_eq!(error.to_string(), "musl 1.2.3 without mallocng: the layout of its structures is not known");
    }

    fn words() -> impl Strategy<Value = u64> {
        harmful(prop_oneof![
            (0u64..0x400).prop_map(|offset| OUTER + offset * 16),
            (0u64..0x200).prop_map(|offset| AREA + offset * 8),
            (0u64..1 << 20).prop_map(|bits| bits << 5 | 31),
        ])
    }

    fn place() -> impl Strategy<Value = u64> {
        prop_oneof![
            (0u64..0x30).prop_map(|word| AREA + word * 8),
            (0u64..0x80).prop_map(|word| CONTEXT + word * 8),
            (0u64..0x400).prop_map(|word| OUTER + word * 16),
        ]
    }

    proptest! {
        #[test]
        fn a_hostile_one_adds_up(
            words in prop::collection::vec((place(), words()), 1..30),
            lost in prop::collection::vec(0u64..OUTER_BYTES, 0..3),
        ) {
            let mut fake = Fake::new();
            fake.memory.corrupt(&words, lost.iter().map(|offset| OUTER + offset));
            if let Ok(heap) = fake.read() {
                let breakdown = heap.breakdown;
                prop_assert!(breakdown.adds_up(), "{:?}", breakdown);
                prop_assert!(breakdown.system.resident <= OUTER_BYTES + LARGE_BYTES + 0x2000);
            }
        }
    }
}
