//! What a face asks and changes while the process runs.

use super::access::with_access;
use super::conf::Id;
use super::hooks::hooks;
use super::instance::HEAP;
use super::{in_force, mechanisms};
use crate::os::Os;
use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, Ordering};
use ebb_stats::mechanism::CPYTHON;

/// Calls of realloc with size 0 and a block. Relaxed: a figure.
static ZERO_REALLOCS: AtomicU64 = AtomicU64::new(0);

/// Counts a realloc of a block to size 0.
pub fn note_zero_realloc() {
    ZERO_REALLOCS.fetch_add(1, Ordering::Relaxed);
}

/// What a realloc of a block to size 0 does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroRealloc {
    /// Frees the block and returns null.
    Free,
    /// Makes the block as small as one can be.
    Alloc,
    /// Ends the process.
    Abort,
}

/// What the settings say of a realloc to size 0.
pub fn zero_realloc() -> ZeroRealloc {
    match in_force::number(Id::ZeroRealloc) {
        0 => ZeroRealloc::Free,
        1 => ZeroRealloc::Alloc,
        _ => ZeroRealloc::Abort,
    }
}

/// How many of those there were.
pub fn zero_reallocs() -> u64 {
    ZERO_REALLOCS.load(Ordering::Relaxed)
}

/// Makes sure that the settings have been read: a program may ask for something before it allocates.
pub fn make_ready() {
    with_access(|_| ());
}

/// Whether the settings let CPython's objects come from here.
pub fn serves_cpython() -> bool {
    make_ready();
    in_force::is(Id::Python)
}

/// CPython's objects come from here. If no other thread allocates meanwhile, they get slabs that begin where its
/// collector reads them best.
pub fn note_cpython(is_single_threaded: bool) {
    mechanisms::note(CPYTHON, true);
    if is_single_threaded {
        HEAP.lead_slabs();
    }
}

/// The program asks for huge pages at `address`, wherever that is: in the heap, the wish ends with the block.
pub fn wants_huge_pages(address: usize, bytes: usize) {
    HEAP.note_huge_pages(address, bytes);
}

/// Hands a text to the program's `malloc_message`, or writes it to standard error.
pub fn message(text: &CStr) {
    if !(hooks().message)(text) {
        HEAP.os.write_stderr(text.to_bytes());
    }
}
