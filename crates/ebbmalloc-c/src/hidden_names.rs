//! Names for the linker that stay inside the object.
//!
//! What Rust leaves unmangled a shared object exports, so the assembler defines these names, hidden,
//! as jumps to Rust functions.

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    ($to:literal) => {
        concat!("jmp ", $to)
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    ($to:literal) => {
        concat!("b ", $to)
    };
}

/// Defines each name as another one of a function.
macro_rules! hidden_names {
    ($($name:literal is $function:path,)+) => {$(
        core::arch::global_asm!(
            concat!(".pushsection .text.", $name, ",\"ax\",@progbits"),
            concat!(".hidden ", $name),
            concat!(".globl ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ":"),
            jump!("{function}"),
            concat!(".size ", $name, ", . - ", $name),
            ".popsection",
            function = sym $function,
        );
    )+};
}
