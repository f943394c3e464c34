//! The purger: returns idle pages, from a thread of its own or, where it can have none, from slow operations.
//!
//! From bottom to top: `schedule` says how long to wait between ticks, `pause` when to wait longer, `stalls` when to wait no
//! longer, `thread` starts and
//! stops the thread, `purger` owns one of each, decides, and is what the thread runs. What a tick does is the
//! heap's business ([`crate::heap::tick`]); here is only when.

pub(super) mod pause;
pub(super) mod purger;
pub(super) mod schedule;
mod stalls;
pub(super) mod thread;
