//! Weak references: names that the program may or may not have.
//!
//! Stable Rust cannot declare them, so the assembler does, and the address is read from the global
//! offset table: null where no object defines the name.

/// Address of a symbol as `*const ()`, null if the loader found no definition.
#[cfg(target_arch = "x86_64")]
#[macro_export]
macro_rules! weak_symbol {
    ($name:literal) => {{
        let address: *const ();
        // SAFETY: reads an entry of our own global offset table.
        unsafe {
            core::arch::asm!(
                concat!(".weak ", $name),
                concat!("mov {address}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                address = out(reg) address,
                options(nostack, preserves_flags, readonly),
            );
        }
        address
    }};
}

/// Address of a symbol as `*const ()`, null if the loader found no definition.
#[cfg(target_arch = "aarch64")]
#[macro_export]
macro_rules! weak_symbol {
    ($name:literal) => {{
        let address: *const ();
        // SAFETY: reads an entry of our own global offset table.
        unsafe {
            core::arch::asm!(
                concat!(".weak ", $name),
                concat!("adrp {address}, :got:", $name),
                concat!("ldr {address}, [{address}, :got_lo12:", $name, "]"),
                address = out(reg) address,
                options(nostack, preserves_flags, readonly),
            );
        }
        address
    }};
}
