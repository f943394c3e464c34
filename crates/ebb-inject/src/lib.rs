//! Calls a function in another process so that the process survives whatever happens, to us as well.
//!
//! The pieces, each of which uses only those below it:
//!
//! - [`mod@call`]: whether the process is fit for it; chooses a thread, tries, sees it come back.
//! - [`cost`]: what returning pages costs on this machine.
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
//!
//! ```
//! # use std::io::Read;
//! # use std::process::{Command, Stdio};
//! use std::time::Duration;
//! use ebb_inject::{Function, call};
//! use ebb_inspect::Target;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut shell = Command::new("sh")
//!     .args(["-c", "echo started; read end"])
//!     .stdin(Stdio::piped())
//!     .stdout(Stdio::piped())
//!     .spawn()?;
//! # shell.stdout.as_mut().unwrap().read_exact(&mut [0; 8])?;
//! let target = Target::open(shell.id().try_into()?)?;
//! match call(&target, &Function::malloc_trim(&target)?, Duration::from_secs(10)) {
//!     Ok(called) => println!("stopped for {:?}", called.stopped),
//!     // Without the right to trace, for one.
//!     Err(why) => println!("not called: {why}"),
//! }
//!
//! // The shell goes on in either case.
//! drop(shell.stdin.take());
//! assert_eq!(shell.wait()?.code(), Some(1));
//! # Ok(())
//! # }
//! ```
#![cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss))]

mod attempt;
pub mod call;
pub mod cost;
mod frame;
pub mod function;
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
