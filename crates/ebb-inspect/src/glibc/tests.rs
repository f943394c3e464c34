//! Heaps that a test makes up: a sound one is read exactly, and whatever is written over one costs
//! neither a panic, nor an endless loop, nor a breakdown that does not add up.

use proptest::prelude::*;

use super::layout::Layout;
use super::space::unknown;
use super::*;
use crate::heap::{Class, Trim};
use crate::memory::fake::{FakeMemory, harmful, mapping};
use crate::target::Backing;

const DATA: u64 = 0x7f00_0000_0000;
const ARENA: u64 = DATA + 0x100;
const PARAMETERS: u64 = DATA + 0xb00;
const MAIN: u64 = 0x5555_0000_0000;
const MAIN_BYTES: u64 = 0x21000;
const SECOND: u64 = 0x7e00_0000_0000;
const SECOND_BYTES: u64 = 0x21000;
const VERSION: Version = Version { major: 2, minor: 36 };

/// A process with two arenas, one thread's cache, some free chunks, and one in a fastbin.
struct Fake {
    memory: FakeMemory,
    layout: Layout,
    mappings: Vec<Mapping>,
}

impl Fake {
    fn new() -> Self {
        let layout = Layout::of(VERSION).unwrap();
        let mut fake = Self {
            memory: FakeMemory::new(),
            layout,
            mappings: vec![
                mapping(MAIN, MAIN_BYTES, Backing::Heap),
                mapping(SECOND, SECOND_BYTES, Backing::Anonymous),
                mapping(DATA, 0x2000, Backing::File("/lib/libc.so.6".into())),
            ],
        };
        let second = SECOND + layout.heap_head_bytes;
        // In use, a thread's cache with one entry, free, in a fastbin, in use, top.
        let chunks = [0x40, 0x290, 0x6000, 0x40, 0x1000];
        let main = fake.heap(MAIN, &chunks, MAIN + MAIN_BYTES, 0);
        fake.arena(ARENA, second, main[5], MAIN_BYTES);
        fake.put_in_bin(ARENA, main[2]);
        let memory = &mut fake.memory;
        memory.write_word(ARENA + 0x10 + 2 * 8, main[3]);
        memory.write_word(main[3] + 16, (main[3] + 16) >> 12);
        // The cached chunk is the first one.
        memory.write_word(main[1] + 16 + 0x80 + 2 * 8, main[0] + 16);
        memory.write_word(main[0] + 16, (main[0] + 16) >> 12);

        let first = (second + layout.arena.len).next_multiple_of(16);
        let chunks = [0x500, 0x3000, 0x20];
        let other = fake.heap(first, &chunks, SECOND + SECOND_BYTES, 4);
        fake.arena(second, ARENA, other[3], SECOND_BYTES);
        fake.put_in_bin(second, other[1]);
        for (offset, word) in [(0, second), (8, 0), (16, SECOND_BYTES), (24, SECOND_BYTES)] {
            fake.memory.write_word(SECOND + offset, word);
        }
        fake.parameters();
        fake
    }

    /// Writes chunks of `sizes` and a top up to `end`; returns their addresses. Those of 0x3000 and more
    /// are free.
    fn heap(&mut self, start: u64, sizes: &[u64], end: u64, flags: u64) -> Vec<u64> {
        let mut at = start;
        let mut chunks = Vec::new();
        let mut previous_in_use = 1;
        for size in sizes {
            self.memory.write_word(at + 8, size | flags | previous_in_use);
            chunks.push(at);
            at += size;
            previous_in_use = u64::from(*size < 0x3000);
            if previous_in_use == 0 {
                self.memory.write_word(at, *size);
            }
        }
        self.memory.write_word(at + 8, (end - at) | flags | previous_in_use);
        chunks.push(at);
        chunks
    }

    fn arena(&mut self, at: u64, next: u64, top: u64, system: u64) {
        let fields = self.layout.arena;
        for index in 0..layout::BINS as u64 {
            let bin = at + fields.bins + index * 16;
            self.memory.write_word(bin, bin - 16);
            self.memory.write_word(bin + 8, bin - 16);
        }
        let words = [
            (fields.top, top),
            (fields.next, next),
            (fields.attached_threads, 1),
            (fields.system_mem, system),
            (fields.max_system_mem, system),
        ];
        for (offset, word) in words {
            self.memory.write_word(at + offset, word);
        }
    }

    /// Links `chunk` into the unsorted bin.
    fn put_in_bin(&mut self, arena: u64, chunk: u64) {
        let bin = arena + self.layout.arena.bins;
        for at in [bin, bin + 8] {
            self.memory.write_word(at, chunk);
        }
        for at in [chunk + 16, chunk + 24] {
            self.memory.write_word(at, bin - 16);
        }
    }

    fn parameters(&mut self) {
        let fields = self.layout.parameters;
        let words = [
            (0, 128 << 10),
            (0x10, 128 << 10),
            (0x18, 8),
            (fields.n_mmaps + 4, 65536),
            (fields.sbrk_base, MAIN),
            (fields.tcache_bins, 64),
            (fields.tcache_bins + 8, 1032),
            (fields.tcache_bins + 16, 7),
        ];
        for (offset, word) in words {
            // n_mmaps_max is an int between others.
            self.memory.write(PARAMETERS + offset, &(word as u32).to_ne_bytes());
            if offset != fields.n_mmaps + 4 {
                self.memory.write_word(PARAMETERS + offset, word);
            }
        }
    }

    fn read(&self) -> Result<Heap, Unsupported> {
        let space = Space { memory: &self.memory, layout: self.layout, mappings: &self.mappings };
        let found = space.locate_in(VERSION, &[&self.mappings[2]])?;
        Ok(space.read(VERSION, &found)?.0)
    }
}

fn glibc_of(heap: &Heap) -> Glibc {
    heap.glibc.clone().unwrap()
}

#[test]
fn a_sound_heap_is_read_exactly() {
    let heap = Fake::new().read().unwrap();
    let breakdown = heap.breakdown;
    assert!(breakdown.adds_up(), "{breakdown:?}");
    assert_eq!(heap.arenas, Some(2));
    assert_eq!(breakdown.system.bytes, MAIN_BYTES + SECOND_BYTES);
    assert_eq!((breakdown.cached.chunks, breakdown.cached.bytes), (1, 0x40));
    assert_eq!((breakdown.fastbins.chunks, breakdown.fastbins.bytes), (1, 0x40));
    assert_eq!((breakdown.free.chunks, breakdown.free.bytes), (2, 0x9000));
    // The cache's own chunk, one of 0x1000, and two of the second arena.
    assert_eq!(breakdown.live.chunks, 4);
    assert_eq!(breakdown.live.bytes, 0x290 + 0x1000 + 0x500 + 0x20);
    assert_eq!(breakdown.unread, Line::default());
    assert_eq!(glibc_of(&heap).quality.breaks, 0);
    let thresholds = glibc_of(&heap).thresholds.unwrap();
    assert!(thresholds.dynamic);
    assert_eq!(thresholds.trim_threshold, 128 << 10);
    // Nothing within the free chunks was ever touched but their ends.
    assert_eq!(glibc_of(&heap).trim.returns, 0);
}

#[test]
fn pages_within_free_chunks_are_what_a_trim_returns() {
    let mut fake = Fake::new();
    let free = MAIN + 0x40 + 0x290;
    let pages = [free.next_multiple_of(0x1000), free.next_multiple_of(0x1000) + 0x1000];
    for page in pages {
        fake.memory.write(page + 0x800, &[1]);
    }
    let heap = fake.read().unwrap();
    assert!(heap.breakdown.adds_up());
    assert_eq!(glibc_of(&heap).trim.returns, 0x2000);
}

#[test]
fn the_chain_goes_on_behind_a_break() {
    let mut fake = Fake::new();
    // The first chunk's size is torn; the free chunk's bin leads back.
    fake.memory.write_word(MAIN + 8, 0x7777_7777);
    let heap = fake.read().unwrap();
    assert!(heap.breakdown.adds_up());
    assert_eq!(glibc_of(&heap).quality.breaks, 1);
    assert_eq!(heap.breakdown.unread.bytes, 0x40 + 0x290);
    assert_eq!(heap.breakdown.free.bytes, 0x9000);
}

#[test]
fn a_swapped_page_is_not_read_and_ends_the_walk_there() {
    let mut fake = Fake::new();
    let before = fake.read().unwrap();
    fake.memory.swap_out(SECOND + 0x1000);
    // The page of the second chunk's header; its bin is on another one.
    let heap = fake.read().unwrap();
    assert!(heap.breakdown.adds_up());
    assert_eq!(glibc_of(&heap).quality.swapped_bytes, 0x1000);
    assert_eq!(heap.breakdown.system.bytes, before.breakdown.system.bytes);
}

#[test]
fn a_figure_beyond_the_address_space_is_none() {
    let mut fake = Fake::new();
    let second = SECOND + fake.layout.heap_head_bytes;
    let sound = fake.read().unwrap();
    for system in [u64::MAX, 1 << 47] {
        fake.memory.write_word(second + fake.layout.arena.system_mem, system);
        assert_eq!(fake.read().unwrap().breakdown, sound.breakdown);
    }
}

#[test]
fn data_without_an_arena_is_refused() {
    let mut fake = Fake::new();
    fake.memory.write_word(ARENA + fake.layout.arena.next, 0);
    assert_eq!(fake.read(), Err(unknown(VERSION)));
}

#[test]
fn the_parts_of_a_heap_add_up_whatever_the_prediction_says() {
    let line = |resident| Line { chunks: 1, bytes: resident + 10, resident };
    for (returns, fastbins_complete) in [(0, true), (300, true), (5000, true), (300, false)] {
        let small = Class { count: 3, bytes: 190 };
        let counted = Heap { arenas: Some(2), classes: [(64, small)].into(), ..Heap::default() };
        let breakdown = Breakdown {
            system: line(1500),
            live: line(500),
            cached: line(50),
            fastbins: line(50),
            free: line(400),
            main_top: line(200),
            secondary_tops: line(300),
            ..Breakdown::default()
        };
        let found = Glibc {
            mmapped: line(1000),
            trim: Trim { returns, secondary_tops: 290, locked: 30 },
            quality: Quality { fastbins_complete, ..Quality::default() },
            ..Glibc::default()
        };
        let heap = divided(counted, breakdown, found);
        let parts = heap.live
            + heap.trimmable
            + heap.tops
            + heap.pinned
            + heap.locked
            + heap.cached
            + heap.metadata
            + heap.unread;
        assert_eq!(parts, heap.resident);
        let unsure = if fastbins_complete { 0 } else { 190 };
        assert_eq!((heap.live, heap.tops), (1500 - unsure, 290));
        assert_eq!(heap.unread, unsure, "small blocks that may be in a fastbin");
        assert_eq!(heap.free_not_resident, 40);
    }
}

/// Sizes, and addresses in the heap and around it.
fn words() -> impl Strategy<Value = u64> {
    harmful(prop_oneof![
        (0u64..0x30000).prop_map(|offset| MAIN + offset),
        (0u64..0x1000).prop_map(|offset| MAIN + offset * 16),
        (0u64..0x1000).prop_map(|offset| SECOND + offset * 16),
        (0u64..0x200).prop_map(|offset| DATA + offset * 8),
        0u64..0x100,
        (0u64..0x400).prop_map(|size| size * 16 + 1),
    ])
}

/// Places that the reader looks at: static data, heads of heaps, and the chunks.
fn place() -> impl Strategy<Value = u64> {
    prop_oneof![
        (0u64..0x200).prop_map(|word| DATA + word * 8),
        (0u64..0x200).prop_map(|word| SECOND + word * 8),
        (0u64..0x100).prop_map(|word| MAIN + word * 8),
        (0u64..MAIN_BYTES / 8).prop_map(|word| MAIN + word * 8),
    ]
}

proptest! {
    #[test]
    fn a_hostile_heap_adds_up(
        words in prop::collection::vec((place(), words()), 1..40),
        lost in prop::collection::vec(0u64..MAIN_BYTES, 0..3),
    ) {
        let mut fake = Fake::new();
        fake.memory.corrupt(&words, lost.iter().map(|offset| MAIN + offset));
        if let Ok(heap) = fake.read() {
            prop_assert!(heap.breakdown.adds_up(), "{:?}", heap.breakdown);
            prop_assert!(glibc_of(&heap).trim.returns <= heap.breakdown.system.resident);
        }
    }

    #[test]
    fn every_layout_refuses_noise(bytes in prop::collection::vec(any::<u8>(), 0x2000), minor in 30u32..45) {
        let mut fake = Fake::new();
        fake.layout = Layout::of(Version { major: 2, minor }).unwrap();
        fake.memory.write(DATA, &bytes);
        prop_assert!(fake.read().is_err());
    }
}
