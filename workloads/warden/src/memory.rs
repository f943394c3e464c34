//! The memory of this process, for a trial: bytes in use, and a trim. Neither is asked in production.

/// Bytes in use by the count of the allocator in charge; `None` without such a count.
#[cfg(feature = "ebbmalloc")]
pub fn live_bytes() -> Option<u64> {
    crate::GLOBAL.stats().map(|stats| stats.live_bytes)
}

/// Bytes in use by the count of the allocator in charge; `None` without such a count.
#[cfg(feature = "jemalloc")]
pub fn live_bytes() -> Option<u64> {
    tikv_jemalloc_ctl::epoch::advance().ok()?;
    let bytes = tikv_jemalloc_ctl::stats::allocated::read().ok()?;
    u64::try_from(bytes).ok()
}

/// Bytes in use by the count of the allocator in charge; `None` without such a count.
///
/// Under a preloaded allocator glibc's own count goes on telling of an idle heap: it is believed only
/// where malloc is glibc's too.
#[cfg(not(any(feature = "ebbmalloc", feature = "jemalloc")))]
pub fn live_bytes() -> Option<u64> {
    let malloc = object_of(c"malloc")?;
    if object_of(c"mallinfo2") != Some(malloc) {
        return None;
    }
    // SAFETY: mallinfo2 takes nothing and locks what it reads.
    let info = unsafe { libc::mallinfo2() };
    Some((info.uordblks + info.hblkhd) as u64)
}

/// Where the object that defines a symbol is loaded.
#[cfg(not(any(feature = "ebbmalloc", feature = "jemalloc")))]
fn object_of(symbol: &std::ffi::CStr) -> Option<usize> {
    // SAFETY: the name ends with a zero, and the default scope needs no handle.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()) };
    // SAFETY: zeros are a valid Dl_info, whose fields are pointers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is ours to write to.
    let found = unsafe { libc::dladdr(address, &mut info) };
    (!address.is_null() && found != 0).then_some(info.dli_fbase as usize)
}

/// malloc_trim(0) of the C library; whether it gave anything back.
pub fn trim() -> bool {
    // SAFETY: malloc_trim may be called at any time.
    unsafe { libc::malloc_trim(0) != 0 }
}
