//! Signals: blocked around the start of a thread, and SIGABRT for the end.

use super::arch::{self, nr};
use super::call::call;

/// A set of signals, as the kernel has it on 64-bit machines.
pub type SignalSet = u64;

const SIG_UNBLOCK: usize = 1;
const SIG_SETMASK: usize = 2;
const SIGABRT: usize = 6;

/// Sets the calling thread's mask and returns the one before; libc's own signals included.
pub fn set_mask(mask: SignalSet) -> SignalSet {
    let mut before: SignalSet = 0;
    change_mask(SIG_SETMASK, mask, &mut before);
    before
}

fn change_mask(how: usize, mask: SignalSet, before: &mut SignalSet) {
    let (new, old) = (&raw const mask as usize, before as *mut SignalSet as usize);
    // SAFETY: both sets are valid and as long as we say; a mask changes no memory.
    let _ = unsafe { call(nr::RT_SIGPROCMASK, [how, new, old, size_of::<SignalSet>()]) };
}

/// Ends the process by SIGABRT: the program's handler first, as `abort(3)` does, and should that
/// return, the default action.
pub fn abort(process: u32, thread: u32) -> ! {
    let raise = || {
        change_mask(SIG_UNBLOCK, 1 << (SIGABRT - 1), &mut 0);
        // SAFETY: the signal goes to ourselves.
        let _ = unsafe { call(nr::TGKILL, [process as usize, thread as usize, SIGABRT]) };
    };
    raise();
    // Handler SIG_DFL, no flags, no restorer, empty mask.
    let default = [0usize; 4];
    let arguments = [SIGABRT, default.as_ptr() as usize, 0, size_of::<SignalSet>()];
    // SAFETY: `default` is a valid kernel sigaction.
    let _ = unsafe { call(nr::RT_SIGACTION, arguments) };
    raise();
    loop {
        // Only where a filter refuses the signal: the status a shell shows for SIGABRT.
        // SAFETY: never returns.
        let _ = unsafe { arch::syscall(nr::EXIT_GROUP, [134, 0, 0, 0, 0, 0]) };
    }
}
