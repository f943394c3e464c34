//! A tcmalloc that a test makes up: a sound one is read exactly, and whatever is written over it costs neither a
//! panic, nor an endless loop, nor a breakdown that does not add up.

use proptest::prelude::*;

use super::*;
use crate::memory::fake::{FakeMemory, harmful, mapping};
use crate::target::{Backing, Mapping};

const DATA: u64 = 0x7f00_0000_0000;
const DATA_BYTES: u64 = 0x16_0000;
const CENTRAL: u64 = DATA + 0x1000;
const ROOT: u64 = DATA + 0x4_0000;
const HEAP: u64 = 0x7e00_0000_0000;
const HEAP_BYTES: u64 = 0x10_0000;
const OWN: u64 = 0x7d00_0000_0000;
const OWN_BYTES: u64 = 0x40_0000;
const LEAF: u64 = OWN + 0x1000;
const SPANS: u64 = OWN + 0x30_0000;
const THREADS: u64 = OWN + 0x38_0000;
const PAGE: u64 = 8192;

struct Fake {
    memory: FakeMemory,
    mappings: Vec<Mapping>,
    spans: u64,
}

impl Fake {
    /// A span of objects of 64 bytes, 100 of them out, 7 of those in two threads' caches and 3 in a slot; a block of
    /// its own; a free span, and one that was returned.
    fn new() -> Self {
        let mut fake = Self {
            memory: FakeMemory::new(),
            mappings: vec![
                mapping(OWN, OWN_BYTES, Backing::Anonymous),
                mapping(HEAP, HEAP_BYTES, Backing::Heap),
                mapping(DATA, DATA_BYTES, Backing::File("/lib/libtcmalloc.so.4".into())),
            ],
            spans: 0,
        };
        let first = HEAP / PAGE;
        fake.memory.write_word(ROOT + (first >> 18) * 8, LEAF);
        fake.span(0, 1, 100, 5, 0);
        fake.span(1, 4, 0, 0, 0);
        fake.span(5, 10, 0, 0, 1);
        fake.span(15, 20, 0, 0, 2);
        for page in 0..10 {
            fake.memory.write(HEAP + page * 4096 + 0x800, &[1]);
        }
        for class in 0..20 {
            fake.memory.write_word(CENTRAL + class * 1216 + 8, class);
        }
        let central = CENTRAL + 5 * 1216;
        fake.memory.write(central + 1152, &1u32.to_ne_bytes());
        fake.memory.write_word(central + 128, HEAP);
        fake.memory.write_word(central + 136, HEAP + 128);
        fake.memory.write_word(HEAP, HEAP + 64);
        fake.memory.write_word(HEAP + 64, HEAP + 128);
        fake.thread(THREADS, 4, (THREADS + 0x2000, 0));
        fake.thread(THREADS + 0x2000, 3, (0, THREADS));
        fake.memory.write_word(DATA + 0x80, THREADS);
        fake
    }

    fn span(&mut self, page: u64, pages: u64, out: u64, class: u64, state: u64) {
        let at = SPANS + self.spans * 48;
        self.spans += 1;
        let first = HEAP / PAGE + page;
        self.memory.write_word(at, first);
        self.memory.write_word(at + 8, pages);
        self.memory.write_word(at + 40, out | class << 16 | state << 24);
        for page in [first, first + pages - 1] {
            self.memory.write_word(LEAF + page % (1 << 18) * 8, at);
        }
    }

    fn thread(&mut self, at: u64, cached: u32, (next, last): (u64, u64)) {
        let sizes =
            [0, 8, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256];
        for (class, size) in (0u64..).zip(sizes) {
            self.memory.write(at + class * 32 + 24, &u32::to_ne_bytes(size));
        }
        self.memory.write(at + 18 * 32, &[0; 112 * 32]);
        self.memory.write(at + 5 * 32 + 8, &cached.to_ne_bytes());
        self.memory.write_word(at + 4144, next);
        self.memory.write_word(at + 4152, last);
    }

    fn read(&self) -> Result<Heap, Unsupported> {
        let space = Space { memory: &self.memory, mappings: &self.mappings };
        of_data(space, &[(DATA, DATA + DATA_BYTES)], Some("2.10"))
    }
}

#[test]
fn a_sound_one_is_read_exactly() {
    let heap = Fake::new().read().unwrap();
    let breakdown = heap.breakdown;
    assert!(breakdown.adds_up(), "{breakdown:?}");
    assert_eq!(heap.reader, "tcmalloc 2.10");
    assert_eq!((breakdown.live.chunks, breakdown.live.bytes), (91, 90 * 64 + 4 * PAGE));
    assert_eq!((breakdown.cached.chunks, breakdown.cached.bytes), (10, 640));
    assert_eq!((breakdown.free.chunks, breakdown.free.bytes), (28, 28 * 64));
    // Ten resident pages of 4 KiB: the first two spans, and nothing of the others.
    assert_eq!((breakdown.kept.bytes, breakdown.kept.resident), (10 * PAGE, 0));
    assert_eq!((breakdown.returned.bytes, breakdown.returned.resident), (20 * PAGE, 0));
    assert_eq!((heap.torn, heap.error), (0, 0.0));
}

#[test]
fn caches_that_hold_more_than_was_given_out_are_refused() {
    let mut fake = Fake::new();
    let list = THREADS + 5 * 32 + 8;
    fake.memory.write(list, &(1u32 << 24).to_ne_bytes());
    assert!(matches!(fake.read(), Err(Unsupported::Contradicts(_))));
}

#[test]
fn without_central_lists_it_is_not_recognised() {
    let mut fake = Fake::new();
    fake.memory.write_word(CENTRAL + 3 * 1216 + 8, 4);
    assert_eq!(fake.read(), Err(Unsupported::Layout("tcmalloc 2.10".into())));
}

fn words() -> impl Strategy<Value = u64> {
    harmful(prop_oneof![
        (0u64..0x400).prop_map(|offset| HEAP + offset * 64),
        (0u64..0x100).prop_map(|offset| SPANS + offset * 8),
        (0u64..0x100).prop_map(|page| HEAP / PAGE + page),
        0u64..0x400,
    ])
}

fn place() -> impl Strategy<Value = u64> {
    prop_oneof![
        (0u64..0x20).prop_map(|word| SPANS + word * 8),
        (0u64..0x40).prop_map(|word| LEAF + HEAP / PAGE % (1 << 18) * 8 + word * 8),
        (0u64..0x60).prop_map(|word| THREADS + word * 8),
        (0u64..4).prop_map(|word| THREADS + 4144 + word * 8),
        (0u64..0x100).prop_map(|word| CENTRAL + 5 * 1216 + word * 8),
        (0u64..0x10).prop_map(|word| HEAP + word * 64),
    ]
}

proptest! {
    // Each reads some MiB of tables.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_hostile_one_adds_up(words in prop::collection::vec((place(), words()), 1..30)) {
        let mut fake = Fake::new();
        fake.memory.corrupt(&words, []);
        if let Ok(heap) = fake.read() {
            let breakdown = heap.breakdown;
            prop_assert!(breakdown.adds_up(), "{:?}", breakdown);
            prop_assert!(breakdown.system.resident <= HEAP_BYTES + OWN_BYTES);
        }
    }
}
