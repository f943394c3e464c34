//! A controlled trial: the same service under the same load on one allocator after another.
//!
//! From the file to the verdict: [`workload`] and [`variant`] say what is to be done, [`schedule`] in
//! which order, a [`sketch`] makes the file from the words of a command line; [`engine`] does all runs, [`run`]
//! one of them with [`launch`] (start and stop), [`ask`] (ready, trim, live), [`sampler`] (with [`refaults`]), [`health`] and
//! what is in [`enclosure`]; [`load`] (with the load [`tools`]) and [`summary`] make figures of it with [`crate::statistics`],
//! [`verdict`] a sentence. Results are [`crate::facts::trial`]; how a process is read comes from outside
//! as a [`sampler::Observer`].

pub mod against;
pub mod ask;
pub mod canary;
pub mod choice;
pub mod cost;
pub mod disturbance;
pub mod enclosure;
pub mod engine;
pub mod health;
pub mod interrupt;
pub mod launch;
pub mod load;
pub mod logs;
pub mod refaults;
pub mod rounds;
pub mod run;
pub mod sampler;
pub mod schedule;
pub mod setup;
pub mod sketch;
pub mod summary;
pub mod template;
pub mod tools;
pub mod traps;
pub mod tuning;
pub mod variant;
pub mod verdict;
pub mod workload;
