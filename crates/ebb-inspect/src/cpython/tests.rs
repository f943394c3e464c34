//! The readers on memory that lies: they end, and say so.

use proptest::prelude::*;

use super::layout::{Gc, Layout};
use super::*;
use crate::memory::fake::FakeMemory;

const BASE: u64 = 0x10_0000;
const LAYOUT: Layout = Layout {
    head: 40,
    next: 0,
    id: 8,
    gc: Gc::Interpreter(112),
    arena_bytes: 1 << 20,
    pool_bytes: 16 << 10,
};

/// A collector whose three lists are empty.
fn empty_lists(memory: &mut FakeMemory, gc: u64) {
    memory.write(gc, &[0; 256]);
    for head in (0..3).map(|it| gc + 24 + it * 24) {
        memory.write_word(head, head);
        memory.write_word(head + 8, head);
    }
}

#[test]
fn a_list_is_counted_by_type() {
    let mut memory = FakeMemory::new();
    empty_lists(&mut memory, BASE);
    let (head, one, two, kind) = (BASE + 24, BASE + 0x1000, BASE + 0x1100, BASE + 0x2000);
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
    let collector = collector::read(&mut Reader::new(&memory), BASE).unwrap();
    assert!(collector.complete);
    assert_eq!(collector.generations[0].tracked, 2);
    let expected = Type {
        name: "tuple".to_owned(),
        count: 2,
        bytes: 2 * (16 + 24 + 3 * 8),
    };
    assert_eq!(collector.types, [expected]);
}

#[test]
fn a_list_that_goes_round_ends() {
    let mut memory = FakeMemory::new();
    empty_lists(&mut memory, BASE);
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
    let collector = collector::read(&mut Reader::new(&memory), BASE).unwrap();
    assert!(!collector.complete);
    assert_eq!(collector.generations[0].tracked, 2);
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
        let _ = collector::read(&mut reader, BASE);
        let end = BASE + words.len() as u64 * 8;
        let found = arenas::find(&mut reader, &[(BASE, end)], &LAYOUT);
        if let Ok(Some(arenas)) = found {
            prop_assert!(arenas.resident_bytes <= arenas.bytes);
        }
    }
}
