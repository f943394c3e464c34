//! The allocators that `ebb` knows, as something to install: their libraries, packages and settings.
//!
//! Used by trials, by `ebb run` and by the rules on files that start services. [`resolve`] turns what a user wrote
//! and the program to be run into a [`Choice`]; [`Environment::of`] turns that into variables. A library that the loader
//! would refuse or ignore for that program is an error here. It knows nothing of trials and verdicts.
//!
//! - `packages`: the distributions' packages with a library.
//! - `known`: the table of allocators.
//! - `library`: where a library lies, and whether it fits a program.
//! - `environment`, `tunings`, `decay`: its settings; those that are worth a try; when it returns memory.

mod decay;
mod environment;
mod known;
mod library;
mod packages;
mod tunings;

pub use decay::{Decay, decay};
pub use environment::{Environment, SettingError, preload_entries};
pub use known::{Allocator, EBBMALLOC, KNOWN, SYSTEM, Settings, by_file_name, by_name};
pub use library::{Choice, Library, Unresolved, recognise, resolve, system_folders};
pub use tunings::{CPYTHON_TO_MALLOC, Tuning, tunings};
