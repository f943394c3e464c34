//! V8's heap in a process (node, Chromium), by the headers of its chunks: blocks of 256 KiB or more that begin at multiples of that.
//! Garbage counts as objects until it is collected: only V8 knows what is live.
//!
//! Words of a chunk (`MemoryChunk` and `PageMetadata` in V8's src/heap); all of them are checked against each other:
//!
//! | V8 | node | words |
//! |---|---|---|
//! | 11 | 20 | size, flags, heap, start of the objects, their end, allocated bytes, wasted, end of what was used |
//! | 12 | 22 | flags, its own address, size, heap, then as in 11 from the start of the objects on |
//! | 13 | 24 | flags, metadata: a table, the chunk's address, size, allocated, wasted, end of what was used, one more, end of the objects |

use ebb_inspect::memory::Reader;
use procfs::process::{MMPermissions, MMapPath, MemoryMaps};

use crate::look;
use crate::snapshot::Managed;

/// Where chunks may begin.
const CHUNK: u64 = 256 << 10;
/// A longer chunk is none.
const MOST_BYTES: u64 = 16 << 30;
/// Places that are looked at, of 256 GiB.
const MOST_PLACES: usize = 1 << 20;
/// The words before the first object are fewer.
const HEAD_BYTES: u64 = 16 << 10;
/// Flags of the young generation: what is copied from holds nothing, what is copied to is filled from its start.
const FROM: u64 = 1 << 3;
const TO: u64 = 1 << 4;

/// A chunk.
struct Chunk {
    bytes: u64,
    flags: u64,
    allocated: u64,
    /// Bytes from its start to where objects once were.
    filled: u64,
}

impl Chunk {
    fn read(reader: &mut Reader<'_>, at: u64) -> Option<Self> {
        let mut words = |from: u64| -> Option<[u64; 9]> {
            let mut bytes = [0; 72];
            reader.bytes(from, &mut bytes).ok()?;
            let word = |index: usize| bytes[index * 8..][..8].try_into().map(u64::from_le_bytes);
            Some(std::array::from_fn(|index| word(index).unwrap_or(0)))
        };
        let own = words(at)?;
        let known = |[bytes, flags, start, end, allocated, filled]: [u64; 6]| {
            let is_sane = bytes.is_multiple_of(4096)
                && (4096..=MOST_BYTES).contains(&bytes)
                && (at + 1..at + HEAD_BYTES).contains(&start)
                && (start + 1..=at + bytes).contains(&end)
                && allocated.max(filled) <= bytes;
            is_sane.then_some(Self { bytes, flags, allocated, filled })
        };
        let of_11 = [0, 1, 3, 4, 5, 7].map(|index| own[index]);
        let of_12 = [2, 0, 4, 5, 6, 8].map(|index| own[index]);
        known(of_11).or_else(|| known(of_12).filter(|_| own[1] == at)).or_else(|| {
            let [_, of, bytes, allocated, _, filled, _, end, _] = words(own[1])?;
            known([bytes, own[0], at + 1, end, allocated, filled]).filter(|_| of == at)
        })
    }

    /// Bytes of objects and of garbage.
    fn used(&self) -> u64 {
        match self.flags & (FROM | TO) {
            FROM => 0,
            TO if self.bytes == CHUNK => self.filled,
            _ => self.allocated,
        }
    }
}

/// The heap in process `pid`; `None` where there is none, or another version's.
pub fn heap(pid: i32, maps: &MemoryMaps) -> Option<Managed> {
    let target = look::open(pid).ok()?;
    let mut reader = Reader::new(target.memory());
    let mut managed = Managed { reader: "V8".to_owned(), ..Managed::default() };
    let (mut at, mut places) = (0, 0..MOST_PLACES);
    for map in maps.iter() {
        let is_own = match &map.pathname {
            MMapPath::Anonymous => true,
            MMapPath::Other(name) => name.starts_with("anon:"),
            _ => false,
        };
        if !is_own || !map.perms.contains(MMPermissions::READ) {
            continue;
        }
        at = map.address.0.max(at).next_multiple_of(CHUNK);
        while at < map.address.1 && places.next().is_some() {
            let chunk = Chunk::read(&mut reader, at);
            let (bytes, used) = chunk.map_or((0, 0), |it| (it.bytes, it.used()));
            managed.committed = managed.committed.saturating_add(bytes);
            managed.used = managed.used.saturating_add(used);
            at = at.saturating_add(bytes.next_multiple_of(CHUNK).max(CHUNK));
        }
    }
    (managed.committed > 0).then_some(managed)
}
