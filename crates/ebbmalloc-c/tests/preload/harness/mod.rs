//! What all tests of the suite share: the library under test, the compiled C programs, and runs of
//! a program under the preload with a time limit.

mod compile;
pub mod library;
mod run;
pub mod server;

pub use compile::{Flavour, program, program_with, shared_object};
pub use library::{archive, is_foreign, library};
pub use run::{Outcome, Run, Running, Scratch, long, require, scaled};
