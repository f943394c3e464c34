//! The hint by which redis defragments its values: a function that its own copy of jemalloc adds.

use core::ffi::{c_int, c_void};
use ebbmalloc_core::runtime::face::HEAP;

/// 1 if the block should be moved: by a new block of `mallocx` without a cache, a copy, and a free without a
/// cache.
///
/// # Safety
/// `block` is a live block of this allocator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn je_get_defrag_hint(block: *mut c_void) -> c_int {
    HEAP.utilization(block.addr()).is_sparse().into()
}
