//! Is the allocator that somebody believes in really in charge? The rules, without any reading: facts
//! about processes, files and Dockerfiles in, named findings out.
//!
//! - [`finding`]: the table of all results: identifier, severity, remedy.
//! - [`library`]: what the loader does with a library for a program.
//! - [`process`]: what keeps the allocator out of a process.
//! - [`settings`]: whether the allocator in charge reads the settings that it was given.
//! - [`dockerfile`]: a Dockerfile, read without building it.
//! - [`declared`]: files that say how a service is started: compose, Kubernetes, systemd, Procfile, supervisor,
//!   scripts.
//! - [`report`]: all findings, as text and as JSON.
//!
//! The caller gathers the facts.

pub(crate) mod base;
pub mod declared;
pub mod dockerfile;
pub mod finding;
pub mod library;
pub mod process;
pub mod report;
pub mod settings;
pub(crate) mod start;

pub use finding::{Finding, Id, Judged, Severity};
pub use report::{Answer, Report};
