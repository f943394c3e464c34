//! Trials and diagnoses as people read them. Pure: nothing here reads a process or writes a file.
//!
//! Used by the command line. A trial is one model of tables and notes, rendered for the terminal, as Markdown and as a
//! page. It knows no command line and decides nothing.
//!
//! - [`table`], [`figures`], [`drawing`]: cells, numbers, strokes.
//! - [`faults`], [`notes`], [`changes`], [`latency`], [`tables`]: what stands in a trial's tables and beside them.
//! - [`timeline`], [`chart`]: one time axis of many runs, and its picture.
//! - [`text`], [`markdown`], [`html`], [`export`]: the renderings of a trial.
//! - [`diagnosis`], [`growth`], [`metrics`], [`trim`]: what `ebb why`, `watch` and `trim` found and did.

pub mod changes;
pub mod chart;
pub mod diagnosis;
pub mod drawing;
pub mod export;
pub mod faults;
pub mod figures;
pub mod growth;
pub mod html;
pub mod latency;
pub mod markdown;
pub mod metrics;
pub mod notes;
pub mod table;
pub mod tables;
pub mod text;
pub mod timeline;
pub mod trim;

#[cfg(test)]
#[path = "../../ebb-trial/src/example.rs"]
mod example;
#[cfg(test)]
use ebb_trial::results;
