//! A process's memory together with its mappings: what the readers of allocators walk in.

use crate::memory::{Memory, Presence, Reader, Unreadable};
use crate::target::{Backing, Mapping};

/// Memory and mappings, taken once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space<'a> {
    pub(crate) memory: &'a dyn Memory,
    pub(crate) mappings: &'a [Mapping],
}

impl<'a> Space<'a> {
    /// A reader with an empty cache.
    pub(crate) fn reader(&self) -> Reader<'a> {
        Reader::new(self.memory)
    }

    /// The mapping of `address`, if it is the process's own memory and of no file.
    pub(crate) fn own(&self, address: u64) -> Option<&'a Mapping> {
        let at = self.mappings.partition_point(|mapping| mapping.end <= address);
        let mapping = self.mappings.get(at)?;
        let is_own = matches!(mapping.backing, Backing::Anonymous | Backing::Heap);
        (mapping.contains(address) && is_own && !mapping.shared).then_some(mapping)
    }

    /// Whether `from..to` lies in mapped memory of the process's own, however many mappings that is: the
    /// kernel splits one where rights or names differ.
    pub(crate) fn is_mapped(&self, from: u64, to: u64) -> bool {
        let mut at = from;
        while at < to {
            match self.own(at) {
                Some(mapping) => at = mapping.end,
                None => return false,
            }
        }
        from < to
    }

    /// Whether `from..to` may be written to and is the process's own, in whatever mapping: a loader gives the ends
    /// of data segments to malloc.
    pub(crate) fn is_writable(&self, from: u64, to: u64) -> bool {
        let first = self.mappings.partition_point(|mapping| mapping.end <= from);
        let mut at = from;
        for mapping in &self.mappings[first..] {
            if at >= to || !mapping.contains(at) || !mapping.is_own_data() {
                break;
            }
            at = mapping.end;
        }
        from < to && at >= to
    }

    /// Which pages of `from..to` are present.
    pub(crate) fn presence(&self, from: u64, to: u64) -> Result<Presence, Unreadable> {
        Presence::read(self.memory, from, to)
    }

    /// The own mapped memory within `from..to`: its first and its last address.
    pub(crate) fn window(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        let own = |mapping: &&Mapping| mapping.end > from && mapping.start < to && self.own(mapping.start).is_some();
        let mut inside = self.mappings.iter().filter(own);
        let first = inside.next()?;
        let last = inside.next_back().unwrap_or(first);
        Some((first.start.max(from), last.end.min(to)))
    }
}
