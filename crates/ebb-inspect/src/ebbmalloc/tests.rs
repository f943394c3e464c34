use proptest::prelude::*;

use super::*;
use crate::memory::fake::FakeMemory;

const PAGE: u64 = 4096;

proptest! {
    /// Page by page against slot by slot.
    #[test]
    fn a_slab_is_counted_as_byte_by_byte(
        size in (1u64..1024).prop_map(|size| size * 16),
        words in prop::collection::vec(any::<u64>(), 64),
        dense in any::<bool>(),
        picked in prop::collection::vec(0u64..4096, 0..40),
        present in any::<u64>(),
        resident in any::<u64>(),
        leaving in prop::option::of(0u64..16),
        lead in prop::sample::select(vec![0u64, 48]),
    ) {
        let start = 1 << 20;
        let end = start + 16 * PAGE;
        let class = Class { size, slots: 16 * PAGE / size, granules: 1 }.with_lead(lead, 16 * PAGE);
        let slots = class.slots;
        let words: Vec<u64> = words[..slots.div_ceil(64) as usize]
            .iter()
            .map(|word| if dense { word | word.rotate_left(7) | word.rotate_left(19) } else { *word })
            .collect();
        let leaving = leaving.map_or(0, |page| 1u64 << page);
        let slab = Slab { start, lead, class, resident, leaving };
        let cached: Vec<(u64, u64)> =
            picked.iter().map(|slot| (start + lead + slot % slots * size, size)).collect();
        let mut memory = FakeMemory::new();
        for page in (0..16).filter(|page| present >> page & 1 != 0) {
            memory.write(start + page * PAGE, &[1]);
        }
        let presence = Presence::read(&memory, start, end).unwrap();
        let mut breakdown = Breakdown::default();
        let live = slab.count(words.clone(), &cached, end, PAGE, &presence, &mut breakdown);
        breakdown.close();

        let pages_of = |slot: u64| ((lead + slot * size) / PAGE)..=((lead + slot * size + size - 1) / PAGE);
        let is_free = |slot: u64| {
            words[(slot / 64) as usize] >> (slot % 64) & 1 != 0
                || pages_of(slot).any(|page| leaving >> page & 1 != 0)
        };
        let is_cached =
            |slot: u64| !is_free(slot) && cached.iter().any(|at| at.0 == start + lead + slot * size);
        let is_live = |slot: u64| !is_free(slot) && !is_cached(slot);
        prop_assert_eq!(live, (0..slots).filter(|&slot| is_live(slot)).count() as u64);
        let on_page = |page: u64| (page * PAGE..(page + 1) * PAGE).filter_map(|byte| Some(byte.checked_sub(lead)? / size));
        let (mut of_live, mut kept, mut of_caches) = (0, 0, 0);
        for page in (0..16).filter(|page| present >> page & 1 != 0) {
            let bytes = |is: &dyn Fn(u64) -> bool| {
                on_page(page).filter(|&slot| slot < slots && is(slot)).count() as u64
            };
            match bytes(&is_live) {
                0 if (resident | leaving) >> page & 1 != 0 => kept += PAGE,
                0 => {}
                live => {
                    of_live += live;
                    of_caches += bytes(&is_cached);
                }
            }
        }
        prop_assert_eq!(breakdown.live.resident, of_live);
        prop_assert_eq!(breakdown.kept.resident, kept);
        prop_assert_eq!(breakdown.cached.resident, of_caches);
        prop_assert_eq!(breakdown.system.bytes, 16 * PAGE);
        prop_assert_eq!(breakdown.system.resident, PAGE * u64::from((present as u16).count_ones()));
    }

    /// Whatever the process's memory holds causes neither a panic nor an endless loop.
    #[test]
    fn any_words_are_an_answer(
        words in prop::collection::vec((0u64..8192, any::<u64>()), 0..200),
        offsets in prop::collection::vec(0u64..600, ebb_stats::layout::Offsets::COUNT),
    ) {
        let mut memory = FakeMemory::new();
        for (at, word) in words {
            memory.write_word((1 << 20) + at * 8 % 65536, word);
        }
        let mut layout = Vec::from(ebb_stats::layout::MAGIC);
        let head = [ebb_stats::layout::VERSION, 1 << 20, (1 << 20) + 8192];
        for word in head.iter().chain(&offsets) {
            layout.extend(word.to_ne_bytes());
        }
        let place = Place::from_bytes(&layout).unwrap();
        let space = Space { memory: &memory, mappings: &[] };
        let _ = of_place(space, &place);
    }
}

/// 4 TiB with five touched pages: time and memory follow the touched pages.
#[test]
fn a_vast_block_is_counted_by_what_is_touched() {
    const BASE: u64 = 1 << 44;
    const BYTES: u64 = 1 << 42;
    const GRANULE: u64 = 1 << 16;
    const VIEW: u64 = 1 << 20;
    const DESCRIPTORS: u64 = 1 << 30;
    let offsets = Offsets {
        granule_bytes: GRANULE,
        descriptor_bytes: 64,
        kind: 0,
        class: 1,
        fill: 2,
        len: 4,
        bits: 8,
        resident: 16,
        leaving: 24,
        ..Offsets::default()
    };
    let place = Place { offsets, ..Place::from_bytes(&empty_layout()).unwrap() };
    let granules = BYTES / GRANULE;
    let mut memory = FakeMemory::new();
    for (at, word) in (0..).zip([BASE, granules, 0, DESCRIPTORS]) {
        memory.write_word(VIEW + at * 8, word);
    }
    memory.write_word(DESCRIPTORS, u64::from(kind::LARGE) | granules << 32);
    // The last page of the block is not in use.
    memory.write_word(DESCRIPTORS + 8, BYTES - PAGE);
    for at in [0, PAGE, BYTES / 2, BYTES - 2 * PAGE, BYTES - PAGE] {
        memory.write(BASE + at, &[1]);
    }
    let space = Space { memory: &memory, mappings: &[] };
    let none = Class { size: 16, slots: 1, granules: 1 };
    let classes = vec![none];
    let mut sum = Sum {
        place: &place,
        cached: caches::read(space, &place, &classes).unwrap(),
        classes,
        breakdown: Breakdown::default(),
        sizes: Classes::default(),
        torn: 0,
    };
    sum.region(space, VIEW).unwrap();
    assert_eq!(sum.torn, 0);
    assert_eq!(sum.breakdown.live, Line::one(BYTES - PAGE, 4 * PAGE));
    assert_eq!(sum.breakdown.kept, Line::one(PAGE, PAGE));
}

fn empty_layout() -> Vec<u8> {
    let mut layout = Vec::from(ebb_stats::layout::MAGIC);
    let head = [ebb_stats::layout::VERSION, 1 << 20, (1 << 20) + 8192];
    let offsets = [0; Offsets::COUNT];
    layout.extend(head.iter().chain(&offsets).flat_map(|word| word.to_ne_bytes()));
    layout
}
