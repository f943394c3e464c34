//! The calling thread's stack, without the allocator's own frames where it is an object of its own.

use super::super::hooks::hooks;
use super::super::instance::HEAP;
use crate::base::lock::{Lock, Rank, Wait};
use core::cell::UnsafeCell;
use core::ffi::CStr;
use ebbmalloc_unwind::{Host, ReadAt, Registers, Unwinder};

/// One walk at a time: a walk is some microseconds, and there are few.
static LOCK: Lock<()> = Lock::new(Rank::Profile, ());

/// What the lock guards; apart from it, so that all of it is zero and takes no room in the file.
struct Guarded {
    unwinder: UnsafeCell<Unwinder>,
    /// A piece of /proc/self/maps: not on a stack that may be short.
    piece: UnsafeCell<[u8; 4096]>,
}

// SAFETY: used by the holder of the lock alone.
unsafe impl Sync for Guarded {}

static GUARDED: Guarded = Guarded { unwinder: UnsafeCell::new(Unwinder::new()), piece: UnsafeCell::new([0; 4096]) };

/// The kernel, to the walk.
struct Kernel;

impl Host for Kernel {
    fn is_readable(&self, address: usize) -> bool {
        HEAP.os.is_readable(address)
    }

    fn read_maps(&self, each: &mut dyn FnMut(&[u8])) -> bool {
        // SAFETY: the walk has the lock.
        let room = unsafe { &mut *GUARDED.piece.get() };
        HEAP.os.read_pieces(c"/proc/self/maps", room, each)
    }

    fn read_file(&self, name: &CStr, work: &mut dyn FnMut(&ReadAt)) {
        if !HEAP.os.is_confined() {
            HEAP.os.with_file(name, work);
        }
    }
}

/// Return addresses of the calling thread's stack, the innermost first, as many as `frames` takes, with their stack
/// pointers; returns how many. A thread that waits is marked as busy, so that no signal handler comes here. Without waiting
/// there are none while a walk is under way, which may be the thread's own.
#[inline(never)]
pub(crate) fn walk(frames: &mut [usize], stacks: &mut [usize], wait: Wait) -> usize {
    let here = Registers::here();
    let Some(_guard) = LOCK.lock_if(&HEAP.os, wait) else { return 0 };
    // SAFETY: the lock is held; the registers are this very function's.
    unsafe { (*GUARDED.unwinder.get()).walk(&Kernel, here, hooks().is_own_object, frames, stacks) }
}

/// In the child of a fork.
///
/// # Safety
/// The process has no other thread, and this one is in no walk.
pub(crate) unsafe fn adopt() {
    // SAFETY: there is no other thread, and this one is in no walk (fn contract): no other thread uses what the lock guards, and zeros are as good as new.
    unsafe {
        if LOCK.is_held() {
            GUARDED.unwinder.get().write_bytes(0, 1);
        }
        LOCK.reset();
    }
}
