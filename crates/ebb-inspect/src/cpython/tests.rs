//! The readers on memory that lies: they end, and say so.

use proptest::prelude::*;

use super::layout::{Gc, Layout};
use super::*;
use crate::memory::fake::{FakeMemory, mapping};
use crate::target::Backing;

const BASE: u64 = 0x10_0000;
const LAYOUT: Layout = Layout {
    head: 40,
    next: 0,
    id: 8,
    gc: Gc::Interpreter(112),
    frozen: layout::Frozen::BehindGenerations,
    arena_bytes: 1 << 20,
    pool_bytes: 16 << 10,
};

/// A collector whose lists are empty and begin `first` bytes after `gc`.
fn empty_lists(memory: &mut FakeMemory, gc: u64, first: u64) {
    memory.write(gc, &[0; 256]);
    for head in (0..4).map(|it| gc + first + it * 24) {
        memory.write_word(head, head);
        memory.write_word(head + 8, head);
    }
}

#[test]
fn a_list_is_counted_by_type() {
    // In most builds, and in Debian's 3.13.5.
    for first in [24, 20] {
        count_by_type(first);
    }
}

fn count_by_type(first: u64) {
    let mut memory = FakeMemory::new();
    empty_lists(&mut memory, BASE, first);
    let (head, one, two, kind) = (BASE + first, BASE + 0x1000, BASE + 0x1100, BASE + 0x2000);
    for (from, to) in [(head, one), (one, two), (two, head)] {
        memory.write_word(from, to);
        // With a flag of the collector's.
        memory.write_word(to + 8, from | 2);
    }
    for object in [one, two] {
        memory.write_word(object + 16 + 8, kind);
        memory.write_word(object + 16 + 16, 3);
    }
    memory.write_word(kind + 24, BASE + 0x3000);
    memory.write_word(kind + 32, 24);
    memory.write_word(kind + 40, 8);
    memory.write(BASE + 0x3000, b"tuple\0");
    let collector = collector::read(&mut Reader::new(&memory), BASE, LAYOUT.frozen).unwrap();
    assert!(collector.complete);
    assert_eq!(collector.tracked[0], 2);
    let expected = OfType { name: Some("tuple".to_owned()), count: 2, bytes: 2 * (16 + 24 + 3 * 8) };
    assert_eq!(collector.types, [expected]);
}

#[test]
fn a_list_that_goes_round_ends() {
    let mut memory = FakeMemory::new();
    empty_lists(&mut memory, BASE, 24);
    let (head, one, two) = (BASE + 24, BASE + 0x1000, BASE + 0x1100);
    memory.write(BASE + 0x1000, &[0; 0x2000]);
    // one and two point to each other, and never back to the head.
    for (from, to) in [(head, one), (two, one), (one, two)] {
        memory.write_word(from, to);
    }
    memory.write_word(one + 8, head);
    memory.write_word(two + 8, one);
    for object in [one, two] {
        memory.write_word(object + 16 + 8, BASE + 0x2000);
    }
    let collector = collector::read(&mut Reader::new(&memory), BASE, LAYOUT.frozen).unwrap();
    assert!(!collector.complete && !collector.swapped);
    assert_eq!(collector.tracked[0], 2);
}

#[test]
fn a_list_that_leads_into_swap_says_so() {
    let mut memory = FakeMemory::new();
    empty_lists(&mut memory, BASE, 24);
    let (head, one, two) = (BASE + 24, BASE + 0x1000, BASE + 0x3000);
    memory.write(BASE + 0x1000, &[0; 0x3000]);
    for (from, to) in [(head, one), (one, two), (two, head)] {
        memory.write_word(from, to);
        memory.write_word(to + 8, from);
    }
    for object in [one, two] {
        memory.write_word(object + 16 + 8, BASE + 0x2000);
    }
    memory.swap_out(two);
    let collector = collector::read(&mut Reader::new(&memory), BASE, LAYOUT.frozen).unwrap();
    assert!(!collector.complete && collector.swapped);
    // Only its neighbour's word marks the second chunk, so it is not counted.
    assert_eq!(collector.tracked[0], 1);
}

#[test]
fn a_table_of_another_build_is_refused() {
    let table = |version: u64, free_threaded: u64| {
        let mut memory = FakeMemory::new();
        memory.write(BASE, &[0; 1024]);
        memory.write(BASE, b"xdebugpy");
        memory.write_word(BASE + 8, version);
        memory.write_word(BASE + 16, free_threaded);
        let place =
            locate::Place { runtime: BASE, type_of_types: 0, type_of_code: 0, version: (3, 14), data: Vec::new() };
        Layout::of(&mut Reader::new(&memory), &place)
    };
    assert!(table(0x030e_0af0, 0).is_ok());
    // With the incremental collector, whose lists have the same places.
    assert_eq!(table(0x030e_04f0, 0), table(0x030e_0af0, 0));
    let words = |read: Result<Layout, Unsupported>| read.unwrap_err().to_string();
    assert!(words(table(0x030e_0af0, 1)).contains("free-threaded"));
    // A file's name that is not the version's, a candidate for a release.
    assert!(words(table(0x030d_05f0, 0)).contains("0x30d05f0"));
    assert!(words(table(0x030e_00c2, 0)).contains("0x30e00c2"));
}

proptest! {
    /// Whatever the words are: no panic, no endless loop.
    #[test]
    fn hostile_words(words in prop::collection::vec(
        prop_oneof![
            (0u64..0x200).prop_map(|at| BASE + at * 8),
            any::<u64>(),
            0u64..64,
        ],
        1..0x200,
    )) {
        let mut memory = FakeMemory::new();
        for (at, word) in (BASE..).step_by(8).zip(&words) {
            memory.write_word(at, *word);
        }
        let mut reader = Reader::new(&memory);
        let _ = interpreters(&mut reader, BASE, &LAYOUT);
        let _ = collector::read(&mut reader, BASE, LAYOUT.frozen);
        let end = BASE + words.len() as u64 * 8;
        let own = [mapping(BASE, end - BASE, Backing::Anonymous)];
        let space = Space { memory: &memory, mappings: &own };
        let found = arrays::find(space, &mut reader, &[(BASE, end)], &LAYOUT);
        let found = found.ok().flatten();
        let interpreters = [(BASE + 64, 1), (BASE, 0)];
        let arrays = found.and_then(|first| {
            arrays::of_interpreters(&mut reader, &first, &interpreters, &LAYOUT).ok()
        });
        let arrays = arrays.map_or_else(|| vec![BASE], |arrays| arrays.found);
        let mut sum = Arenas::default();
        for &array in &arrays {
            let _ = arenas::read(&mut reader, array, &LAYOUT, &mut sum);
        }
        prop_assert!(sum.resident_bytes <= sum.bytes);
        let blocks: Vec<(u64, u64)> = words.iter().map(|word| (*word, 1)).collect();
        if let Ok(owned) = buffers::owners(&mut reader, &blocks, &arrays, &LAYOUT, BASE) {
            let told: u64 = owned.iter().map(|it| it.count).sum();
            prop_assert_eq!(told, blocks.len() as u64);
        }
    }
}
