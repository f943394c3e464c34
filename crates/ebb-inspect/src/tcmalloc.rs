//! tcmalloc of gperftools on x86-64: every span of its page heap, and what its caches hold.
//!
//! [`read`] is the entry. `spans` finds the page map and goes through it, `caches` finds the central lists and the
//! caches of threads; none of them needs a symbol. A span tells how many of its objects are out; which of
//! those lie in caches is known by number and class. Google's later tcmalloc (the one with caches per CPU) is another
//! allocator.

mod caches;
mod spans;

use std::collections::BTreeMap;
use std::path::Path;

use ebb_allocators::Allocator;

use crate::breakdown::{Breakdown, Line};
use crate::heap::{Classes, Heap, Unsupported, consistent};
use crate::image::Image;
use crate::memory::{Unreadable, unless_torn};
use crate::space::Space;
use crate::target::Target;

use caches::Caches;
use spans::{PageMap, Small, Spans};

const NAME: &str = Allocator::Tcmalloc.name();
const VERSION: &[u8] = b"gperftools ";
const VERSION_BYTES: usize = 32;
/// The part of what is in use that may be missing so: the process runs meanwhile.
const MAX_DIFFERENCE: f64 = 0.05;
const LEAST_DIFFERENCE: u64 = 8 << 20;
/// Settings by the ends of their variables' names; these are exported, so that a stripped library has them.
const RELEASE_RATE: &str = "FLAGS_tcmalloc_release_rateE";
const CACHE_BYTES: &str = "overall_thread_cache_size_E";

/// What a span that was torn may have: that many bytes come from the kernel at once.
const TORN_BYTES: u64 = 1 << 20;

/// What the tcmalloc in the mapped file `file` of `target` holds.
pub fn read(target: &Target, file: &Path) -> Result<Heap, Unsupported> {
    let mappings = target.mappings()?;
    let space = Space { memory: target.memory(), mappings: &mappings };
    let image = Image::of(target, &mappings, file).ok_or(Unsupported::NotThere(NAME))?;
    let version = version(&image);
    let mut heap = of_data(space, image.data(), version.as_deref())?;
    heap.settings = settings(space, &image)?;
    Ok(heap)
}

fn of_data(space: Space<'_>, data: &[(u64, u64)], version: Option<&str>) -> Result<Heap, Unsupported> {
    let name = version.map_or(NAME.to_owned(), |version| format!("{NAME} {version}"));
    let map = PageMap::find(space, data)?;
    let caches = Caches::find(space, data)?;
    let (Some(map), Some(caches)) = (map, caches) else {
        return Err(match version {
            Some(_) => Unsupported::Layout(name),
            None => Unsupported::NotThere("tcmalloc of gperftools"),
        });
    };
    consistent(|| once(space, &map, &caches, &name))
}

/// Reads all once; in words where the figures contradict each other.
fn once(space: Space<'_>, map: &PageMap, caches: &Caches, name: &str) -> Result<Result<Heap, String>, Unreadable> {
    let cached = caches.count(space)?;
    let spans = Spans::read(space, map)?;
    let (mut breakdown, mut classes) = (spans.breakdown, Classes::default());
    let mut missing = 0u64;
    for (&class, small) in &spans.small {
        let Some(&bytes) = caches.class_bytes.get(class) else {
            missing = missing.saturating_add(small.bytes);
            continue;
        };
        let cached = cached.get(class).copied().unwrap_or(0);
        let beyond = cached.saturating_sub(small.out);
        missing = missing.saturating_add(beyond.saturating_mul(bytes));
        divide(small, bytes, cached.min(small.out), &mut breakdown, &mut classes);
    }
    for &block in &spans.large {
        classes.count(block, 1);
    }
    breakdown.close();
    let bound = (breakdown.live.bytes as f64 * MAX_DIFFERENCE).max(LEAST_DIFFERENCE as f64);
    if missing as f64 > bound {
        return Ok(Err(format!(
            "{name}: its caches hold {:.1} MB more than its spans have allocated",
            missing as f64 / 1e6
        )));
    }
    Ok(Ok(Heap {
        error: missing as f64 / breakdown.live.bytes.max(1) as f64,
        classes: classes.0,
        torn: spans.torn,
        missing: spans.torn.saturating_mul(TORN_BYTES),
        ..Heap::of(name, breakdown)
    }))
}

/// Divides the spans of a class between live, cached and free objects of `bytes` each. Where their pages are resident in
/// part, live ones count as resident first, then cached ones.
fn divide(small: &Small, bytes: u64, cached: u64, breakdown: &mut Breakdown, classes: &mut Classes) {
    let objects = (small.bytes_by_span(bytes)).max(small.out);
    let live = small.out - cached;
    classes.count(bytes, live);
    let (mut room, mut resident) = (small.bytes, small.resident);
    let mut line = |count: u64| {
        let bytes = (count.saturating_mul(bytes)).min(room);
        let there = bytes.min(resident);
        room -= bytes;
        resident -= there;
        Line { chunks: count, bytes, resident: there }
    };
    breakdown.live += line(live);
    breakdown.cached += line(cached);
    breakdown.free += line(objects - small.out);
    breakdown.overhead += Line { chunks: small.lengths.values().sum(), bytes: room, resident };
}

/// `2.10`, from the text that names the package.
fn version(image: &Image) -> Option<String> {
    image.search(VERSION_BYTES, |bytes| {
        let mut starts = memchr::memmem::find_iter(bytes, VERSION);
        starts.find_map(|at| {
            let rest = &bytes[at + VERSION.len()..];
            let is_number = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
            let end = rest.iter().position(|byte| !is_number(byte))?;
            (end >= 3 && rest[end] == 0).then(|| String::from_utf8_lossy(&rest[..end]).into_owned())
        })
    })
}

fn settings(space: Space<'_>, image: &Image) -> Result<BTreeMap<String, String>, Unreadable> {
    let wanted = |name: &str| name.ends_with(RELEASE_RATE) || name.ends_with(CACHE_BYTES);
    let mut reader = space.reader();
    let mut settings = BTreeMap::new();
    for (name, address) in image.variables(wanted) {
        // Each has a twin that tells whether it was changed, whose name is longer by a letter in front.
        let Some(word) = unless_torn(reader.word(address))? else {
            continue;
        };
        if name.ends_with(RELEASE_RATE) {
            let rate = f64::from_bits(word);
            settings.insert("tcmalloc_release_rate".to_owned(), rate.to_string());
        } else {
            let name = "tcmalloc_max_total_thread_cache_bytes";
            settings.insert(name.to_owned(), word.to_string());
        }
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
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
            let sizes = [0, 8, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256];
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
}
