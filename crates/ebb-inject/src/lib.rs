//! Calls a function in another process so that the process survives whatever happens, to us as well.
//!
//! The pieces, each of which uses only those below it:
//!
//! - [`mod@call`]: chooses a thread, tries, sees it come back.
//! - [`cost`]: what returning pages costs on this machine.
//! - [`gate`]: what makes a process unfit for it as a whole.
//! - [`function`]: where malloc_trim is, what it locks, and the code that restores a thread.
//! - `attempt`: one attempt at one thread.
//! - `place`: where a stopped thread stands, and what it comes back to.
//! - [`remote`]: the other way: CPython is asked to make the call by itself.
//! - `refusal`: why no call was made.
//! - `seccomp`: what a thread's filters of system calls say.
//! - `stack`: whether a thread's stack has room, and no handler of a signal on it.
//! - `tracee`: a thread held by ptrace; the door to the kernel.
//! - `frame`, `xstate`: the bytes from which the kernel restores a thread.
//! - `task`: what a thread does, from /proc.
//! - `waits`: what becomes of a system call whose thread is stopped.
//!
//! Linux on x86-64, and functions of glibc.
#![cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod attempt;
pub mod call;
pub mod cost;
mod frame;
pub mod function;
pub mod gate;
mod place;
mod refusal;
pub mod remote;
mod seccomp;
mod stack;
mod task;
mod tracee;
mod waits;
mod xstate;

pub use call::{Called, call};
pub use cost::{Cost, Refault};
pub use function::Function;
pub use refusal::{NotCalled, Unfit};
