//! The preload object's own memcpy, memmove, memset, memcmp, bcmp and strlen, for compiled code.
//!
//! Undefined they would be libc's, which may not be relocated yet; exported they would replace the
//! program's. So the names are hidden ones of the functions below. Those must not be turned into
//! calls of themselves: each loop holds an empty `asm!`, so that the compiler does not recognise it
//! as a copy or a fill.

use core::arch::asm;
use core::ffi::c_int;

/// Sixteen bytes, moved as a whole.
type Chunk = u128;
const CHUNK: usize = size_of::<Chunk>();
/// A chunk in a register that holds one.
#[cfg(target_arch = "x86_64")]
type Vector = core::arch::x86_64::__m128i;
#[cfg(not(target_arch = "x86_64"))]
type Vector = Chunk;
/// A cache line, filled by four instructions.
type Line = [Vector; 4];

/// From here on one string instruction is faster than a loop of chunks; its start costs ~35 cycles.
#[cfg(target_arch = "x86_64")]
const STRING_BYTES: usize = 512;

/// The same for a fill, whose loop writes a line at a time.
#[cfg(target_arch = "x86_64")]
const STRING_FILL: usize = 2048;

hidden_names! {
    "memcpy" is copy,
    "memmove" is copy_overlapping,
    "memset" is fill,
    "memcmp" is compare,
    "bcmp" is compare,
    "strlen" is length,
}

/// Keeps the compiler from seeing through a loop.
#[inline(always)]
fn opaque() {
    // SAFETY: no instruction.
    unsafe { asm!("", options(nostack, preserves_flags)) };
}

/// # Safety
/// `from` is readable, `to` writable for as long as a `T`.
#[inline(always)]
unsafe fn move_one<T>(to: *mut u8, from: *const u8) {
    // SAFETY: both ends are valid for a `T` (fn contract), and the accesses are unaligned.
    unsafe { to.cast::<T>().write_unaligned(from.cast::<T>().read_unaligned()) };
}

/// Copies fewer than [`CHUNK`] bytes; all are read before any is written.
///
/// # Safety
/// As for [`copy_overlapping`].
#[inline(always)]
unsafe fn copy_few(to: *mut u8, from: *const u8, bytes: usize) {
    /// The first and the last `T` of the bytes, which meet or overlap.
    unsafe fn both_ends<T>(to: *mut u8, from: *const u8, bytes: usize) {
        let end = bytes - size_of::<T>();
        // SAFETY: there are between one and two times as many bytes as a `T` has.
        unsafe {
            let first = from.cast::<T>().read_unaligned();
            let last = from.add(end).cast::<T>().read_unaligned();
            to.cast::<T>().write_unaligned(first);
            to.add(end).cast::<T>().write_unaligned(last);
        }
    }
    // SAFETY: both ranges are valid for `bytes` (fn contract), and each arm stays within them.
    unsafe {
        match bytes {
            0 => {}
            1 => move_one::<u8>(to, from),
            2..=3 => both_ends::<u16>(to, from, bytes),
            4..=7 => both_ends::<u32>(to, from, bytes),
            _ => both_ends::<u64>(to, from, bytes),
        }
    }
}

/// `memcpy`; right for overlapping ranges too if `to` is the lower one.
///
/// # Safety
/// `from` is readable and `to` writable for `bytes`.
pub unsafe extern "C" fn copy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
    if bytes < CHUNK {
        // SAFETY: both ranges are valid for `bytes` (fn contract), which are fewer than `CHUNK`.
        unsafe { copy_few(to, from, bytes) };
        return to;
    }
    #[cfg(target_arch = "x86_64")]
    if bytes >= STRING_BYTES {
        // SAFETY: both ranges are valid for `bytes` (fn contract); the direction flag is clear in every function.
        unsafe {
            asm!(
                "rep movsb",
                inout("rcx") bytes => _,
                inout("rdi") to => _,
                inout("rsi") from => _,
                options(nostack, preserves_flags),
            );
        }
        return to;
    }
    let end = bytes - CHUNK;
    // SAFETY: every chunk lies within the bytes. The last one is read first, since the loop may
    // write over it where the ranges overlap.
    unsafe {
        let last = from.add(end).cast::<Chunk>().read_unaligned();
        let mut at = 0;
        while at < end {
            move_one::<Chunk>(to.add(at), from.add(at));
            at += CHUNK;
            opaque();
        }
        to.add(end).cast::<Chunk>().write_unaligned(last);
    }
    to
}

/// `memmove`.
///
/// # Safety
/// `from` is readable and `to` writable for `bytes`.
pub unsafe extern "C" fn copy_overlapping(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
    if bytes < CHUNK || (to as usize).wrapping_sub(from as usize) >= bytes {
        // SAFETY: both ranges are valid for `bytes` (fn contract); `copy` reads few bytes before it writes, and
        // longer ones lie apart or `to` is the lower.
        return unsafe { copy(to, from, bytes) };
    }
    // SAFETY: every chunk lies within the bytes. `to` is the higher one, so from the end; the first
    // chunk is read first, since the loop may write over it.
    unsafe {
        let first = from.cast::<Chunk>().read_unaligned();
        let mut rest = bytes;
        while rest > CHUNK {
            rest -= CHUNK;
            move_one::<Chunk>(to.add(rest), from.add(rest));
            opaque();
        }
        to.cast::<Chunk>().write_unaligned(first);
    }
    to
}

/// `memset`.
///
/// # Safety
/// `to` is writable for `bytes`.
pub unsafe extern "C" fn fill(to: *mut u8, value: c_int, bytes: usize) -> *mut u8 {
    let value = value as u8;
    // Without an array, which an unoptimised build would fill by this very function.
    let chunk = Chunk::from(value) * (Chunk::MAX / 0xff);
    let mut at = 0;
    if let Some(end) = bytes.checked_sub(size_of::<Line>()) {
        // SAFETY: `to` is writable for `bytes` (fn contract), and each line lies within them; the last one ends with them. The
        // direction flag is clear in every function. A vector is a chunk.
        unsafe {
            let line = [core::mem::transmute::<Chunk, Vector>(chunk); 4];
            #[cfg(target_arch = "x86_64")]
            if bytes >= STRING_FILL {
                asm!(
                    "rep stosb",
                    inout("rcx") end => _,
                    inout("rdi") to => _,
                    in("al") value,
                    options(nostack, preserves_flags),
                );
                at = end;
            }
            while at < end {
                to.add(at).cast::<Line>().write_unaligned(line);
                at += size_of::<Line>();
                opaque();
            }
            to.add(end).cast::<Line>().write_unaligned(line);
        }
        return to;
    }
    // SAFETY: each chunk, and each byte, lies within the bytes.
    unsafe {
        while at + CHUNK <= bytes {
            to.add(at).cast::<Chunk>().write_unaligned(chunk);
            at += CHUNK;
            opaque();
        }
        while at < bytes {
            to.add(at).write(value);
            at += 1;
            opaque();
        }
    }
    to
}

/// `memcmp`, and `bcmp`, which asks for less.
///
/// # Safety
/// Both are readable for `bytes`.
pub unsafe extern "C" fn compare(left: *const u8, right: *const u8, bytes: usize) -> c_int {
    let mut at = 0;
    while at < bytes {
        // SAFETY: the byte lies within the bytes.
        let (l, r) = unsafe { (left.add(at).read(), right.add(at).read()) };
        if l != r {
            return c_int::from(l) - c_int::from(r);
        }
        at += 1;
        opaque();
    }
    0
}

/// `strlen`.
///
/// # Safety
/// `text` is a C string.
pub unsafe extern "C" fn length(text: *const u8) -> usize {
    let mut bytes = 0;
    // SAFETY: the string's end is not passed.
    while unsafe { text.add(bytes).read() } != 0 {
        bytes += 1;
        opaque();
    }
    bytes
}
