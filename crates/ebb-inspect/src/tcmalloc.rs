//! tcmalloc of gperftools on x86-64: every span of its page heap, and what its caches hold.
//!
//! [`read`] is the entry. `spans` finds the page map and goes through it, `caches` finds the central lists and the
//! caches of threads; none of them needs a symbol. A span tells how many of its objects are out; which of
//! those lie in caches is known by number and class. Google's later tcmalloc (the one with caches per CPU) is another
//! allocator.

mod caches;
mod spans;
#[cfg(test)]
mod tests;

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

/// What the tcmalloc whose data is `data` holds.
fn of_data(
    space: Space<'_>,
    data: &[(u64, u64)],
    version: Option<&str>,
) -> Result<Heap, Unsupported> {
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
fn once(
    space: Space<'_>,
    map: &PageMap,
    caches: &Caches,
    name: &str,
) -> Result<Result<Heap, String>, Unreadable> {
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
fn divide(
    small: &Small,
    bytes: u64,
    cached: u64,
    breakdown: &mut Breakdown,
    classes: &mut Classes,
) {
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
