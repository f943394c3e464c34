//! The calling thread's stack: its return addresses, found without memory from the heap, without locks,
//! and without reading anything that might not be there.
//!
//! Used by the heap profile of ebbmalloc. A frame is left by what the unwind tables of its module say
//! (`.eh_frame`, found through `.eh_frame_hdr`, read by the crate `gimli`), and where there are none by
//! the frame pointer. Tables are read from the module's file where that is possible: a page that is read in
//! memory becomes resident, with fifteen next to it. What they say about an address is remembered, so that a
//! frame costs two or three loads. Where modules lie is read from the kernel's list of mappings, never from the loader,
//! which would take its lock.
//!
//! What always holds: memory on the stack is read only after the kernel was asked whether it can be; a
//! table is read only after its module was seen to be the one that was there when it was found. So a
//! wrong or missing table, a library that was unloaded, or a stack that is none cost frames, not the
//! process.
//!
//! ```
//! use std::os::unix::fs::FileExt;
//! use std::{fs, fs::File};
//!
//! use ebbmalloc_unwind::{Host, Registers, Unwinder};
//!
//! struct Process(File);
//!
//! impl Host for Process {
//!     fn is_readable(&self, address: usize) -> bool {
//!         self.0.read_exact_at(&mut [0; 8], address as u64).is_ok()
//!     }
//!     fn read_maps(&self, each: &mut dyn FnMut(&[u8])) -> bool {
//!         fs::read("/proc/self/maps").is_ok_and(|text| {
//!             each(&text);
//!             true
//!         })
//!     }
//! }
//!
//! let process = Process(File::open("/proc/self/mem").unwrap());
//! let mut frames = [0; 64];
//! // SAFETY: the registers are those of this frame, which lives until the walk is done.
//! let count = unsafe { Unwinder::new().walk(&process, Registers::here(), false, &mut frames, &mut []) };
//! assert!(count > 1, "this frame and its callers");
//! ```
#![cfg_attr(not(test), no_std)]
// What can lose bits is checked, or argued.
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss))]
#![cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_pointer_width = "64"))]

mod elf;
mod maps;
mod modules;
mod registers;
mod rules;
#[cfg(test)]
mod tests;
mod walk;

use core::ffi::CStr;
pub use registers::Registers;
pub use walk::Unwinder;

/// What the walk needs from the process around it.
pub trait Host {
    /// Whether the eight bytes at `address` can be read.
    fn is_readable(&self, address: usize) -> bool;

    /// Calls `each` with the text of /proc/self/maps, piece by piece; false if it cannot be had.
    fn read_maps(&self, each: &mut dyn FnMut(&[u8])) -> bool;

    /// Calls `work` with what reads the file `name`, if it can be opened; otherwise not. This default opens none.
    fn read_file(&self, name: &CStr, work: &mut dyn FnMut(&ReadAt)) {
        let _ = (name, work);
    }
}

/// Fills a buffer from a place on; false if that cannot be read.
pub type ReadAt<'a> = dyn Fn(usize, &mut [u8]) -> bool + 'a;

/// Pages are at least that long: what is readable at one place is, as far as the next multiple.
const PAGE: usize = 4096;

/// The word at `address`, if it can be read.
fn word_at(host: &impl Host, address: usize) -> Option<usize> {
    if !address.is_multiple_of(size_of::<usize>()) || !host.is_readable(address) {
        return None;
    }
    // SAFETY: the kernel says that it can be read; it is aligned. Another thread may write it: volatile.
    Some(unsafe { (address as *const usize).read_volatile() })
}
