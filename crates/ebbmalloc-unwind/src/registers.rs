//! The registers that lead from one frame to the next, by architecture.

use gimli::Register;

/// Where a thread is.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    /// The instruction.
    pub pc: usize,
    /// The stack.
    pub sp: usize,
    /// The frame pointer, if the code keeps one there.
    pub fp: usize,
    /// The return address of a function that has not stored it (aarch64).
    pub link: usize,
}

#[cfg(target_arch = "x86_64")]
mod numbers {
    use super::Register;
    pub const SP: Register = Register(7);
    pub const FP: Register = Register(6);
    pub const RETURN: Register = Register(16);
}

#[cfg(target_arch = "aarch64")]
mod numbers {
    use super::Register;
    pub const SP: Register = Register(31);
    pub const FP: Register = Register(29);
    pub const RETURN: Register = Register(30);
}

pub use numbers::{FP, RETURN, SP};

impl Registers {
    /// The caller's own.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn here() -> Self {
        let (pc, sp, fp);
        // SAFETY: reads three registers.
        unsafe {
            core::arch::asm!(
                "lea {pc}, [rip]",
                "mov {sp}, rsp",
                "mov {fp}, rbp",
                pc = out(reg) pc,
                sp = out(reg) sp,
                fp = out(reg) fp,
                options(nostack, nomem, preserves_flags),
            );
        }
        Self { pc, sp, fp, link: 0 }
    }

    /// The caller's own.
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    pub fn here() -> Self {
        let (pc, sp, fp, link);
        // SAFETY: reads four registers.
        unsafe {
            core::arch::asm!(
                "adr {pc}, .",
                "mov {sp}, sp",
                "mov {fp}, x29",
                "mov {link}, x30",
                pc = out(reg) pc,
                sp = out(reg) sp,
                fp = out(reg) fp,
                link = out(reg) link,
                options(nostack, nomem, preserves_flags),
            );
        }
        Self { pc, sp, fp, link }
    }
}
