//! The heap profile of this process: whether it is on, and what can be asked of it while it runs.
//!
//! Sampled are threads that are observed ([`super::observer`]): all of them while the profile is active
//! and nothing else is said, or those that asked. From bottom to top: `settings` are in force, a thread's `sampler`
//! follows them and decides which allocations are sampled, `backtrace` walks the stack, `hooks` are the program's part,
//! `dumps` writes the files, `record` takes a sample, `control` is what the control side calls. Nothing of it runs,
//! and no memory is taken, without `prof:true`.

pub(super) mod backtrace;
mod control;
pub(super) mod dumps;
mod hooks;
pub(super) mod record;
pub(super) mod sampler;
mod settings;
pub(super) mod watch;

pub use control::{
    is_thread_active, reset, set_active, set_thread_active, set_thread_active_init,
    set_thread_name, start_of_thread_name,
};
pub use dumps::{dump, set_prefix};
pub use hooks::{
    AfterDump, WalkStack, dump_listener, set_dump_listener, set_stack_walker, stack_walker,
};
pub use settings::{
    dumps_at_growth, interval, is_active, is_on, lg_sample, set_dumps_at_growth, thread_active_init,
};
