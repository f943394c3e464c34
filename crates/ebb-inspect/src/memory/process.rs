//! The memory of a running process: residency from `/proc/PID/pagemap`, contents by `process_vm_readv`.
//!
//! Both leave the process running. The first needs the right to read its `/proc` files, the second
//! that of a debugger.

use std::fs::File;
use std::io::IoSliceMut;
use std::os::unix::fs::FileExt;

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use super::{Memory, Page, Unreadable};

/// The kernel takes so many ranges in a call (`IOV_MAX`).
const RANGES_A_CALL: usize = 1024;
/// Entries of the page map in a read: 64 KiB.
const ENTRIES_A_READ: usize = 8192;
const ENTRY_BYTES: usize = 8;
/// No process has pages from here on, unless it asks for five levels of page tables.
const END_OF_USER_SPACE: u64 = (1 << 47) - (1 << 16);
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;

/// The memory of a process.
#[derive(Debug)]
pub struct ProcessMemory {
    pid: Pid,
    pagemap: File,
    page_bytes: u64,
}

impl ProcessMemory {
    /// Opens the memory of process `pid`.
    pub fn open(pid: i32) -> Result<Self, Unreadable> {
        let pagemap = File::open(format!("/proc/{pid}/pagemap"))
            .map_err(|error| Unreadable::from_io(&error))?;
        Ok(Self {
            pid: Pid::from_raw(pid),
            pagemap,
            page_bytes: procfs::page_size(),
        })
    }
}

impl Memory for ProcessMemory {
    fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    fn pages(&self, start: u64, pages: &mut [Page]) -> Result<(), Unreadable> {
        let mut buffer = [0; ENTRIES_A_READ * ENTRY_BYTES];
        let mut number = start / self.page_bytes;
        for part in pages.chunks_mut(ENTRIES_A_READ) {
            let bytes = &mut buffer[..part.len() * ENTRY_BYTES];
            let offset = number * ENTRY_BYTES as u64;
            let read = self
                .pagemap
                .read_at(bytes, offset)
                .map_err(|error| Unreadable::from_io(&error))?;
            // A process without an address space reads as an empty file; so does what lies behind every
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

    fn copy(&self, ranges: &[(u64, usize)], out: &mut [u8]) -> Result<(), Unreadable> {
        let mut rest = out;
        for part in ranges.chunks(RANGES_A_CALL) {
            let wanted = part.iter().map(|&(_, len)| len).sum();
            let (head, tail) = rest.split_at_mut(wanted);
            rest = tail;
            let remote: Vec<RemoteIoVec> = part
                .iter()
                .map(|&(address, len)| RemoteIoVec {
                    base: address as usize,
                    len,
                })
                .collect();
            let first = part.first().map_or(0, |&(address, _)| address);
            let copied = process_vm_readv(self.pid, &mut [IoSliceMut::new(head)], &remote)
                .map_err(|errno| Unreadable::from_errno(errno, first))?;
            if copied != wanted {
                return Err(Unreadable::Unmapped(address_behind(part, copied)));
            }
        }
        Ok(())
    }
}

/// The address of byte number `copied` of `ranges`: where a short copy stopped.
fn address_behind(ranges: &[(u64, usize)], mut copied: usize) -> u64 {
    for &(address, len) in ranges {
        if copied < len {
            return address + copied as u64;
        }
        copied -= len;
    }
    0
}
