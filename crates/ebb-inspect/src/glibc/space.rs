//! A process's memory as the readers of its glibc heap see it: where malloc's static data and the heaps of each arena lie.

use ebb_allocators::Allocator;

use crate::heap::Unsupported;
use crate::memory::{Memory, Presence, Reader, Unreadable, unless_torn};
use crate::target::{Backing, Mapping, Target};

use super::heaps;
use super::layout::{HEAP_BYTES, Layout};
use super::locate::{self, Parameters, Static};
use super::trim::Trimmer;
use super::version::{self, Libc, Version};

/// The memory of a process with the layout of its malloc.
pub struct Space<'a> {
    pub memory: &'a dyn Memory,
    pub layout: Layout,
    pub mappings: &'a [Mapping],
}

impl<'a> Space<'a> {
    /// The glibc of `target`, and its memory.
    pub fn of(target: &'a Target, mappings: &'a [Mapping]) -> Result<(Libc, Self), Unsupported> {
        let libc = version::of(target, mappings).ok_or(Unsupported::NoGlibc)?;
        let layout = Layout::of(libc.version).ok_or_else(|| unknown(libc.version))?;
        let memory = target.memory();
        Ok((libc, Self { memory, layout, mappings }))
    }

    /// malloc's static data, in libc's writable mappings.
    pub fn locate(&self, libc: &Libc) -> Result<Static, Unsupported> {
        let data: Vec<&Mapping> = self
            .mappings
            .iter()
            .filter(|mapping| mapping.is_own_data() && mapping.file() == Some(&libc.path))
            .collect();
        self.locate_in(libc.version, &data)
    }

    /// malloc's static data, in the mappings `data`.
    pub fn locate_in(&self, version: Version, data: &[&Mapping]) -> Result<Static, Unsupported> {
        let area = self.brk_area();
        locate::locate(&mut self.reader(), &self.layout, data, area)?.ok_or_else(|| unknown(version))
    }

    /// A reader that begins with an empty cache.
    pub fn reader(&self) -> Reader<'_> {
        Reader::new(self.memory)
    }

    /// The area that brk moves; the kernel may show it in several pieces.
    fn brk_area(&self) -> Option<(u64, u64)> {
        let mut pieces = self.mappings.iter().filter(|mapping| mapping.backing == Backing::Heap);
        let first = pieces.next()?;
        let end = pieces.next_back().map_or(first.end, |last| last.end);
        Some((first.start, end))
    }

    fn mapping_of(&self, address: u64) -> Option<(u64, u64)> {
        let mut own =
            self.mappings.iter().filter(|mapping| mapping.is_own_data() && mapping.backing == Backing::Anonymous);
        let mapping = own.find(|mapping| mapping.contains(address))?;
        Some((mapping.start, mapping.end))
    }

    pub fn heap_bytes(parameters: Option<&Parameters>) -> u64 {
        match parameters.map(|parameters| parameters.huge_page_bytes) {
            Some(huge) if huge != 0 => huge.saturating_mul(4),
            _ => HEAP_BYTES,
        }
    }

    /// The heaps of `arena`, and which of their pages are present.
    pub fn heaps_of(&self, arena: u64, found: &Static) -> Result<Vec<(heaps::Heap, Presence)>, Unreadable> {
        let parameters = found.parameters.as_ref();
        let heaps = if arena == found.arenas[0] {
            let begin = |area: (u64, u64)| match parameters.map(|parameters| parameters.sbrk_base) {
                Some(base) if base != 0 => base,
                _ => area.0,
            };
            // Without brk's area (it never gave anything) all is mapped.
            let area = self.brk_area().unwrap_or_default();
            let begin = begin(area);
            let mapping_of = |address| self.mapping_of(address);
            heaps::main(&mut self.reader(), &self.layout, arena, begin, area, mapping_of)
        } else {
            let heap_bytes = Self::heap_bytes(parameters);
            heaps::secondary(&mut self.reader(), &self.layout, arena, heap_bytes)
        };
        unless_torn(heaps)?
            .unwrap_or_default()
            .into_iter()
            .map(|heap| {
                let presence = Presence::read(self.memory, heap.start, heap.end)?;
                Ok((heap, presence))
            })
            .collect()
    }

    /// What `malloc_trim` would see of these mappings.
    pub fn trimmer(&self, found: &Static) -> Trimmer {
        let page_bytes = self.memory.page_bytes();
        let unit = found.parameters.as_ref().map_or(0, |of| of.thp_page_bytes);
        let locked = self.mappings.iter().filter(|mapping| mapping.locked);
        Trimmer {
            page_bytes,
            top_unit_bytes: unit.max(page_bytes),
            brk: self.brk_area().map(|area| area.1),
            locked: locked.map(|mapping| (mapping.start, mapping.end)).collect(),
        }
    }
}

/// The error for a glibc whose malloc is not where its version has it.
pub fn unknown(version: Version) -> Unsupported {
    Unsupported::Build(format!("{} {version}: the layout of its malloc is not known", Allocator::Glibc))
}
