//! A musl that a test makes up: a sound one is read exactly, and whatever is written over it costs neither a
//! panic, nor an endless loop, nor a breakdown that does not add up.

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
    assert_eq!(
        error.to_string(),
        "musl 1.2.3 without mallocng: the layout of its structures is not known"
    );
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
