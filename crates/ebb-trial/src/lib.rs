//! A controlled trial: the same service under the same load on one allocator after another.
//!
//! For `ebb compare`; reports render its [`results`]. How a process is read comes from outside as a
//! [`sampler::Observer`]. It knows no command line and no report. `examples/judge.rs` goes from figures to a verdict.
//!
//! - [`results`]: what was measured, as plain data.
//! - [`workload`], [`variant`], [`template`], [`sketch`]: what is to be done, as a file or as words of a command line.
//! - [`summary`], [`cost`], [`canary`], [`traps`], [`disturbance`], [`refaults`]: figures, and what speaks against them.
//! - [`verdict`], [`choice`], [`tuning`], [`against`]: a sentence; what to run; the settings; an earlier trial.
//! - [`placebo`], [`remains`]: settings without effect; what no allocator changes.
//! - [`container`], [`launch`], [`sampler`], [`logs`], [`interrupt`], [`setup`], [`run`]: one run.
//! - [`schedule`], [`rounds`], [`engine`]: in which order, how often; all runs.

pub mod against;
pub mod canary;
pub mod choice;
pub mod container;
pub mod cost;
pub mod disturbance;
pub mod engine;
#[cfg(any(test, feature = "example"))]
pub mod example;
pub mod interrupt;
pub mod launch;
mod load;
pub mod logs;
pub mod placebo;
pub mod refaults;
pub mod remains;
pub mod results;
pub mod rounds;
pub mod run;
pub mod sampler;
pub mod schedule;
pub mod setup;
pub mod sketch;
pub mod summary;
pub mod template;
mod tools;
pub mod traps;
pub mod tuning;
pub mod variant;
pub mod verdict;
pub mod workload;
