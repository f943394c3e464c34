//! The kernel's search of a page map (`PAGEMAP_SCAN`, Linux 6.7): it skips what has no page tables, so that it takes time by what is
//! resident.
//!
//! Without the flag `PM_SCAN_WP_MATCHING` it only reads.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;

use nix::errno::Errno;

/// Runs that one call returns.
const RUNS: usize = 2048;

const PRESENT: u64 = 1 << 3;
const SWAPPED: u64 = 1 << 4;

/// A run of pages of the same categories: the kernel's `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    pub(super) start: u64,
    pub(super) end: u64,
    categories: u64,
}

impl Run {
    pub(super) fn is_present(&self) -> bool {
        self.categories & PRESENT != 0
    }
}

/// The kernel's `struct pm_scan_arg`.
#[repr(C)]
#[derive(Debug, Default)]
struct Argument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

nix::ioctl_readwrite!(pagemap_scan, b'f', 16, Argument);

pub(super) fn buffer() -> Vec<Run> {
    vec![Run::default(); RUNS]
}

/// Writes the first runs of present or swapped pages of `start..end` to `runs`: how many, and the address up to which
/// the kernel looked.
///
/// `pagemap` has an address space: a file without one is an error in Linux below 6.15, and not one that is returned.
pub(super) fn scan(pagemap: &File, start: u64, end: u64, runs: &mut [Run]) -> Result<(usize, u64), Errno> {
    let mut argument = Argument {
        size: size_of::<Argument>() as u64,
        start,
        end,
        vec: runs.as_mut_ptr() as u64,
        vec_len: runs.len() as u64,
        category_anyof_mask: PRESENT | SWAPPED,
        return_mask: PRESENT | SWAPPED,
        ..Argument::default()
    };
    // SAFETY: `argument` is what the request takes, says how long it is, and lives over the call. The kernel writes to it, and
    // to at most `vec_len` elements from `vec` on, which are `runs`, borrowed for writing and of the kernel's layout;
    // every value of their words is valid.
    let found = unsafe { pagemap_scan(pagemap.as_raw_fd(), &raw mut argument) }?;
    let found = usize::try_from(found).map_or(0, |found| found.min(runs.len()));
    Ok((found, argument.walk_end))
}
