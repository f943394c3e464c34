//! The two words of thread-local storage: initial-exec, at a fixed offset from the thread register. The
//! first is the thread's state and cache, the second leads to its observer, if it has one.
//!
//! Stable Rust has no `#[thread_local]`, and `thread_local!` needs std and may call
//! `__tls_get_addr`, which allocates. So the words are a `.tbss` symbol of 16 bytes and its offset is
//! read through the global offset table; in an executable the linker turns that into a constant.
//! It is zero in a new thread, and as long as the word lives, the thread does.
//!
//! Reading it is safe in a signal handler and before libc is relocated. It must not be read in the
//! purger's thread, whose thread block is not libc's.
//!
//! A resolver of an indirect function (IFUNC) in another library may allocate before the loader has
//! relocated this object. The offset reads as zero then. It is therefore the offset of a place `BEFORE` bytes before the
//! word: with an offset of zero the same instructions read a field in the thread block of glibc (the one libc that knows
//! such functions) that no thread uses. It is zero, which says that the thread is new, and the slow path asks
//! [`is_relocated`].

use core::arch::{asm, global_asm};

use crate::base::sync::{AtomicU32, Ordering};

global_asm!(
    ".pushsection .tbss.ebbmalloc_thread_word,\"awT\",@nobits",
    ".p2align 3",
    ".zero {room}",
    ".hidden ebbmalloc_thread_word",
    ".globl ebbmalloc_thread_word",
    ".type ebbmalloc_thread_word, @object",
    ".size ebbmalloc_thread_word, 16",
    "ebbmalloc_thread_word:",
    ".zero 16",
    ".popsection",
    room = const ROOM,
);

/// In the middle of the unused field, which is at 128 to 640.
#[cfg(target_arch = "x86_64")]
const BEFORE: usize = 384;
/// The block's second word, `private`. The third is the program's first variable, so [`observer_slot`] has to ask.
#[cfg(target_arch = "aarch64")]
const BEFORE: usize = 8;
/// Bytes between the start of this object's thread-local storage and the word. On aarch64 the linker leaves the distance
/// from that start in the entry of the table, so the place before the word is the start.
const ROOM: usize = if cfg!(target_arch = "aarch64") { BEFORE } else { 0 };

global_asm!(
    ".hidden ebbmalloc_before_word",
    ".globl ebbmalloc_before_word",
    ".type ebbmalloc_before_word, @object",
    ".set ebbmalloc_before_word, ebbmalloc_thread_word - {before}",
    before = const BEFORE,
);

/// A number of the calling thread, which a child's one thread has from its parent: where libc's thread block is.
pub fn thread_number() -> usize {
    let number;
    // SAFETY: libc keeps the block's address at its beginning, to which fs points.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("mov {}, qword ptr fs:[0]", out(reg) number, options(nostack, preserves_flags, readonly));
    }
    // SAFETY: reads a register.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("mrs {}, tpidr_el0", out(reg) number, options(nostack, preserves_flags, nomem));
    }
    number
}

/// Whether the dynamic loader has filled in this object's addresses; in an executable always.
#[inline(always)]
pub fn is_relocated() -> bool {
    let offset: usize;
    // SAFETY: reads an entry of the global offset table, or a constant in an executable.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!(
            "mov {offset}, qword ptr [rip + ebbmalloc_before_word@GOTTPOFF]",
            offset = out(reg) offset,
            options(nostack, preserves_flags, readonly),
        );
        #[cfg(target_arch = "aarch64")]
        asm!(
            "adrp {offset}, :gottprel:ebbmalloc_before_word",
            "ldr {offset}, [{offset}, :gottprel_lo12:ebbmalloc_before_word]",
            offset = out(reg) offset,
            options(nostack, preserves_flags, readonly),
        );
    }
    offset != 0
}

/// The word of the calling thread that lies `AT` bytes after the first.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn load<const AT: usize>() -> *mut u8 {
    let word: *mut u8;
    // SAFETY: fs points to libc's thread block, and the offset is within the thread's static TLS.
    unsafe {
        asm!(
            "mov {word}, qword ptr [rip + ebbmalloc_before_word@GOTTPOFF]",
            "mov {word}, qword ptr fs:[{word} + {at}]",
            word = out(reg) word,
            at = const BEFORE + AT,
            options(nostack, preserves_flags, readonly),
        );
    }
    word
}

/// Sets the word of the calling thread that lies `AT` bytes after the first.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn store<const AT: usize>(word: *mut u8) {
    // SAFETY: the offset is the word's own in every thread's block, as in `load`; no other memory is touched.
    unsafe {
        asm!(
            "mov {offset}, qword ptr [rip + ebbmalloc_before_word@GOTTPOFF]",
            "mov qword ptr fs:[{offset} + {at}], {word}",
            offset = out(reg) _,
            word = in(reg) word,
            at = const BEFORE + AT,
            options(nostack, preserves_flags),
        );
    }
}

/// `base` with the calling thread's word added to it, in one instruction less than from the word.
///
/// # Safety
/// The thread's block is libc's: not the purger's thread.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub unsafe fn thread_word_added_to(base: *const u8) -> *const u8 {
    let mut sum = base;
    // SAFETY: the offset is the word's own in every thread's block, as in `load`; no other memory is touched.
    unsafe {
        asm!(
            "mov {offset}, qword ptr [rip + ebbmalloc_before_word@GOTTPOFF]",
            "add {sum}, qword ptr fs:[{offset} + {at}]",
            offset = out(reg) _,
            sum = inout(reg) sum,
            at = const BEFORE,
            options(nostack, readonly),
        );
    }
    sum
}

/// The word of the calling thread that lies `AT` bytes after the first.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
unsafe fn load<const AT: usize>() -> *mut u8 {
    let word: *mut u8;
    // SAFETY: tpidr_el0 points to libc's thread block, and the offset is within static TLS.
    unsafe {
        asm!(
            "adrp {word}, :gottprel:ebbmalloc_before_word",
            "ldr {word}, [{word}, :gottprel_lo12:ebbmalloc_before_word]",
            "mrs {base}, tpidr_el0",
            "add {word}, {word}, {base}",
            "ldr {word}, [{word}, #{at}]",
            base = out(reg) _,
            word = out(reg) word,
            at = const BEFORE + AT,
            options(nostack, preserves_flags, readonly),
        );
    }
    word
}

/// Sets the word of the calling thread that lies `AT` bytes after the first.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
unsafe fn store<const AT: usize>(word: *mut u8) {
    // SAFETY: the offset is the word's own in every thread's block, as in `load`; no other memory is touched.
    unsafe {
        asm!(
            "adrp {offset}, :gottprel:ebbmalloc_before_word",
            "ldr {offset}, [{offset}, :gottprel_lo12:ebbmalloc_before_word]",
            "mrs {base}, tpidr_el0",
            "add {offset}, {offset}, {base}",
            "str {word}, [{offset}, #{at}]",
            base = out(reg) _,
            offset = out(reg) _,
            word = in(reg) word,
            at = const BEFORE + AT,
            options(nostack, preserves_flags),
        );
    }
}

/// `base` with the calling thread's word added to it.
///
/// # Safety
/// The thread's block is libc's: not the purger's thread.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub unsafe fn thread_word_added_to(base: *const u8) -> *const u8 {
    // SAFETY: the thread's block is libc's (contract).
    base.wrapping_add(unsafe { load::<0>() } as usize)
}

/// Sets the calling thread's word.
///
/// # Safety
/// As for [`thread_word_added_to`].
#[inline(always)]
pub unsafe fn set_thread_word(word: *mut u8) {
    // SAFETY: the thread's block is libc's (contract of `thread_word_added_to`), so it has both words.
    unsafe { store::<0>(word) };
}

/// The calling thread's second word.
///
/// # Safety
/// As for [`thread_word_added_to`].
#[inline(always)]
pub unsafe fn observer_slot() -> *mut u8 {
    if cfg!(target_arch = "aarch64") && !is_relocated() {
        return core::ptr::null_mut();
    }
    // SAFETY: the thread's block is libc's (contract of `thread_word_added_to`), so it has both words.
    unsafe { load::<8>() }
}

/// Sets the calling thread's second word.
///
/// # Safety
/// As for [`thread_word_added_to`].
pub unsafe fn set_observer_slot(word: *mut u8) {
    // SAFETY: the thread's block is libc's (contract of `thread_word_added_to`), so it has both words.
    unsafe { store::<8>(word) };
}

/// A key of libc's thread-specific data, made by the first thread that needs it: how libc is asked
/// to tell the end of a thread.
#[derive(Debug)]
pub struct ThreadKey {
    /// The key plus 1; 0 until there is one. The exchange that publishes it releases what libc wrote
    /// when it made the key; the load of every thread that uses it acquires that.
    key: AtomicU32,
}

impl ThreadKey {
    /// No key yet.
    pub const fn new() -> Self {
        Self { key: AtomicU32::new(0) }
    }

    /// The key, made by `create` if there is none; should another thread be first, `delete` takes
    /// ours back.
    pub fn get(&self, create: impl FnOnce() -> Option<u32>, delete: impl FnOnce(u32)) -> Option<u32> {
        let known = self.key.load(Ordering::Acquire);
        if known != 0 {
            return Some(known - 1);
        }
        let made = create()?;
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        match self.key.compare_exchange(0, made + 1, success, failure) {
            Ok(_) => Some(made),
            Err(theirs) => {
                delete(made);
                Some(theirs - 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_a_lost_race_gives_its_own_back() {
        let key = ThreadKey::new();
        assert_eq!(key.get(|| None, |_| panic!()), None);
        let racing = || {
            assert_eq!(key.get(|| Some(0), |_| panic!()), Some(0));
            Some(5)
        };
        let mut deleted = None;
        assert_eq!(key.get(racing, |ours| deleted = Some(ours)), Some(0));
        assert_eq!(deleted, Some(5));
        assert_eq!(key.get(|| panic!(), |_| panic!()), Some(0));
    }

    #[test]
    fn each_thread_has_its_own_words() {
        let check = |value: usize| {
            // SAFETY: threads of std have libc's thread block, and nothing else uses the word here.
            unsafe {
                assert!(load::<0>().is_null());
                assert!(observer_slot().is_null());
                set_thread_word(value as *mut u8);
                set_observer_slot((value + 100) as *mut u8);
                std::thread::yield_now();
                assert_eq!(load::<0>() as usize, value);
                assert_eq!(observer_slot() as usize, value + 100);
            }
        };
        let threads: Vec<_> = (1..9).map(|n| std::thread::spawn(move || check(n))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
