//! A mimalloc that a test makes up: a sound one is read exactly, and whatever is written over it costs neither a
//! panic, nor an endless loop, nor a breakdown that does not add up.

use proptest::prelude::*;

use super::segments::{CPYTHONS, LAYOUTS, Layout, SEGMENT_BYTES};
use super::*;
use crate::memory::fake::{FakeMemory, harmful, mapping};
use crate::target::{Backing, Mapping};

const DATA: u64 = 0x7f00_0000_0000;
const SEGMENT: u64 = 0x7e00_0000_0000;
const SLICE: u64 = 64 << 10;
const KEY: u64 = 0x1234_5678_9abc_def0;

struct Fake {
    memory: FakeMemory,
    mappings: Vec<Mapping>,
    layout: &'static Layout,
}

impl Fake {
    /// A segment with a page of 1000 blocks, 900 of them in use and four of those freed by others (three on the page's
    /// own list, one on its heap's), a page without one in use, and free slices.
    fn new(layout: &'static Layout) -> Self {
        let mut fake = Self {
            memory: FakeMemory::new(),
            mappings: vec![
                mapping(SEGMENT, SEGMENT_BYTES, Backing::Anonymous),
                mapping(DATA, 0x1000, Backing::File("/lib/libmimalloc.so.2".into())),
            ],
            layout,
        };
        fake.memory.write_word(DATA + 0x80, KEY);
        let fields = layout;
        let words = [
            (fields.used, 2),
            (fields.cookie, SEGMENT ^ KEY),
            (fields.slices, 512),
            (fields.own_slices, 1),
            (fields.entries, 512),
        ];
        for (offset, word) in words {
            fake.memory.write_word(SEGMENT + offset, word);
        }
        fake.entry(0, 1, SLICE, 0, 0, 0);
        let first = SEGMENT + SLICE;
        fake.entry(1, 1, 64, 1000, 900, first | 2);
        fake.memory.write_word(first, first + 64);
        fake.memory.write_word(first + 64, first + 128);
        fake.memory.write_word(first + 128, 0);
        fake.entry(2, 1, 1024, 8, 0, 0);
        fake.entry(3, 509, 0, 0, 0, 0);
        for page in 0..48 {
            fake.memory.write(first + page * 4096 + 0x800, &[1]);
        }
        fake
    }

    fn entry(&mut self, index: u64, slices: u64, bytes: u64, capacity: u64, used: u64, freed: u64) {
        let fields = self.layout;
        let at = SEGMENT + fields.table + index * fields.page.bytes;
        self.memory.write(at, &(slices as u32).to_ne_bytes());
        self.memory.write(at + 10, &(capacity as u16).to_ne_bytes());
        self.memory.write(at + fields.page.used, &(used as u16).to_ne_bytes());
        self.memory.write(at + fields.page.block_bytes, &(bytes as u32).to_ne_bytes());
        self.memory.write_word(at + fields.page.freed_by_others, freed);
    }

    fn read(&self) -> Result<Heap, Unsupported> {
        let space = Space { memory: &self.memory, mappings: &self.mappings };
        let layouts = if CPYTHONS.contains(self.layout) { &CPYTHONS[..] } else { &LAYOUTS[..] };
        of_data(space, &[(DATA, DATA + 0x1000)], layouts)
    }
}

#[test]
fn a_sound_one_is_read_exactly_in_every_layout() {
    for layout in LAYOUTS.iter().chain(&CPYTHONS) {
        let heap = Fake::new(layout).read().unwrap();
        let breakdown = heap.breakdown;
        assert!(breakdown.adds_up(), "{breakdown:?}");
        assert!(heap.reader.ends_with(layout.versions), "{}", heap.reader);
        assert_eq!((breakdown.live.chunks, breakdown.live.bytes), (896, 896 * 64));
        assert_eq!((breakdown.free.chunks, breakdown.free.bytes), (104, 104 * 64));
        // The page without a block in use, and 16 pages of the free slices.
        assert_eq!(breakdown.kept.resident, (2 + 16) * 4096);
        assert_eq!(breakdown.system.bytes, SEGMENT_BYTES);
        assert_eq!(heap.torn, 0);
    }
}

#[test]
fn a_cookie_that_is_not_in_its_data_is_another_programs() {
    let mut fake = Fake::new(&LAYOUTS[0]);
    fake.memory.write_word(DATA + 0x80, KEY + 1);
    assert_eq!(fake.read(), Err(Unsupported::NotThere("mimalloc")));
}

/// Where a mimalloc 3 has its fields, by `offsetof`.
#[derive(Clone, Copy, Debug)]
struct Fields {
    version: &'static str,
    bytes: u64,
    used: u64,
    capacity: u64,
    freed_by_others: u64,
    block_bytes: u64,
    /// The first block's place from its address and that of the page's fields; it is at byte 48.
    first: fn(u64, u64) -> u64,
    origin: u64,
    /// The kinds of origin: the kernel, and an arena.
    kinds: (u64, u64),
    map_head: u64,
    /// Of an arena.
    slices: u64,
    start: Option<u64>,
}

const OF_3_3: Fields = Fields {
    version: "3.3.2",
    bytes: 136,
    used: 16,
    capacity: 18,
    freed_by_others: 32,
    block_bytes: 40,
    first: |first, _| first,
    origin: 96,
    kinds: (4, 7),
    map_head: 0,
    slices: 40,
    start: None,
};
const FIELDS_OF: [Fields; 3] = [
    OF_3_3,
    Fields { version: "3.4.3", first: |first, at| (first - at) / 8, origin: 88, ..OF_3_3 },
    Fields {
        version: "3.6.0",
        bytes: 144,
        used: 40,
        capacity: 56,
        freed_by_others: 64,
        block_bytes: 32,
        first: |first, at| first - at,
        origin: 104,
        kinds: (3, 6),
        map_head: 80,
        slices: 48,
        start: Some(40),
    },
];

/// A mimalloc 3: an arena of 16 slices, its own first; a page of blocks of 64 bytes with its fields in the own slice,
/// and one block of the kernel's.
struct Mapped {
    memory: FakeMemory,
    mappings: Vec<Mapping>,
    fields: Fields,
}

const ROOT: u64 = 0x7d00_0000_0000;
const PART: u64 = ROOT + 0x20_1000;
/// An arena whose fields are not at its start.
const ARENA: u64 = SEGMENT + 0x800;
const FIELDS: u64 = SEGMENT + 0x1000;
const KERNELS: u64 = SEGMENT + 0x20_0000;

impl Mapped {
    fn new(fields: Fields) -> Self {
        let mut fake = Self {
            memory: FakeMemory::new(),
            mappings: vec![
                mapping(ROOT, 0x30_0000, Backing::Anonymous),
                mapping(SEGMENT, 0x40_0000, Backing::Anonymous),
                mapping(DATA, 0x1000, Backing::File("/lib/libmimalloc.so.3".into())),
            ],
            fields,
        };
        let arena = if fields.start.is_some() { ARENA } else { SEGMENT };
        let memory = &mut fake.memory;
        memory.write_word(DATA + 0x80, ROOT);
        memory.write_word(fake.fields.map_head + ROOT + (SEGMENT >> 29) * 8, PART);
        memory.write_word(arena + fields.slices, 16);
        memory.write_word(arena + fields.slices + 8, 1);
        if let Some(start) = fields.start {
            memory.write_word(arena + start, SEGMENT);
        }
        fake.page(FIELDS, SEGMENT + SLICE, (64, 1000, 900), (arena, 1 | 2 << 32, fields.kinds.1));
        fake.page(FIELDS + 256, KERNELS, (0x1_8000, 1, 1), (KERNELS, 0x2_0000, fields.kinds.0));
        for (slice, fields) in [(1, FIELDS), (2, FIELDS), (32, FIELDS + 256), (33, FIELDS + 256)] {
            let number = SEGMENT / SLICE + slice;
            fake.memory.write_word(PART + number % (1 << 13) * 8, fields);
        }
        for page in 0..4 {
            fake.memory.write(SEGMENT + (11 + page) * SLICE, &[1]);
        }
        fake
    }

    fn page(&mut self, at: u64, first: u64, of: (u64, u16, u16), origin: (u64, u64, u64)) {
        let (memory, fields) = (&mut self.memory, self.fields);
        let (bytes, capacity, used) = of;
        memory.write(at, &[0; 144][..fields.bytes as usize]);
        memory.write(at + fields.used, &used.to_ne_bytes());
        memory.write(at + fields.capacity, &capacity.to_ne_bytes());
        memory.write_word(at + fields.freed_by_others, 1);
        memory.write_word(at + fields.block_bytes, bytes);
        memory.write_word(at + 48, (fields.first)(first, at));
        memory.write_word(at + fields.origin, origin.0);
        memory.write_word(at + fields.origin + 8, origin.1);
        memory.write_word(at + fields.origin + 16, origin.2);
    }

    fn read(&self) -> Result<Heap, Unsupported> {
        let space = Space { memory: &self.memory, mappings: &self.mappings };
        of_data(space, &[(DATA, DATA + 0x1000)], &LAYOUTS)
    }
}

#[test]
fn a_map_of_the_third_version_is_read_exactly() {
    for fields in FIELDS_OF {
        let heap = Mapped::new(fields).read().unwrap();
        let (breakdown, version) = (heap.breakdown, fields.version);
        assert_eq!(heap.reader, "mimalloc 3");
        assert!(breakdown.adds_up(), "{version}: {breakdown:?}");
        assert_eq!((breakdown.live.chunks, breakdown.live.bytes), (901, 900 * 64 + 0x1_8000));
        assert_eq!((breakdown.free.chunks, breakdown.free.bytes), (100, 6400), "{version}");
        // The arena's slices after its page.
        assert_eq!(breakdown.kept.resident, 4 * 4096, "{version}");
        assert_eq!(breakdown.system.bytes, 16 * SLICE + 0x2_0000, "{version}");
        // Its own slice; of 3.6, the slices with the pages' fields are at the start of each 256 MiB.
        let own = if fields.start.is_some() { 1 + 6 } else { 1 };
        assert_eq!(breakdown.overhead.bytes, own * SLICE, "{version}");
        assert_eq!(heap.torn, 0, "{version}");
    }
}

#[test]
fn a_map_before_the_first_request_is_known_as_unused() {
    let is_unused = |fake: &Mapped| {
        let space = Space { memory: &fake.memory, mappings: &fake.mappings };
        Map::is_unused(space, &[(DATA, DATA + 0x1000)]).unwrap()
    };
    for fields in FIELDS_OF {
        let mut fake = Mapped::new(fields);
        let table = ROOT + fields.map_head;
        assert!(!is_unused(&fake), "it has a page");
        fake.memory.write_word(table + (SEGMENT >> 29) * 8, 0);
        fake.memory.write_word(table, table + 0x20_0000);
        assert!(is_unused(&fake), "{}", fields.version);
    }
}

fn words() -> impl Strategy<Value = u64> {
    harmful(prop_oneof![(0u64..0x4000).prop_map(|offset| SEGMENT + offset * 64), 0u64..0x400,])
}

fn place() -> impl Strategy<Value = u64> {
    prop_oneof![
        (0u64..0x60).prop_map(|word| SEGMENT + 200 + word * 8),
        (0u64..0x400).prop_map(|word| SEGMENT + SLICE + word * 8),
    ]
}

fn place_of_map() -> impl Strategy<Value = u64> {
    prop_oneof![
        (0u64..0x40).prop_map(|word| FIELDS + word * 8),
        (0u64..8).prop_map(|word| SEGMENT + 24 + word * 8),
        (0u64..0x40).prop_map(|word| PART + SEGMENT / SLICE % (1 << 13) * 8 + word * 8),
        (0u64..4).prop_map(|word| ROOT + (SEGMENT >> 29) * 8 + word * 8),
    ]
}

proptest! {
    #[test]
    fn a_hostile_one_adds_up(
        words in prop::collection::vec((place(), words()), 1..30),
        which in 0usize..LAYOUTS.len(),
    ) {
        let mut fake = Fake::new(&LAYOUTS[which]);
        fake.memory.corrupt(&words, []);
        if let Ok(heap) = fake.read() {
            let breakdown = heap.breakdown;
            prop_assert!(breakdown.adds_up(), "{:?}", breakdown);
            prop_assert!(breakdown.system.resident <= SEGMENT_BYTES);
        }
    }

    #[test]
    fn a_hostile_map_adds_up(
        words in prop::collection::vec((place_of_map(), words()), 1..30),
        which in 0..FIELDS_OF.len(),
    ) {
        let mut fake = Mapped::new(FIELDS_OF[which]);
        fake.memory.corrupt(&words, []);
        if let Ok(heap) = fake.read() {
            let breakdown = heap.breakdown;
            prop_assert!(breakdown.adds_up(), "{:?}", breakdown);
        }
    }
}
