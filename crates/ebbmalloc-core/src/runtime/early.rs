//! Requests before the dynamic loader has relocated this object.
//!
//! The loader relocates libraries first and what is preloaded after them. A resolver of an indirect
//! function (IFUNC) in a library runs in between, and may allocate. Nothing of libc can be called
//! then, there is no setting and no cache; but the heap itself needs nothing except the addresses of
//! this object's own functions and tables, and those it can fill in by itself. The loader writes the
//! same values again when it comes to it.
//!
//! Only with `lto = "fat"`. Without it the compiler reaches the functions and statics of another crate through the global
//! offset table, which is empty then, and such a call crashes, as it does in other allocators.

use core::sync::atomic::{AtomicBool, Ordering};

/// Whether [`relocate_self`] was here.
static FILLED: AtomicBool = AtomicBool::new(false);

/// An entry of the dynamic section.
#[repr(C)]
struct Dynamic {
    tag: usize,
    value: usize,
}

/// A relocation with addend.
#[repr(C)]
struct Rela {
    offset: usize,
    info: usize,
    addend: usize,
}

/// Fills in the addresses inside this object that are addresses of its own parts.
#[cold]
pub(super) fn relocate_self() {
    if FILLED.load(Ordering::Relaxed) {
        return;
    }
    const END: usize = 0;
    const RELA: usize = 7;
    const RELA_BYTES: usize = 8;
    let (mut dynamic, base) = this_object();
    let (mut table, mut bytes) = (0, 0);
    // SAFETY: the linker ends the dynamic section by an entry of zeros.
    unsafe {
        while (*dynamic).tag != END {
            match (*dynamic).tag {
                // glibc has made it an address already, in most versions.
                RELA if (*dynamic).value < base => table = base + (*dynamic).value,
                RELA => table = (*dynamic).value,
                RELA_BYTES => bytes = (*dynamic).value,
                _ => {}
            }
            dynamic = dynamic.wrapping_add(1);
        }
    }
    let relocations = table as *const Rela;
    for index in 0..bytes / size_of::<Rela>() {
        /// R_X86_64_RELATIVE, R_AARCH64_RELATIVE.
        const RELATIVE: usize = if cfg!(target_arch = "x86_64") { 8 } else { 1027 };
        // SAFETY: the table is as long as the dynamic section says, and each place in it is a word
        // of ours that no thread reads until it is filled in, and that is not write-protected before.
        unsafe {
            let relocation = relocations.wrapping_add(index);
            if (*relocation).info == RELATIVE {
                let place = (base + (*relocation).offset) as *mut usize;
                place.write_volatile(base.wrapping_add((*relocation).addend));
            }
        }
    }
    FILLED.store(true, Ordering::Relaxed);
}

/// Addresses of this object's dynamic section and of its beginning; found without any table.
fn this_object() -> (*const Dynamic, usize) {
    let (dynamic, base);
    // Weak, for static programs, which have neither name and never ask.
    macro_rules! addresses {
        ($($line:literal),*) => {
            core::arch::asm!(
                ".weak _DYNAMIC",
                ".hidden _DYNAMIC",
                ".weak __ehdr_start",
                ".hidden __ehdr_start",
                $($line,)*
                dynamic = out(reg) dynamic,
                base = out(reg) base,
                options(nostack, nomem, preserves_flags),
            )
        };
    }
    // SAFETY: computes two addresses.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        addresses!("lea {dynamic}, [rip + _DYNAMIC]", "lea {base}, [rip + __ehdr_start]");
        #[cfg(target_arch = "aarch64")]
        addresses!(
            "adrp {dynamic}, _DYNAMIC",
            "add {dynamic}, {dynamic}, :lo12:_DYNAMIC",
            "adrp {base}, __ehdr_start",
            "add {base}, {base}, :lo12:__ehdr_start"
        );
    }
    (dynamic, base)
}
