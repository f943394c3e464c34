//! A trial as people read it: one model of tables and notes, rendered for the terminal, as Markdown
//! and as a page.
//!
//! [`figures`] writes numbers, [`tables`] decides what stands where ([`changes`]: against an earlier trial), [`notes`] what has to be said
//! beside it ([`faults`]: what page faults and refaults come to); [`text`], [`markdown`] and [`html`] render; [`export`] is one table in a file. [`timeline`] makes one time axis of many runs,
//! [`chart`] draws it; [`latency`] is the distribution of latencies; [`drawing`] is what both share. Everything is a pure function of [`crate::facts::trial::Trial`]; nothing here
//! reads a process or writes a file. [`diagnosis`], [`growth`] and [`metrics`] show what `ebb why` found, likewise, [`trim`] what
//! `ebb trim` did. [`paint`] adds colours for a terminal.

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
pub mod paint;
pub mod table;
pub mod tables;
pub mod text;
pub mod timeline;
pub mod trim;
