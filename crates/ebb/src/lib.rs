//! `ebb` shows whether a service keeps memory that it no longer needs, and proves by a trial what
//! another allocator gains under the service's own load.
//!
//! The pieces, each of which uses only those below it:
//!
//! - [`cli`]: the command line; starts a command and turns its failure into one line.
//! - [`commands`]: one verb a file; joins the pieces below.
//! - [`allocators`]: the allocators that are known, where their libraries lie, what they need.
//! - [`check`]: judges whether an allocator is really in charge.
//! - [`burst`]: sends bursts of requests.
//! - [`fix`]: writes the change that puts an allocator in charge; reads files by `check`'s readers.
//! - [`trial`]: does a controlled trial of a service on several allocators.
//! - [`report`]: shows a trial as text, Markdown and a page, and a diagnosis as text.
//! - [`verdict`]: concludes from the facts of a process where its memory is and why.
//! - [`relief`]: makes a process or a cgroup give memory back.
//! - [`proc`]: reads processes and programs from outside.
//! - [`statistics`]: medians, intervals, slopes: pure.
//! - [`facts`]: the plain data that these hand to each other.
//! - [`arguments`], [`terminal`]: times and sizes of an argument; stdout and stderr.
//! - [`exit`]: exit codes and failures.

pub mod allocators;
pub mod arguments;
pub mod burst;
pub mod check;
pub mod cli;
pub mod commands;
pub mod exit;
pub mod facts;
pub mod fix;
pub mod proc;
pub mod relief;
pub mod report;
pub mod statistics;
pub mod terminal;
pub mod trial;
pub mod verdict;
