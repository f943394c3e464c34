//! What holds memory on a machine: every process and every cgroup with processes, with cheap figures at each tick and heaps within a
//! budget of processor time.
//!
//! Used by the commands that watch a whole machine; [`look`] by all that look at one process. Time is an argument ([`Clock`]), so tests
//! set it. An unknown figure is `None`, never 0. A process that has ended is gone at the next tick.
//!
//! - [`look`]: one look at one process or target.
//! - [`census`]: cgroups, their processes and their names.
//! - [`figures`]: what looks found, of a process or summed over a cgroup.
//! - [`schedule`]: which process is looked at next, and why one is not.
//! - [`node`]: all of it together.

pub mod census;
pub mod figures;
pub mod look;
pub mod node;
pub mod schedule;

pub use census::Identity;
pub use figures::Figures;
pub use node::{Group, Node, Options, Process, Subject};
pub use schedule::{Clock, Key, Next, Skip};
