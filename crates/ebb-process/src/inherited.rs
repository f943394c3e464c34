//! What this process inherited: ignored signals, and the disposition of SIGPIPE, which the Rust
//! runtime has changed since.
//!
//! The runtime ignores SIGPIPE before `main`. A program that we become, or start, must find what our
//! own parent left: systemd starts services with SIGPIPE ignored, shells with its default, and a
//! service that gets the wrong one dies when a client hangs up.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigHandler, Signal, signal};

/// Whether SIGPIPE was ignored when this process started. Written once, before `main`, while there
/// is one thread; read afterwards, so relaxed accesses are enough.
static SIGPIPE_IGNORED: AtomicBool = AtomicBool::new(false);

// SAFETY: the section holds pointers to functions that the loader calls before the runtime starts;
// `record_sigpipe` takes what it is given by not looking at it, and calls one async-signal-safe function.
#[unsafe(link_section = ".init_array")]
#[used]
static RECORD_SIGPIPE: extern "C" fn() = record_sigpipe;

extern "C" fn record_sigpipe() {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action the call only writes the old one, for which there is room.
    let result = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: all bits zero is a valid value of this plain C structure, whatever the call did.
    let action = unsafe { action.assume_init() };
    let ignored = result == 0 && action.sa_sigaction == libc::SIG_IGN;
    SIGPIPE_IGNORED.store(ignored, Ordering::Relaxed);
}

/// Whether this process ignores `signal` now.
pub fn is_ignored(signal: i32) -> bool {
    let bit = u32::try_from(signal - 1).ok().and_then(|place| 1_u64.checked_shl(place));
    let ignored = procfs::process::Process::myself().and_then(|own| own.status()).map_or(0, |status| status.sigign);
    bit.is_some_and(|bit| ignored & bit != 0)
}

/// Gives this process back the disposition it was started with, right before it executes another
/// program.
pub fn restore() -> nix::Result<()> {
    let handler = if SIGPIPE_IGNORED.load(Ordering::Relaxed) { SigHandler::SigIgn } else { SigHandler::SigDfl };
    // SAFETY: neither value is a function, so no handler can run.
    unsafe { signal(Signal::SIGPIPE, handler) }?;
    Ok(())
}

/// Makes a child start with the disposition that this process was started with.
pub fn restore_in(command: &mut Command) {
    // SAFETY: `restore` makes one system call and touches no lock and no heap, as is required
    // between fork and exec.
    unsafe { command.pre_exec(|| Ok(restore()?)) };
}
