//! A jemalloc that a test makes up: a sound one is read exactly, and whatever is written over it costs neither
//! a panic, nor an endless loop, nor a breakdown that does not add up.

use proptest::prelude::*;

use super::layout::{LAYOUTS, PAGE_BYTES};
use super::locate::version_around;
use super::*;
use crate::memory::fake::{FakeMemory, harmful, mapping};
use crate::target::{Backing, Mapping};

const DATA: u64 = 0x7f00_0000_0000;
const DATA_BYTES: u64 = 0x20_2000;
const ROOT: u64 = DATA + 0x1000;
const BASE: u64 = 0x7e00_0000_0000;
const BASE_BYTES: u64 = 0x40_0000;
const ARENA: u64 = BASE + 0x2000;
const LEAF: u64 = BASE + 0x20_0000 - 0x1000;
const EXTENTS: u64 = BASE + 0x18_0000;
const HEAP: u64 = 0x7d00_0000_0000;
const HEAP_BYTES: u64 = 0x40_0000;
const CACHE: u64 = BASE + 0x19_0000;
const STACK: u64 = BASE + 0x1a_0000;

struct Fake {
    memory: FakeMemory,
    layout: &'static Layout,
    mappings: Vec<Mapping>,
    extents: u64,
}

impl Fake {
    /// A slab of 64 bytes with 10 free regions and 2 cached ones, a large block, and free extents of all kinds.
    fn new(layout: &'static Layout) -> Self {
        let mut fake = Self {
            memory: FakeMemory::new(),
            layout,
            mappings: vec![
                mapping(HEAP, HEAP_BYTES, Backing::Anonymous),
                mapping(BASE, BASE_BYTES, Backing::Anonymous),
                mapping(DATA, DATA_BYTES, Backing::File("/lib/libjemalloc.so.2".into())),
            ],
            extents: 0,
        };
        fake.arena();
        let slab = fake.extent(HEAP, 1, 0, 4, 10);
        fake.memory.write_word(slab + layout.extent.bitmap, 0x3ff << 20);
        // 20 KiB, with a page of padding.
        fake.extent(HEAP + 0x1000, 6, 0, 37, 0);
        fake.extent(HEAP + 0x7000, 8, 1, 0, 0);
        fake.extent(HEAP + 0xf000, 2, 2, 0, 0);
        fake.extent(HEAP + 0x11000, 16, 3, 0, 0);
        for page in 0..17 {
            fake.memory.write(HEAP + page * PAGE_BYTES, &[1]);
        }
        fake.cache(&[HEAP, HEAP + 64]);
        fake
    }

    fn arena(&mut self) {
        let fields = self.layout.arena;
        let memory = &mut self.memory;
        memory.write_word(DATA + 0x100, ARENA);
        memory.write_word(ARENA + fields.base, BASE + 0x40);
        memory.write_word(BASE + 0x40, 0);
        memory.write_word(BASE + 0x40 + self.layout.base_blocks, BASE);
        memory.write_word(BASE, BASE_BYTES);
        memory.write_word(BASE + 8, 0);
        if let Some(index) = fields.index {
            memory.write_word(ARENA + index, 0);
        }
        memory.write_word(ARENA + fields.dirty_decay_ms, 10_000);
        memory.write_word(ARENA + fields.muzzy_decay_ms, u64::MAX);
        memory.write_word(ARENA + fields.active_pages, 7);
        memory.write_word(ARENA + fields.caches, CACHE);
        memory.write_word(ROOT + (HEAP >> 30) * 8, LEAF);
    }

    /// Writes an extent and its entries of the page map; answers where it is.
    fn extent(&mut self, start: u64, pages: u64, state: u64, class: u64, free: u64) -> u64 {
        let fields = self.layout.extent;
        let at = EXTENTS + self.extents * 128;
        self.extents += 1;
        let slab = u64::from(class < 36 && state == 0);
        let bits = slab << 12 | state << fields.state_shift | class << fields.class_shift | free << fields.free_shift;
        self.memory.write_word(at, bits);
        self.memory.write_word(at + 8, start);
        self.memory.write_word(at + 16, pages * PAGE_BYTES);
        for page in [start, start + (pages - 1) * PAGE_BYTES] {
            let entry = LEAF + (page / PAGE_BYTES % (1 << 18)) * 8;
            self.memory.write_word(entry, at | slab);
        }
        at
    }

    fn cache(&mut self, blocks: &[u64]) {
        let memory = &mut self.memory;
        let count = blocks.len() as u64;
        let empty = STACK + 0x100;
        for (at, block) in (empty - count * 8..).step_by(8).zip(blocks) {
            memory.write_word(at, *block);
        }
        // The ring has this one alone.
        memory.write_word(CACHE, CACHE);
        memory.write_word(CACHE + 8, CACHE);
        memory.write_word(CACHE + 16, CACHE + 0x100);
        memory.write_word(CACHE + 24, CACHE + 0x100);
        let stack = CACHE + 0x100 + 4 * 24;
        match self.layout.cache {
            layout::Cache::Bounded(_) => {
                memory.write_word(stack, empty - count * 8);
                let bounds = (STACK & 0xffff) << 16 | (empty & 0xffff) << 32;
                memory.write_word(stack + 16, bounds);
            }
            layout::Cache::Counted => {
                memory.write_word(stack, count << 32);
                memory.write_word(stack + 16, empty);
            }
        }
        // The tables are there, empty.
        memory.write(CACHE + 0x100 + 5 * 24, &[0; 73 * 24]);
    }

    fn read(&self) -> Result<Heap, Unsupported> {
        let space = Space { memory: &self.memory, mappings: &self.mappings };
        let (major, minor, patch) = self.layout.version;
        let version = format!("{major}.{minor}.{patch}-0-g0123456");
        of_data(space, &[(DATA, DATA + DATA_BYTES)], Some(&version))
    }
}

#[test]
fn a_sound_one_is_read_exactly_in_every_layout() {
    for layout in &LAYOUTS {
        let heap = Fake::new(layout).read().unwrap();
        let breakdown = heap.breakdown;
        assert!(breakdown.adds_up(), "{breakdown:?}");
        assert_eq!((breakdown.live.chunks, breakdown.live.bytes), (53, 52 * 64 + (20 << 10)));
        assert_eq!((breakdown.cached.chunks, breakdown.cached.bytes), (2, 128));
        assert_eq!((breakdown.free.chunks, breakdown.free.bytes), (10, 640));
        assert_eq!((breakdown.kept.bytes, breakdown.kept.resident), (8 << 12, 8 << 12));
        assert_eq!((breakdown.lazy.bytes, breakdown.returned.resident), (2 << 12, 0));
        assert_eq!(heap.settings["dirty_decay_ms"], "10000");
        assert_eq!(heap.settings["muzzy_decay_ms"], "-1");
        assert_eq!((heap.torn, heap.arenas), (0, Some(1)));
    }
}

/// 5.3.1 gives a large block the requested pages, not those of its class: `(block's place, pages)`
/// of class 41 (up to 40 KiB) against the bytes that live then.
#[test]
fn a_large_block_is_as_long_as_its_extent_but_for_the_padding() {
    let cases = [
        // Where a block begins inside of its first page, the last one is padding for all.
        (vec![(64, 10)], 9),
        (vec![(0, 10), (64, 10)], 18),
        (vec![(0, 11), (64, 10)], 10 + 9),
        // Without such a block nothing is padded but what is longer than the class.
        (vec![(0, 10)], 10),
        (vec![(0, 9), (0, 11)], 9 + 10),
    ];
    for (extents, pages) in cases {
        let mut fake = Fake::new(&LAYOUTS[0]);
        let mut start = HEAP + 0x10_0000;
        for (place, pages) in &extents {
            let at = fake.extent(start, *pages, 0, 41, 0);
            fake.memory.write_word(at + 8, start + place);
            start += pages * PAGE_BYTES;
        }
        let before = 52 * 64 + (20 << 10);
        let live = fake.read().unwrap().breakdown.live;
        assert_eq!(live.bytes, before + pages * PAGE_BYTES, "{extents:?}");
    }
}

#[test]
fn figures_that_contradict_the_arenas_are_refused() {
    let mut fake = Fake::new(&LAYOUTS[0]);
    fake.memory.write_word(ARENA + LAYOUTS[0].arena.active_pages, 1 << 20);
    assert!(matches!(fake.read(), Err(Unsupported::Contradicts(_))));
}

#[test]
fn a_torn_extent_is_left_out_and_said() {
    let mut fake = Fake::new(&LAYOUTS[1]);
    // The large block's size.
    fake.memory.write_word(EXTENTS + 128 + 16, u64::MAX);
    let heap = fake.read().unwrap();
    assert!(heap.breakdown.adds_up());
    // Its first page and its last one lead nowhere.
    assert_eq!(heap.torn, 2);
    assert_eq!(heap.breakdown.live.bytes, 52 * 64);
}

#[test]
fn without_arenas_it_is_not_recognised() {
    let mut fake = Fake::new(&LAYOUTS[0]);
    fake.memory.write_word(DATA + 0x100, 0);
    let error = fake.read().unwrap_err();
    assert_eq!(error, Unsupported::Layout("jemalloc 5.3.1".into()));
}

#[test]
fn versions_of_distributions_and_crates_are_read() {
    let version = |text: &[u8]| {
        let at = memchr::memmem::find(text, b"-g")?;
        version_around(text, at)
    };
    let debian = b"x\x005.3.0-0-g54eaed1d8b56b1aa528be3bdd1877e59c56fa90c\0y";
    assert_eq!(short(&version(debian).unwrap()), "5.3.0");
    assert_eq!(version(b"\x001.2.3-4-g0123456\0"), None, "another program's");
    assert_eq!(version(b"x5.3.0-0-g0123456\0"), None, "a longer text");
    assert_eq!(version(b"\x005.3-0-g0123456\0"), None);
    assert_eq!(version(b"\x005.3.0-0-g"), None);
}

/// Sizes, and addresses of all that is there.
fn words() -> impl Strategy<Value = u64> {
    harmful(prop_oneof![
        (0u64..HEAP_BYTES / 64).prop_map(|offset| HEAP + offset * 64),
        (0u64..0x3000).prop_map(|offset| BASE + offset * 128),
        (0u64..0x200).prop_map(|offset| DATA + offset * 8),
        (0u64..64).prop_map(|extent| EXTENTS + extent * 128 + (extent & 1)),
        0u64..0x1000,
    ])
}

/// Places that the reader looks at.
fn place() -> impl Strategy<Value = u64> {
    prop_oneof![
        (0u64..0x80).prop_map(|word| EXTENTS + word * 8),
        (0u64..0x40).prop_map(|word| LEAF + (HEAP / PAGE_BYTES % (1 << 18)) * 8 + word * 8),
        (0u64..0x60).prop_map(|word| CACHE + word * 8),
        (0u64..0x20).prop_map(|word| STACK + 0x100 - word * 8),
        (0u64..0x40).prop_map(|word| BASE + word * 8),
        (0u64..10_000).prop_map(|word| ARENA + word * 8),
        (0u64..0x400).prop_map(|word| ROOT + (HEAP >> 30) * 8 + word * 8),
        (0u64..0x40).prop_map(|word| DATA + word * 8),
    ]
}

proptest! {
    // Each reads three MiB of tables.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_hostile_one_adds_up(
        words in prop::collection::vec((place(), words()), 1..30),
        lost in prop::collection::vec(0u64..BASE_BYTES, 0..3),
        which in 0usize..LAYOUTS.len(),
    ) {
        let mut fake = Fake::new(&LAYOUTS[which]);
        fake.memory.corrupt(&words, lost.iter().map(|offset| BASE + offset));
        if let Ok(heap) = fake.read() {
            let breakdown = heap.breakdown;
            prop_assert!(breakdown.adds_up(), "{:?}", breakdown);
            prop_assert!(breakdown.system.resident <= HEAP_BYTES + BASE_BYTES);
        }
    }
}
