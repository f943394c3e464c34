//! The heap profile of this process, as far as requests and growth feed it. Nothing of it runs, and no memory is taken,
//! without `prof:true`, or a tool that asks for it (`lease`).
//!
//! Observed threads ([`super::observer`]) are sampled: while the profile is active all threads (`watch`), unless the program
//! chose single ones. A thread's `super::sampler` decides which allocations are
//! sampled; `record` takes a sample, for which `backtrace` walks the stack, and `python` the frames of CPython; `dumps` writes the files; `hooks` are the
//! program's part. What can be asked of the profile is `super::profile_control`.

pub(super) mod backtrace;
pub(super) mod dumps;
pub(super) mod hooks;
pub(super) mod lease;
mod python;
pub(super) mod record;
pub(super) mod watch;
