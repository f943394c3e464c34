//! `ebb` shows whether a service keeps memory that it no longer needs, and proves by a trial what
//! another allocator gains under the service's own load.
//!
//! This crate is the command line. It reads arguments, joins the libraries, prints. The libraries hold the rules:
//! `ebb-process`, `ebb-allocators`, `ebb-node`, `ebb-diagnosis`, `ebb-trial`, `ebb-deploy`, `ebb-report`. From below:
//!
//! - [`exit`]: exit codes and failures.
//! - `arguments`, `terminal`, `signals`, `paint`: times and sizes of an argument; stdout and stderr; what ends a
//!   long command; colours.
//! - `supervised`: a look in a process of its own.
//! - `prometheus`: asks a Prometheus server.
//! - `http`: a page of figures for Prometheus.
//! - `burst`: sends bursts of requests.
//! - `relief`: makes a process or a cgroup give memory back.
//! - `commands`: one verb per file.
//! - [`cli`]: parses the command line, starts a command, turns its failure into one line.

mod arguments;
mod burst;
pub mod cli;
mod commands;
pub mod exit;
mod http;
mod paint;
mod prometheus;
mod relief;
mod signals;
mod supervised;
mod terminal;
