//! A page written is a page read, and what is not one is refused.

extern crate std;

use std::string::ToString;
use std::vec::Vec;

use super::*;

/// The bytes of a page that publishes `snapshot`, as a reader from outside gets them.
fn bytes_of(snapshot: &Snapshot) -> Vec<u8> {
    let counters = NAMES.len() as u32;
    let mut bytes = Vec::from(MAGIC);
    bytes.extend(VERSION.to_ne_bytes());
    bytes.extend(counters.to_ne_bytes());
    bytes.extend(snapshot.words().into_iter().flat_map(u64::to_ne_bytes));
    bytes
}

fn distinct() -> Snapshot {
    Snapshot::from_words(|index| Some(1000 + index as u64)).unwrap()
}

#[test]
fn layout_is_as_promised() {
    use core::mem::offset_of;
    assert_eq!(align_of::<Page>(), PAGE_ALIGN);
    assert_eq!(offset_of!(Page, magic), 0);
    assert_eq!(offset_of!(Page, version), 8);
    assert_eq!(offset_of!(Page, counters), 12);
    assert_eq!(offset_of!(Page, live_bytes), HEADER_BYTES);
    assert_eq!(offset_of!(Page, cached_bytes), HEADER_BYTES + 8);
    assert_eq!(offset_of!(Page, returnable_bytes), HEADER_BYTES + 8 * (NAMES.len() - 1));
}

#[test]
fn published_counters_are_read_back() {
    let page = Page::new();
    assert_eq!(page.snapshot(), Snapshot::default());
    page.publish(&distinct());
    assert_eq!(page.snapshot(), distinct());
    assert_eq!(Snapshot::from_bytes(&bytes_of(&distinct())), Ok(distinct()));
}

#[test]
fn counters_of_a_later_writer_are_ignored() {
    let mut bytes = bytes_of(&distinct());
    bytes[12..16].copy_from_slice(&(NAMES.len() as u32 + 1).to_ne_bytes());
    bytes.extend(7u64.to_ne_bytes());
    assert_eq!(Snapshot::from_bytes(&bytes), Ok(distinct()));
}

#[test]
fn what_is_not_a_page_is_refused() {
    let good = bytes_of(&distinct());
    for length in 0..good.len() {
        let refused = Snapshot::from_bytes(&good[..length]).unwrap_err();
        let expected = match length {
            0..8 => Unreadable::NoMagic,
            8..16 => Unreadable::TooShort(0),
            _ => Unreadable::TooShort((length - HEADER_BYTES) / 8),
        };
        assert_eq!(refused, expected, "{length} bytes");
    }
    let mut other = good.clone();
    other[8] += 1;
    let refused = Snapshot::from_bytes(&other).unwrap_err();
    assert_eq!(refused, Unreadable::OtherVersion(VERSION + 1));
    assert!(refused.to_string().contains(&(VERSION + 1).to_string()));
    let mut fewer = good;
    fewer[12..16].copy_from_slice(&3u32.to_ne_bytes());
    assert_eq!(Snapshot::from_bytes(&fewer), Err(Unreadable::TooShort(3)));
}

#[test]
fn a_layout_is_found_and_read_as_it_was_written() {
    use super::layout::{BYTES, Layout, MAGIC, Offsets, Place, VERSION, find};
    assert_eq!(size_of::<Layout>(), BYTES.next_multiple_of(PAGE_ALIGN));
    let (heap, classes) = (0x1234u64, 0x5678u64);
    let mut bytes = Vec::from(MAGIC);
    for word in [VERSION, heap, classes] {
        bytes.extend(word.to_ne_bytes());
    }
    for word in 0..Offsets::COUNT as u64 {
        bytes.extend((100 + word).to_ne_bytes());
    }
    assert_eq!(bytes.len(), BYTES);
    let place = Place::from_bytes(&bytes).unwrap();
    assert_eq!((place.heap, place.classes), (heap, classes));
    assert_eq!(place.offsets.granule_bytes, 100);
    assert_eq!(place.offsets.heap_guards, 100 + Offsets::COUNT as u64 - 1);
    let layout = Layout::new(heap as *const (), classes as *const (), place.offsets);
    assert_eq!(layout.place(), place);
    for length in 0..BYTES {
        assert_eq!(Place::from_bytes(&bytes[..length]), None, "{length} bytes");
    }
    let mut memory = std::vec![0u8; 1024];
    memory[320..320 + BYTES].copy_from_slice(&bytes);
    assert_eq!(find(&memory), Some(place));
    memory[328] += 1;
    assert_eq!(find(&memory), None, "another version");
}

#[test]
fn a_page_is_found_where_it_is_aligned_and_whole() {
    let mut memory = std::vec![0u8; 1024];
    assert_eq!(find(&memory), None);
    let page = bytes_of(&distinct());
    memory[72..80].copy_from_slice(&MAGIC);
    memory[128..136].copy_from_slice(&MAGIC);
    assert_eq!(find(&memory), None, "magic alone is no page");
    memory[320..320 + page.len()].copy_from_slice(&page);
    assert_eq!(find(&memory), Some(320));
    memory[328..332].copy_from_slice(&(VERSION + 1).to_ne_bytes());
    assert_eq!(find(&memory), Some(320), "a page of another version");
}

#[test]
fn mechanisms_have_one_bit_and_one_name_each() {
    let all = mechanism::ALL.iter().fold(0, |bits, (bit, _)| bits | bit);
    assert_eq!(all.count_ones() as usize, mechanism::ALL.len());
    let names: Vec<_> = mechanism::names(mechanism::MEMBARRIER | mechanism::FORK_MARK).collect();
    assert_eq!(names, ["membarrier", "fork_mark"]);
}
