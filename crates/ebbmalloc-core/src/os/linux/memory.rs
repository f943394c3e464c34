//! Address space: reserve, commit, release, and the moving of pages.

use core::ptr::NonNull;

use super::arch::nr;
use super::call::{Errno, call};
use super::{HugePages, Linux, Os, OsError};

pub const PROT_NONE: usize = 0;
/// PROT_READ | PROT_WRITE.
pub const PROT_READ_WRITE: usize = 3;
const MAP_PRIVATE: usize = 0x02;
pub const MAP_FIXED: usize = 0x10;
const MAP_ANONYMOUS: usize = 0x20;
const MAP_NORESERVE: usize = 0x4000;

/// Maps `bytes` of private anonymous memory, readable and writable, anywhere.
pub fn map_anonymous(bytes: usize) -> Result<usize, Errno> {
    // SAFETY: a new mapping at an address of the kernel's choice replaces no other mapping.
    unsafe { call(nr::MMAP, [0, bytes, PROT_READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, usize::MAX, 0]) }
}

/// Maps `bytes` of the file after `descriptor`, shared, readable and writable.
pub fn map_shared(descriptor: usize, bytes: usize) -> Result<usize, Errno> {
    const MAP_SHARED: usize = 0x01;
    // SAFETY: a new mapping at an address of the kernel's choice replaces no other mapping.
    unsafe { call(nr::MMAP, [0, bytes, PROT_READ_WRITE, MAP_SHARED, descriptor, 0]) }
}

/// Maps anonymous memory at `start` with these rights and further `flags`; the address it got.
///
/// # Safety
/// With MAP_FIXED no thread uses what was in the range.
pub unsafe fn map_at(start: usize, bytes: usize, rights: usize, flags: usize) -> Result<usize, Errno> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags;
    // SAFETY: a new mapping, or with MAP_FIXED one over a range that no thread uses (fn contract).
    unsafe { call(nr::MMAP, [start, bytes, rights, flags, usize::MAX, 0]) }
}

/// Maps inaccessible, uncharged address space.
fn map_reserved(bytes: usize) -> Result<usize, Errno> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice replaces no other mapping.
    unsafe { call(nr::MMAP, [0, bytes, PROT_NONE, flags, usize::MAX, 0]) }
}

/// A reservation longer than this leaves [`ROOM_ABOVE`]. What is shorter does no harm where it lies: a
/// hole of 8 GiB between libraries costs nothing (docs/decisions/0034-room-above.md).
const FAR: usize = 1 << 30;
/// Address space left free above a long reservation. The kernel maps downwards, so that libraries
/// loaded later come to lie here, next to those loaded before, and not below the reservation: a loop
/// of calls between libraries a terabyte apart was 4 % slower.
const ROOM_ABOVE: usize = 64 << 30;

/// [`Os::reserve`]; with `name` the range gets one.
pub fn reserve(bytes: usize, align: usize, name: bool) -> Result<NonNull<u8>, OsError> {
    debug_assert!(align.is_power_of_two() && bytes > 0);
    // Room is good to have, no need: a limit on address space may have none left for it.
    let start = match bytes > FAR {
        true => reserve_below(bytes, align, ROOM_ABOVE).or_else(|_| reserve_below(bytes, align, 0)),
        false => reserve_below(bytes, align, 0),
    }?;
    if name {
        set_name(start, bytes);
    }
    NonNull::new(start as *mut u8).ok_or(OsError::OutOfMemory)
}

/// Reserves address space with `room` bytes free above it.
fn reserve_below(bytes: usize, align: usize, room: usize) -> Result<usize, OsError> {
    let wanted = bytes.checked_add(room).ok_or(OsError::OutOfMemory)?;
    // The plain size first: since 6.7 the kernel aligns what spans huge pages by itself, and under a
    // limit on address space the surplus below might be refused.
    let start = map_reserved(wanted)?;
    if start & (align - 1) == 0 {
        // SAFETY: the end of the mapping made just now, which no thread knows of.
        unsafe { release(start + bytes, room) };
        return Ok(start);
    }
    // SAFETY: this is the mapping made just now, which no thread knows of.
    unsafe { release(start, wanted) };
    let mapped_bytes = wanted.checked_add(align).ok_or(OsError::OutOfMemory)?;
    let mapped = map_reserved(mapped_bytes)?;
    let start = mapped.next_multiple_of(align);
    let (before, after) = (start - mapped, mapped + mapped_bytes - (start + bytes));
    // SAFETY: both ends belong to the mapping made just now and lie outside of what we return.
    unsafe {
        release(mapped, before);
        release(start + bytes, after);
    }
    Ok(start)
}

const MADV_HUGEPAGE: usize = 14;
const MADV_NOHUGEPAGE: usize = 15;

impl Linux {
    /// The system call `madvise`.
    ///
    /// # Safety
    /// The contents that the advice throws away are not needed.
    pub unsafe fn madvise(&self, start: usize, bytes: usize, advice: i32) -> Result<(), Errno> {
        // SAFETY: the contents that the advice throws away are not needed (fn contract).
        unsafe { call(nr::MADVISE, [start, bytes, (advice as isize).cast_unsigned()]) }.map(|_| ())
    }

    /// Whether this advice asks for huge pages.
    pub fn wants_huge_pages(advice: i32) -> bool {
        (advice as isize).cast_unsigned() == MADV_HUGEPAGE
    }
}

/// [`Os::settle_huge_pages`], by the number of a [`HugePages`].
pub fn settle_huge_pages(setting: u8, start: usize, bytes: usize) {
    let advice = if setting == HugePages::Refused as u8 || setting == HugePages::Asked as u8 {
        MADV_NOHUGEPAGE
    } else if setting == HugePages::Wanted as u8 {
        MADV_HUGEPAGE
    } else {
        return;
    };
    // SAFETY: the advice has no effect on the contents of memory.
    let _ = unsafe { call(nr::MADVISE, [start, bytes, advice]) };
}

/// [`Os::ask_for_huge_pages`].
pub fn ask_for_huge_pages(start: usize, bytes: usize) -> bool {
    // SAFETY: the advice has no effect on the contents of memory.
    unsafe { call(nr::MADVISE, [start, bytes, MADV_HUGEPAGE]) }.is_ok()
}

/// [`Os::split_huge_page`]: the kernel splits a huge page if only a part of it gets the advice.
pub fn split_huge_page(page: usize, page_bytes: usize) {
    const MADV_COLD: usize = 20;
    // SAFETY: the advice has no effect on the contents of memory.
    let _ = unsafe { call(nr::MADVISE, [page, page_bytes, MADV_COLD]) };
}

/// [`Os::is_resident`].
pub fn is_resident(page: usize) -> bool {
    let mut found = 0u8;
    // SAFETY: one byte for one page.
    let asked = unsafe { call(nr::MINCORE, [page, 1, &raw mut found as usize]) };
    asked.is_ok() && found & 1 != 0
}

/// Names the range in /proc/PID/maps; best effort, kernels before 5.17 know no names.
fn set_name(start: usize, bytes: usize) {
    const PR_SET_VMA: usize = 0x53564d41;
    const PR_SET_VMA_ANON_NAME: usize = 0;
    let name = c"ebbmalloc".as_ptr() as usize;
    // SAFETY: the kernel copies the name, and a name has no effect on memory.
    let _ = unsafe { call(nr::PRCTL, [PR_SET_VMA, PR_SET_VMA_ANON_NAME, start, bytes, name]) };
}

/// [`Os::commit`].
///
/// # Safety
/// The range lies in a reservation.
pub unsafe fn commit(start: usize, bytes: usize) -> Result<(), OsError> {
    // SAFETY: more rights on memory that is the allocator's own.
    unsafe { call(nr::MPROTECT, [start, bytes, PROT_READ_WRITE]) }?;
    Ok(())
}

/// Takes all rights from a range, so that touching it faults.
///
/// # Safety
/// No thread touches the range any more.
pub unsafe fn protect(start: usize, bytes: usize) -> Result<(), Errno> {
    // SAFETY: no thread touches the range any more (fn contract).
    unsafe { call(nr::MPROTECT, [start, bytes, PROT_NONE]) }.map(|_| ())
}

/// [`Os::release`]; nothing for an empty range.
///
/// # Safety
/// The range is the allocator's own and no thread uses it any more.
pub unsafe fn release(start: usize, bytes: usize) {
    if bytes > 0 {
        // A refusal (too many mappings) leaves the range reserved, which is harmless.
        // SAFETY: the range is ours and no thread uses it any more (fn contract).
        let _ = unsafe { call(nr::MUNMAP, [start, bytes]) };
    }
}

/// Maps a range of the allocator's own anew, committed and empty.
///
/// # Safety
/// No thread uses its contents.
pub unsafe fn map_anew(start: usize, bytes: usize) -> Result<(), Errno> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    // SAFETY: the range is ours, and no thread uses its contents (fn contract).
    unsafe { call(nr::MMAP, [start, bytes, PROT_READ_WRITE, flags, usize::MAX, 0]) }.map(|_| ())
}

/// [`Os::move_pages`].
///
/// # Safety
/// Both ranges are committed memory of the allocator, do not overlap, and no other thread uses them.
pub unsafe fn move_pages(os: &Linux, from: usize, to: usize, bytes: usize) -> Result<(), OsError> {
    // MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP; the last since Linux 5.7.
    const MOVE_AND_KEEP: usize = 1 | 2 | 4;
    // SAFETY: both ranges are ours to change.
    match unsafe { call(nr::MREMAP, [from, bytes, bytes, MOVE_AND_KEEP, to]) } {
        Ok(_) => Ok(()),
        Err(errno) => {
            // The kernel may have unmapped `to` before it gave up: map it anew, or the next
            // mapping of anybody could land in our reservation.
            // SAFETY: `to` is ours, and no thread uses its contents.
            if unsafe { map_anew(to, bytes) }.is_err() {
                os.write_stderr(b"ebbmalloc: the kernel unmapped a block and will not map it again\n");
                os.abort();
            }
            Err(errno.into())
        }
    }
}
