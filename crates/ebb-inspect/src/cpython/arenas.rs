//! pymalloc's arenas: how much of them is in use, free, and resident.
//!
//! An array has a record for each: a piece of address space, its pools, and how many of these are free.
//! `arrays` finds it. The figures are those of `sys._debugmallocstats()`, of all interpreters together.

use crate::memory::{Memory, Presence, Reader, Unreadable};

use super::layout::Layout;

/// `struct arena_object`: address, pool_address, nfreepools, ntotalpools, freepools, nextarena, prevarena.
const RECORD_BYTES: u64 = 48;
/// `struct pool_header`: count, freeblock, nextpool, prevpool, arenaindex, szidx, nextoffset, maxnextoffset.
const HEADER_BYTES: u64 = 48;
/// The array starts with so many records and doubles.
pub(super) const FIRST_RECORDS: u64 = 16;
/// 512 bytes in steps of 16.
const CLASSES: u32 = 32;
/// So many records are read: 128 GiB in arenas of 1 MiB. A hostile array ends here.
const MOST_RECORDS: u64 = 1 << 17;

/// What the arenas hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arenas {
    /// Arenas that are mapped.
    pub count: u64,
    /// Their address space.
    pub bytes: u64,
    /// Of that, resident.
    pub resident_bytes: u64,
    /// Blocks in use.
    pub blocks: u64,
    /// Bytes of blocks in use.
    pub used_bytes: u64,
    /// Bytes of free blocks in pools that have used ones: only objects of that size go there.
    pub available_bytes: u64,
    /// Bytes of pools that hold nothing.
    pub unused_pool_bytes: u64,
    /// Of these, resident: CPython returns whole arenas only.
    pub unused_pool_resident_bytes: u64,
    /// Arenas that could not be read to their end, because they changed; an interpreter whose arenas were not
    /// found counts as one.
    pub unread: u64,
    /// Arenas that could not be read to their end, because a page of theirs is in swap; an array of which
    /// records are there counts as one.
    pub swapped: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) address: u64,
    pub(super) pool_address: u64,
    free_pools: u64,
    total_pools: u64,
}

/// A record, if it is one: unused, or with pools that lie in its arena.
pub(super) fn record(
    reader: &mut Reader<'_>,
    array: u64,
    index: u64,
    layout: &Layout,
) -> Result<Option<Record>, Unreadable> {
    let at = array.wrapping_add(index * RECORD_BYTES);
    let record = Record {
        address: reader.word(at)?,
        pool_address: reader.word(at.wrapping_add(8))?,
        free_pools: reader.int(at.wrapping_add(16))?.into(),
        total_pools: reader.int(at.wrapping_add(20))?.into(),
    };
    Ok(record.is_one(reader.memory(), layout).then_some(record))
}

impl Record {
    /// Whether it has the shape of a record.
    fn is_one(&self, memory: &dyn Memory, layout: &Layout) -> bool {
        if self.address == 0 {
            return true;
        }
        let Some(end) = self.address.checked_add(layout.arena_bytes) else {
            return false;
        };
        let pools = layout.arena_bytes / layout.pool_bytes;
        let is_aligned = self.address.is_multiple_of(layout.pool_bytes);
        self.total_pools == pools - u64::from(!is_aligned)
            && self.free_pools <= self.total_pools
            && self.pool_address.is_multiple_of(layout.pool_bytes)
            && (self.address..=end).contains(&self.pool_address)
            && self.address.is_multiple_of(memory.page_bytes())
    }
}

/// What the arenas of `array` hold, added to `sum`.
pub(super) fn read(reader: &mut Reader<'_>, array: u64, layout: &Layout, sum: &mut Arenas) -> Result<(), Unreadable> {
    let (records, is_swapped) = records(reader, array, layout);
    sum.swapped += u64::from(is_swapped);
    for record in records {
        add(reader, record, layout, sum)?;
    }
    Ok(())
}

/// The address space of each arena of `array`.
pub(super) fn ranges(reader: &mut Reader<'_>, array: u64, layout: &Layout) -> Vec<(u64, u64)> {
    let range = |it: Record| (it.address, it.address + layout.arena_bytes);
    let (records, _) = records(reader, array, layout);
    records.into_iter().map(range).collect()
}

/// The block that `address` lies in: its first byte. `None` outside of a pool that holds some.
pub(super) fn block_of(reader: &mut Reader<'_>, address: u64, layout: &Layout) -> Result<Option<u64>, Unreadable> {
    let pool = address - address % layout.pool_bytes;
    let first = pool + HEADER_BYTES;
    Ok(header(reader, pool)?.filter(|_| address >= first).map(|(_, size)| address - (address - first) % size))
}

/// The records of the arenas that are mapped, and whether there may be more, in swap.
fn records(reader: &mut Reader<'_>, array: u64, layout: &Layout) -> (Vec<Record>, bool) {
    let mut records = Vec::new();
    let mut unused = 0;
    for index in 0..MOST_RECORDS {
        let record = match record(reader, array, index, layout) {
            Ok(Some(record)) => record,
            Err(Unreadable::Swapped(_)) => return (records, true),
            Ok(None) | Err(_) => break,
        };
        if record.address == 0 {
            // The array's length is not known. Its rear part is unused, at most as much as the front.
            unused += 1;
            if unused > records.len() as u64 + FIRST_RECORDS {
                break;
            }
            continue;
        }
        unused = 0;
        records.push(record);
    }
    (records, false)
}

fn add(reader: &mut Reader<'_>, record: Record, layout: &Layout, sum: &mut Arenas) -> Result<(), Unreadable> {
    let (start, end) = (record.address, record.address + layout.arena_bytes);
    let presence = Presence::read(reader.memory(), start, end)?;
    sum.count += 1;
    sum.bytes += layout.arena_bytes;
    sum.resident_bytes += presence.bytes(start, end);
    let first = start.next_multiple_of(layout.pool_bytes);
    for pool in (0..record.total_pools).map(|it| first + it * layout.pool_bytes) {
        let in_use = if pool < record.pool_address {
            match header(reader, pool) {
                Ok(header) => header,
                Err(error) if error.is_final() => return Err(error),
                // The rest of this arena stays unread.
                Err(Unreadable::Swapped(_)) => {
                    sum.swapped += 1;
                    return Ok(());
                }
                // Torn, or unmapped since.
                Err(_) => {
                    sum.unread += 1;
                    return Ok(());
                }
            }
        } else {
            None
        };
        match in_use {
            Some((count, size)) => {
                let blocks = (layout.pool_bytes - HEADER_BYTES) / size;
                let count = u64::from(count).min(blocks);
                sum.blocks += count;
                sum.used_bytes += count * size;
                sum.available_bytes += (blocks - count) * size;
            }
            None => {
                sum.unused_pool_bytes += layout.pool_bytes;
                sum.unused_pool_resident_bytes += presence.bytes(pool, pool + layout.pool_bytes);
            }
        }
    }
    Ok(())
}

/// How many blocks of a carved pool are in use, and their size; none where it is empty.
fn header(reader: &mut Reader<'_>, pool: u64) -> Result<Option<(u32, u64)>, Unreadable> {
    let count = reader.int(pool)?;
    let class = reader.int(pool + 36)?;
    if count == 0 {
        return Ok(None);
    }
    if class >= CLASSES {
        return Err(Unreadable::Unmapped(pool));
    }
    Ok(Some((count, u64::from(class + 1) * 16)))
}
