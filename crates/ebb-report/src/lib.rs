//! Trials and diagnoses as people read them. Pure: nothing here reads a process or writes a file.
//!
//! For the command line. A trial is one model of tables and notes, rendered for the terminal, as Markdown and as a
//! page. It knows no command line and decides nothing. `examples/report.rs` prints a trial's `results.json`.
//!
//! - [`tables`], [`latency`], [`figures`]: the contents of a trial's tables, and numbers.
//! - [`text`], [`markdown`], [`html`], [`export`]: the renderings of a trial.
//! - [`periods`]: two periods of a recording; [`fleet`]: the workloads of a fleet.
//! - [`profile`]: a heap profile, and what changed between two.
//! - [`diagnosis`], [`growth`], [`metrics`], [`trim`]: what `ebb why`, `watch` and `trim` found and did.

mod chart;
pub mod diagnosis;
mod drawing;
pub mod export;
mod faults;
pub mod figures;
pub mod fleet;
pub mod growth;
pub mod html;
pub mod latency;
pub mod life;
pub mod markdown;
pub mod metrics;
mod notes;
pub mod periods;
pub mod profile;
mod table;
pub mod tables;
pub mod text;
mod timeline;
pub mod trim;
