//! The memory of a running process: residency from `/proc/PID/pagemap` (searched by the kernel where it can, else read), contents from `/proc/PID/mem`.
//!
//! Both leave the process running and its pages as they are. `process_vm_readv` would not: it pins what it reads, and since
//! Linux 5.19 the kernel first gives each pinned page that a fork shares a copy of its own. A read of `/proc/PID/mem` takes an ordinary
//! reference.
//!
//! The kernel checks the right once, when the files are opened, and ties them to the address space of that moment. Once that
//! is gone, because the process ended or started another program, both files are empty.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use super::{Memory, Page, Unreadable, by_pages, page_scan};
use crate::exact::usize_of;

/// Entries of the page map in a read: 64 KiB.
const ENTRIES_A_READ: usize = 8192;
/// The same where most reads are of one page: a buffer that costs nothing to clear.
const ENTRIES_A_CHUNK: usize = 512;
const ENTRY_BYTES: usize = 8;
/// No process has pages from here on, unless it asks for five levels of page tables.
const END_OF_USER_SPACE: u64 = (1 << 47) - (1 << 16);
/// Up to so many pages are read, not searched for: one call that is short.
const FEW_PAGES: u64 = 512;
/// Bytes of addresses that are searched in a call, over which the kernel holds the lock of the target's mappings: a millisecond
/// where every page is there. A read holds it for 2 MiB at a time.
const BYTES_A_SCAN: u64 = 256 << 20;
/// Runs of pages that are closer than this are counted in one read.
const APART: u64 = 2 << 20;
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// Of a file, or shared memory.
const FILE: u64 = 1 << 61;
/// No other process maps it.
const EXCLUSIVE: u64 = 1 << 56;

/// The memory of a process.
#[derive(Debug)]
pub struct ProcessMemory {
    pagemap: File,
    /// Whether the kernel can search the page map.
    scans: bool,
    bytes: File,
    page_bytes: u64,
    until: Option<Instant>,
}

/// Pages of a range by what they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCounts {
    /// Anonymous, of this process alone.
    pub own: u64,
    /// Anonymous, of a fork as well, or the kernel's page of zeros.
    pub forked: u64,
    /// Of files or shared memory, mapped by this process alone.
    pub file: u64,
    /// Of files or shared memory, mapped by others as well.
    pub file_shared: u64,
    /// In swap.
    pub swapped: u64,
}

impl ProcessMemory {
    /// Opens the memory of process `pid`: needs the right of a debugger.
    pub fn open(pid: i32) -> Result<Self, Unreadable> {
        let open = |file| File::open(format!("/proc/{pid}/{file}")).map_err(|error| Unreadable::from_io(&error));
        let pagemap = open("pagemap")?;
        let bytes = open("mem")?;
        // The read finds whether there is an address space, without which there may be no search.
        let has_space = matches!(pagemap.read_at(&mut [0; ENTRY_BYTES], 0), Ok(ENTRY_BYTES));
        let scans = has_space && page_scan::scan(&pagemap, 0, 0, &mut []).is_ok();
        Ok(Self { pagemap, scans, bytes, page_bytes: procfs::page_size(), until: None })
    }

    /// The same memory; reads after `until` fail with [`Unreadable::Late`].
    pub fn until(self, until: Instant) -> Self {
        Self { until: Some(until), ..self }
    }

    /// Its bytes by address. A read of a page that is not present maps it, or brings it in from swap.
    pub fn bytes(&self) -> &File {
        &self.bytes
    }

    /// Counts the pages of `start..end`, holding the lock of the target's mappings for about a millisecond at a time.
    pub fn count(&self, start: u64, end: u64) -> Result<PageCounts, Unreadable> {
        let mut counts = PageCounts::default();
        let mut near: Vec<(u64, u64)> = Vec::new();
        self.resident(start, end, &mut |from, to, _| match near.last_mut() {
            Some((_, last)) if from <= *last + APART => *last = to.min(end),
            _ => near.push((from.max(start), to.min(end))),
        })?;
        for (from, to) in near {
            self.entries(from, to, &mut |entry| counts.add(entry))?;
        }
        Ok(counts)
    }

    fn entries(&self, start: u64, end: u64, each: &mut dyn FnMut(u64)) -> Result<(), Unreadable> {
        let mut buffer = vec![0; ENTRIES_A_READ * ENTRY_BYTES];
        let (mut number, past) = (start / self.page_bytes, end.div_ceil(self.page_bytes));
        while number < past {
            self.in_time()?;
            let wanted = usize_of(past - number).min(ENTRIES_A_READ) * ENTRY_BYTES;
            let offset = number * ENTRY_BYTES as u64;
            let began = Instant::now();
            let read = self.pagemap.read_at(&mut buffer[..wanted], offset);
            Self::make_way(began);
            let read = read.map_err(|error| Unreadable::from_io(&error))?;
            let entries = buffer[..read].as_chunks().0;
            if entries.is_empty() {
                return Err(Unreadable::Gone);
            }
            entries.iter().for_each(|entry| each(u64::from_ne_bytes(*entry)));
            number += entries.len() as u64;
        }
        Ok(())
    }

    /// Lets threads of the target that wait for the lock have it, after work with it since `began`: the kernel prefers readers for 4 ms.
    fn make_way(began: Instant) {
        if began.elapsed() > Duration::from_micros(200) {
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn in_time(&self) -> Result<(), Unreadable> {
        match self.until {
            Some(until) if Instant::now() >= until => Err(Unreadable::Late),
            _ => Ok(()),
        }
    }
}

impl PageCounts {
    fn add(&mut self, entry: u64) {
        let has = |bits| entry & bits == bits;
        let count = match () {
            () if has(PRESENT | FILE | EXCLUSIVE) => &mut self.file,
            () if has(PRESENT | FILE) => &mut self.file_shared,
            () if has(PRESENT | EXCLUSIVE) => &mut self.own,
            () if has(PRESENT) => &mut self.forked,
            () if has(SWAPPED) => &mut self.swapped,
            () => return,
        };
        *count += 1;
    }
}

impl Memory for ProcessMemory {
    fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    fn pages(&self, start: u64, pages: &mut [Page]) -> Result<(), Unreadable> {
        self.in_time()?;
        let mut buffer = [0; ENTRIES_A_CHUNK * ENTRY_BYTES];
        let mut number = start / self.page_bytes;
        for part in pages.chunks_mut(ENTRIES_A_CHUNK) {
            let bytes = &mut buffer[..part.len() * ENTRY_BYTES];
            let offset = number * ENTRY_BYTES as u64;
            let read = self.pagemap.read_at(bytes, offset).map_err(|error| Unreadable::from_io(&error))?;
            // A process without an address space reads as an empty file; so do addresses above every
            // address space.
            if read == 0 && start < END_OF_USER_SPACE {
                return Err(Unreadable::Gone);
            }
            if read != bytes.len() {
                return Err(Unreadable::Unmapped(start));
            }
            for (page, entry) in part.iter_mut().zip(bytes.as_chunks().0) {
                *page = match u64::from_ne_bytes(*entry) {
                    entry if entry & PRESENT != 0 => Page::Present,
                    entry if entry & SWAPPED != 0 => Page::Swapped,
                    _ => Page::Absent,
                };
            }
            number += part.len() as u64;
        }
        Ok(())
    }

    fn resident(&self, start: u64, end: u64, each: &mut dyn FnMut(u64, u64, Page)) -> Result<(), Unreadable> {
        let few = FEW_PAGES * self.page_bytes;
        if !self.scans || end.saturating_sub(start) <= few {
            return by_pages(self, start, end, each);
        }
        let mut runs = page_scan::buffer();
        let mut at = start;
        while at < end {
            self.in_time()?;
            let to = end.min(at.saturating_add(BYTES_A_SCAN));
            let began = Instant::now();
            let (found, walked) = match page_scan::scan(&self.pagemap, at, to, &mut runs) {
                Ok((found, walked)) if walked > at => (found, walked),
                _ => return by_pages(self, at, end, each),
            };
            for run in &runs[..found] {
                let state = if run.is_present() { Page::Present } else { Page::Swapped };
                each(run.start, run.end, state);
            }
            at = walked;
            Self::make_way(began);
        }
        // An address space that is gone is searched as an empty one; a read tells them apart.
        self.pages(start, &mut [Page::Absent])
    }

    fn copy(&self, ranges: &[(u64, usize)], out: &mut [u8]) -> Result<(), Unreadable> {
        self.in_time()?;
        let mut rest = out;
        for &(address, len) in ranges {
            let (mut head, tail) = rest.split_at_mut(len);
            rest = tail;
            let mut at = address;
            while !head.is_empty() {
                let read = self.bytes.read_at(head, at).map_err(|error| Unreadable::from_io_at(&error, at))?;
                // The address space is gone; where only the mapping is, the kernel says EIO.
                if read == 0 {
                    return Err(Unreadable::Gone);
                }
                head = &mut head[read..];
                at += read as u64;
            }
        }
        Ok(())
    }
}
