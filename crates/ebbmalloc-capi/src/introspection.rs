//! What `malloc.h` offers to ask and to tune: trim, statistics, options.
//!
//! The figures are ebbmalloc's own. glibc's words are mapped so that "in use" and "free" keep their
//! meaning: `uordblks` is what the program holds, `fordblks` the free memory that is still resident (in
//! caches, on free pages and next to live blocks), `arena` their sum, `keepcost` what `malloc_trim` returns: free
//! pages, to which those come whose last slots lie in caches.

use core::ffi::{c_int, c_void};
use ebbmalloc_core::base::exact::usize_of;

use ebb_stats::Snapshot;
use ebbmalloc_core::os::Os;

use crate::KERNEL;
use crate::errno::EINVAL;
use crate::info_xml;
use ebbmalloc_core::runtime;

/// `struct mallinfo2` of glibc.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Mallinfo2 {
    pub arena: usize,
    pub ordblks: usize,
    pub smblks: usize,
    pub hblks: usize,
    pub hblkhd: usize,
    pub usmblks: usize,
    pub fsmblks: usize,
    pub uordblks: usize,
    pub fordblks: usize,
    pub keepcost: usize,
}

/// `struct mallinfo` of glibc; figures beyond `INT_MAX` are shown as `INT_MAX`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Mallinfo {
    pub arena: c_int,
    pub ordblks: c_int,
    pub smblks: c_int,
    pub hblks: c_int,
    pub hblkhd: c_int,
    pub usmblks: c_int,
    pub fsmblks: c_int,
    pub uordblks: c_int,
    pub fordblks: c_int,
    pub keepcost: c_int,
}

impl From<Snapshot> for Mallinfo2 {
    fn from(stats: Snapshot) -> Self {
        let free_bytes = stats.cached_bytes + stats.idle_bytes;
        Self {
            arena: usize_of(stats.live_bytes + free_bytes),
            uordblks: usize_of(stats.live_bytes),
            fordblks: usize_of(free_bytes),
            keepcost: usize_of(stats.returnable_bytes),
            ..Self::default()
        }
    }
}

/// Figures of the whole heap.
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo2() -> Mallinfo2 {
    runtime::stats().into()
}

/// Figures of the whole heap, in the old, narrow structure.
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo() -> Mallinfo {
    let wide = mallinfo2();
    let narrow = |figure: usize| c_int::try_from(figure).unwrap_or(c_int::MAX);
    Mallinfo {
        arena: narrow(wide.arena),
        uordblks: narrow(wide.uordblks),
        fordblks: narrow(wide.fordblks),
        keepcost: narrow(wide.keepcost),
        ..Mallinfo::default()
    }
}

/// Returns all free pages to the kernel, other threads' caches included; `pad` is not needed. 1 if
/// any memory was returned, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_trim(_pad: usize) -> c_int {
    runtime::trim().into()
}

/// Accepts glibc's options and does nothing: ebbmalloc has none of the mechanisms that they tune. 1
/// for an option that glibc knows, 0 for any other.
#[unsafe(no_mangle)]
pub extern "C" fn mallopt(option: c_int, _value: c_int) -> c_int {
    /// M_ARENA_MAX up to M_TRIM_THRESHOLD, and M_MXFAST up to M_KEEP.
    const KNOWN: [core::ops::RangeInclusive<c_int>; 2] = [-8..=-1, 1..=4];
    KNOWN.iter().any(|range| range.contains(&option)).into()
}

/// Writes statistics to standard error.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_stats() {
    runtime::write_stats(&mut |text| KERNEL.write_stderr(text));
}

/// Writes statistics as XML, in the shape that glibc's has, to a `FILE`. 0, or EINVAL where
/// `options` is not 0 or the stream does not take it.
///
/// # Safety
/// `stream` is an open `FILE *` of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_info(options: c_int, stream: *mut c_void) -> c_int {
    if options != 0 {
        return EINVAL;
    }
    // SAFETY: the stream is open (fn contract).
    let written = unsafe { info_xml::write(&runtime::stats(), stream) };
    if written { 0 } else { EINVAL }
}
