//! The allocators that `ebb` knows: their libraries, the packages that have them, and the environment
//! that puts one of them in charge of a program.
//!
//! [`resolve`] turns what a user wrote and the program to be run into a [`Choice`]; [`Environment::of`]
//! turns that into variables. Used by `ebb run` and by trials. A library that the loader would refuse
//! or ignore for that program is an error here, because the loader's own answer is a line on stderr
//! and a program that runs on without it.

mod decay;
mod environment;
mod known;
mod library;
mod packages;
mod tunings;

pub use decay::decay;
pub use environment::{Environment, SettingError, preload_entries};
pub use known::{Allocator, EBBMALLOC, KNOWN, SYSTEM, Settings, by_file_name, by_name};
pub use library::{Choice, Library, Unresolved, recognise, resolve, system_folders};
pub use tunings::{CPYTHON_TO_MALLOC, Tuning, tunings};
