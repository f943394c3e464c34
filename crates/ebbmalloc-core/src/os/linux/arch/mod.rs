//! What depends on the architecture: system call numbers, the call itself, raw `clone`.
//!
//! One file an architecture, all of the same shape; chosen here and nowhere else.

/// A probe of USDT: one instruction that does nothing, and a note of where it is, for tracers. `$places` says where the
/// arguments are. In a function that is not inlined, so that there is one.
macro_rules! probe {
    ($name:literal, $places:literal, $($operands:tt)*) => {
        // SAFETY: an instruction without effects; all else is in sections that are never run.
        unsafe {
            core::arch::asm!(
                "990: nop",
                ".pushsection .note.stapsdt, \"\", \"note\"",
                ".balign 4",
                ".4byte 992f - 991f, 994f - 993f, 3",
                "991: .asciz \"stapsdt\"",
                "992: .balign 4",
                "993: .8byte 990b",
                // No base: the file is not moved after it was linked.
                ".8byte 0",
                ".8byte {tracers}",
                ".asciz \"otel_memory\"",
                concat!(".asciz \"", $name, "\""),
                concat!(".asciz \"", $places, "\""),
                "994: .balign 4",
                ".popsection",
                tracers = sym $crate::os::linux::probes::TRACERS,
                $($operands)*
                options(nostack, preserves_flags),
            )
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
