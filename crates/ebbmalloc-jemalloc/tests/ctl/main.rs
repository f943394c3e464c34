//! The control tree as a program meets it, within one process.

mod figures;
mod hooks;
mod misuse;
mod table;
