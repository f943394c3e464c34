//! The caches of tcmalloc: those of threads, and the slots in which the central lists pass objects on.

use std::collections::BTreeSet;

use crate::memory::{Reader, Unreadable, unless_torn, words};
use crate::space::Space;

/// Classes of small objects; the first stands for none.
const CLASSES: usize = 128;
/// A thread's cache begins with a list for each class: the first object, four counts, and the objects' size.
const LIST_BYTES: u64 = 32;
const LIST_LENGTH: u64 = 8;
const LIST_SIZE: u64 = 24;
/// The links to the next and the last cache come after the lists, at a place that differs between versions.
const LINKS: std::ops::Range<u64> = CLASSES as u64 * LIST_BYTES..CLASSES as u64 * LIST_BYTES + 256;
/// Caches of threads; a longer list is torn.
const MAX_CACHES: usize = 1 << 16;
/// A central list: its class, two lists of spans, two counts, 64 slots, how many of them are used. Padded to lines.
const CENTRAL_BYTES: u64 = 1216;
const CENTRAL_CLASS: u64 = 8;
const CENTRAL_SLOTS: u64 = 128;
const CENTRAL_USED: u64 = 1152;
const MAX_SLOTS: u64 = 64;
/// A slot holds no more objects.
const MAX_BATCH: u64 = 1 << 16;
/// Words of the file's data that are looked at.
const MAX_CANDIDATES: usize = 1 << 20;
/// Classes by which a table is recognised.
const SAMPLES: u64 = 16;

/// Where the caches are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caches {
    /// Bytes of an object by class.
    pub class_bytes: Vec<u64>,
    threads: Vec<u64>,
    central: u64,
}

impl Caches {
    /// Looks for them from the words of `data`.
    pub fn find(space: Space<'_>, data: &[(u64, u64)]) -> Result<Option<Self>, Unreadable> {
        let mut pointers = BTreeSet::new();
        let mut ones = Vec::new();
        for &range in data {
            words(space.memory, range, |at, word| {
                if word == 1 && ones.len() < MAX_CANDIDATES {
                    // The second central list's class.
                    ones.push(at.wrapping_sub(CENTRAL_BYTES + CENTRAL_CLASS));
                } else if pointers.len() < MAX_CANDIDATES && space.own(word).is_some() {
                    pointers.insert(word);
                }
            })?;
        }
        let mut reader = space.reader();
        let mut heads = Vec::new();
        for pointer in pointers {
            if let Some(sizes) = unless_torn(class_sizes(&mut reader, pointer))?.flatten() {
                heads.push((pointer, sizes));
            }
        }
        let mut central = None;
        for one in ones {
            if unless_torn(is_central(&mut reader, one))? == Some(true) {
                central = Some(one);
                break;
            }
        }
        let (Some((_, sizes)), Some(central)) = (heads.first().cloned(), central) else {
            return Ok(None);
        };
        let heads: Vec<u64> = heads.into_iter().map(|(head, _)| head).collect();
        Ok(Some(Self { class_bytes: sizes, threads: threads(&mut reader, &heads)?, central }))
    }

    /// Objects in all caches, by class.
    pub fn count(&self, space: Space<'_>) -> Result<Vec<u64>, Unreadable> {
        let mut counts = vec![0u64; self.class_bytes.len()];
        let mut reader = space.reader();
        for (class, count) in counts.iter_mut().enumerate().skip(1) {
            for &thread in &self.threads {
                let list = thread + class as u64 * LIST_BYTES + LIST_LENGTH;
                *count += u64::from(unless_torn(reader.int(list))?.unwrap_or(0));
            }
            let central = self.central + class as u64 * CENTRAL_BYTES;
            let used = unless_torn(reader.int(central + CENTRAL_USED))?.unwrap_or(0);
            let used = u64::from(used).min(MAX_SLOTS);
            if used > 0 {
                // All slots of a class hold as many objects.
                let first = unless_torn(reader.word(central + CENTRAL_SLOTS))?.unwrap_or(0);
                let last = unless_torn(reader.word(central + CENTRAL_SLOTS + 8))?.unwrap_or(0);
                *count += used * batch(&mut reader, first, last)?;
            }
        }
        Ok(counts)
    }
}

/// The length of the chain of objects from `first` to `last`.
fn batch(reader: &mut Reader<'_>, first: u64, last: u64) -> Result<u64, Unreadable> {
    let (mut at, mut count) = (first, 0);
    while at != 0 && count < MAX_BATCH {
        count += 1;
        if at == last {
            return Ok(count);
        }
        at = unless_torn(reader.word(at))?.unwrap_or(0);
    }
    // Torn: at least the first object is there.
    Ok(count.min(1))
}

/// The sizes of all classes, if a thread's cache is at `address`.
fn class_sizes(reader: &mut Reader<'_>, address: u64) -> Result<Option<Vec<u64>>, Unreadable> {
    if !address.is_multiple_of(8) {
        return Ok(None);
    }
    let mut sizes = Vec::new();
    for class in 0..CLASSES as u64 {
        let list = address.saturating_add(class * LIST_BYTES);
        let size = u64::from(reader.int(list.saturating_add(LIST_SIZE))?);
        // The ones in use are growing multiples of 8; all after them are 0.
        let is_next = match sizes.last() {
            None => size == 0,
            Some(&last) => size == 0 || (size > last && size.is_multiple_of(8)),
        };
        if !is_next || (class == 1 && size != 8) || (class == 2 && size != 16) {
            return Ok(None);
        }
        if class > 0 && size == 0 {
            break;
        }
        sizes.push(size);
    }
    Ok((sizes.len() as u64 > SAMPLES).then_some(sizes))
}

fn is_central(reader: &mut Reader<'_>, address: u64) -> Result<bool, Unreadable> {
    for class in 0..SAMPLES {
        let at = address.wrapping_add(class * CENTRAL_BYTES);
        if reader.word(at.wrapping_add(CENTRAL_CLASS))? != class {
            return Ok(false);
        }
        if u64::from(reader.int(at.wrapping_add(CENTRAL_USED))?) > MAX_SLOTS {
            return Ok(false);
        }
    }
    Ok(true)
}

/// All caches of threads that `heads` lead to, by the links that lead forth and back.
fn threads(reader: &mut Reader<'_>, heads: &[u64]) -> Result<Vec<u64>, Unreadable> {
    let mut best: Vec<u64> = heads.to_vec();
    for link in LINKS.step_by(8) {
        let mut all: BTreeSet<u64> = heads.iter().copied().collect();
        for &head in heads {
            let mut at = head;
            while all.len() < MAX_CACHES {
                let next = unless_torn(reader.word(at.saturating_add(link)))?.unwrap_or(0);
                if next == 0 || all.contains(&next) {
                    break;
                }
                let back = unless_torn(reader.word(next.saturating_add(link + 8)))?;
                let is_cache = unless_torn(class_sizes(reader, next))?.flatten().is_some();
                if back != Some(at) || !is_cache {
                    break;
                }
                all.insert(next);
                at = next;
            }
        }
        if all.len() > best.len() {
            best = all.into_iter().collect();
        }
    }
    Ok(best)
}
