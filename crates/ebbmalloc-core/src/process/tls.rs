//! The one word of thread-local storage: initial-exec, at a fixed offset from the thread register.
//!
//! Stable Rust has no `#[thread_local]`, and `thread_local!` needs std and may call
//! `__tls_get_addr`, which allocates. So the word is a `.tbss` symbol of 8 bytes and its offset is
//! read through the global offset table; in an executable the linker turns that into a constant.
//! It is zero in a new thread, and as long as the word lives, the thread does.
//!
//! Reading it is safe in a signal handler and before libc is relocated. It must not be read in the
//! purger's thread, whose thread block is not libc's.

use core::arch::{asm, global_asm};

global_asm!(
    ".pushsection .tbss.ebbmalloc_thread_word,\"awT\",@nobits",
    ".p2align 3",
    ".hidden ebbmalloc_thread_word",
    ".globl ebbmalloc_thread_word",
    ".type ebbmalloc_thread_word, @object",
    ".size ebbmalloc_thread_word, 8",
    "ebbmalloc_thread_word:",
    ".zero 8",
    ".popsection",
);

/// The calling thread's word.
///
/// # Safety
/// The thread's block is libc's: not the purger's thread.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub unsafe fn thread_word_load() -> *mut u8 {
    let word: *mut u8;
    // SAFETY: fs points to libc's thread block, and the offset is within the thread's static TLS.
    unsafe {
        asm!(
            "mov {word}, qword ptr [rip + ebbmalloc_thread_word@GOTTPOFF]",
            "mov {word}, qword ptr fs:[{word}]",
            word = out(reg) word,
            options(nostack, preserves_flags, readonly),
        );
    }
    word
}

/// Sets the calling thread's word.
///
/// # Safety
/// As for [`thread_word_load`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub unsafe fn thread_word_store(word: *mut u8) {
    // SAFETY: fs points to libc's thread block, and the offset is within the thread's static TLS.
    unsafe {
        asm!(
            "mov {offset}, qword ptr [rip + ebbmalloc_thread_word@GOTTPOFF]",
            "mov qword ptr fs:[{offset}], {word}",
            offset = out(reg) _,
            word = in(reg) word,
            options(nostack, preserves_flags),
        );
    }
}

/// The calling thread's word.
///
/// # Safety
/// The thread's block is libc's: not the purger's thread.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub unsafe fn thread_word_load() -> *mut u8 {
    let word: *mut u8;
    // SAFETY: tpidr_el0 points to libc's thread block, and the offset is within static TLS.
    unsafe {
        asm!(
            "adrp {word}, :gottprel:ebbmalloc_thread_word",
            "ldr {word}, [{word}, :gottprel_lo12:ebbmalloc_thread_word]",
            "mrs {base}, tpidr_el0",
            "ldr {word}, [{base}, {word}]",
            base = out(reg) _,
            word = out(reg) word,
            options(nostack, preserves_flags, readonly),
        );
    }
    word
}

/// Sets the calling thread's word.
///
/// # Safety
/// As for [`thread_word_load`].
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub unsafe fn thread_word_store(word: *mut u8) {
    // SAFETY: tpidr_el0 points to libc's thread block, and the offset is within static TLS.
    unsafe {
        asm!(
            "adrp {offset}, :gottprel:ebbmalloc_thread_word",
            "ldr {offset}, [{offset}, :gottprel_lo12:ebbmalloc_thread_word]",
            "mrs {base}, tpidr_el0",
            "str {word}, [{base}, {offset}]",
            base = out(reg) _,
            offset = out(reg) _,
            word = in(reg) word,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_its_own_word() {
        let check = |value: usize| {
            // SAFETY: threads of std have libc's thread block, and nothing else uses the word here.
            unsafe {
                assert!(thread_word_load().is_null());
                thread_word_store(value as *mut u8);
                std::thread::yield_now();
                assert_eq!(thread_word_load() as usize, value);
            }
        };
        let threads: Vec<_> = (1..9)
            .map(|n| std::thread::spawn(move || check(n)))
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    }
}
