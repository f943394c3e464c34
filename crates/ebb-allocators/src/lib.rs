//! The allocators that `ebb` knows: their names, libraries, packages and settings. It reads no file of a process.
//!
//! Used by all crates of the tool. [`Allocator`] is the one place for names; [`Environment::of`] turns a [`Choice`] and
//! settings into variables.
//!
//! - `allocator`: the table of allocators; `packages`: the distributions' packages with a library.
//! - `environment`, `tunings`, `decay`: its settings; the settings that are worth a try; when it returns memory.
//!
//! ```
//! use ebb_allocators::{Allocator, Choice, Environment, Library};
//!
//! let allocator = Allocator::from_choice("jemalloc").unwrap();
//! let library = Library { path: "/l/libjemalloc.so.2".into(), allocator: Some(allocator) };
//! let conf = ["narenas:1".to_owned()];
//! let environment = Environment::of(&Choice::Library(library), &conf, |_| None).unwrap();
//! assert_eq!(environment.changes[std::ffi::OsStr::new("MALLOC_CONF")], Some("narenas:1".into()));
//! ```

mod allocator;
mod decay;
mod environment;
mod packages;
mod tunings;

pub use allocator::{Allocator, Settings};
pub use decay::{Decay, decay};
pub use environment::{Choice, Environment, Library, SettingError, preload_entries, splits_in_preload};
pub use packages::Packages;
pub use tunings::{CPYTHON_TO_MALLOC, Tuning, USUAL, all_tunings, tuning, tunings};
