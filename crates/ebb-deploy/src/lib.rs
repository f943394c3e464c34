//! Files that start services: read, judged and rewritten, so that an allocator is in charge.
//!
//! Used by the command line: `ebb check`, `ebb fix`, `ebb compare --compose`. It reads no process and writes no file; texts and facts come in,
//! findings and edits go out. It knows nothing of trials and diagnoses.
//!
//! - [`check`]: the readers of each kind of file, and the rules: is the allocator really in charge?
//! - [`fix`]: the smallest change of such a file that puts an allocator in charge.
//! - [`options`]: a service of a compose file as options of `docker run`, for a trial.
//!
//! ```
//! use ebb_allocators::Allocator;
//! use ebb_deploy::check::dockerfile::{Stages, judge};
//! use ebb_deploy::fix::{self, Desired, edit};
//!
//! let nothing = |_: &str| None;
//! let text = "FROM debian:12\nRUN apt-get install -y curl\nCMD [\"app\"]\n";
//! let judged = judge("Dockerfile", &Stages::parse(text).unwrap(), None, &nothing).unwrap();
//! assert_eq!(judged.findings[0].id.name(), "not-asked");
//!
//! let desired = Desired {
//!     allocator: Allocator::Jemalloc,
//!     library: None,
//!     release: None,
//!     variables: Default::default(),
//!     keep_existing: true,
//!     why: "as requested".to_owned(),
//! };
//! let fixed = fix::dockerfile::fix("Dockerfile", text, None, &nothing, &desired).unwrap();
//! let expected = "FROM debian:12\nRUN apt-get install -y libjemalloc2 curl\nENV LD_PRELOAD=libjemalloc.so.2\nCMD [\"app\"]\n";
//! assert_eq!(edit::apply(text, &fixed.edits), expected);
//! ```

pub mod check;
pub mod fix;
pub mod options;
