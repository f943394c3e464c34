//! Giving pages back: by madvise a run, or by process_madvise many at once where that is allowed.
//!
//! process_madvise saves one TLB shoot-down a run, but Docker's default seccomp profile refuses it,
//! kernels before 6.13 do not know it for MADV_DONTNEED, and it wants a descriptor of the process
//! unless the kernel knows PIDFD_SELF (6.14). So it is tried, and given up for good at the first
//! sign that it is the call, and not a run, that the kernel does not take.

use core::sync::atomic::{AtomicU8, Ordering};

use super::arch::nr;
use super::call::{Errno, call};
use super::{Discarded, Linux, PageRun, UNKNOWN};

const WORKS: u8 = 1;
/// Not to be tried any more.
pub const REFUSED: u8 = 2;

const MADV_DONTNEED: usize = 4;

/// Runs in one vector: 2 KiB of stack, and the shoot-down is already shared by enough runs.
const VECTOR_RUNS: usize = 128;

impl Linux {
    /// Whether runs go to the kernel in vectors: None until a vector has been tried.
    pub fn process_madvise_works(&self) -> Option<bool> {
        match self.vectors.load(Ordering::Relaxed) {
            UNKNOWN => None,
            mode => Some(mode == WORKS),
        }
    }
}

/// [`super::Os::discard`]. Of a run that spans both locked and other memory a part may be gone
/// although all of it is counted as refused.
///
/// # Safety
/// The runs are committed memory of the allocator and hold nothing that anybody reads again.
pub unsafe fn discard(vectors: &AtomicU8, runs: &[PageRun]) -> Discarded {
    let mut done = Discarded::default();
    let mut rest = runs;
    while !rest.is_empty() {
        let mut taken = 0;
        let mut suspicious = false;
        if rest.len() > 1 && vectors.load(Ordering::Relaxed) != REFUSED {
            // SAFETY: the runs are committed memory that no thread reads again (fn contract).
            match unsafe { discard_vector(&rest[..rest.len().min(VECTOR_RUNS)]) } {
                Ok(whole) => {
                    vectors.store(WORKS, Ordering::Relaxed);
                    taken = whole;
                }
                // A locked run, or a kernel that does not know the request.
                Err(Errno::INVAL) => suspicious = vectors.load(Ordering::Relaxed) == UNKNOWN,
                Err(Errno::AGAIN | Errno::INTR | Errno::NOMEM) => {}
                Err(_) => vectors.store(REFUSED, Ordering::Relaxed),
            }
        }
        let (vectored, after) = rest.split_at(taken);
        done.returned_bytes += vectored.iter().map(|run| run.bytes).sum::<usize>();
        rest = after;
        // The run at which the vector stopped, by itself: the others need not suffer for it.
        if taken < VECTOR_RUNS
            && let Some((first, after)) = rest.split_first()
        {
            // SAFETY: the run is committed memory that no thread reads again (fn contract).
            match unsafe { call(nr::MADVISE, [first.start, first.bytes, MADV_DONTNEED]) } {
                Ok(_) => {
                    done.returned_bytes += first.bytes;
                    if suspicious {
                        vectors.store(REFUSED, Ordering::Relaxed);
                    }
                }
                Err(_) => done.refused_bytes += first.bytes,
            }
            rest = after;
        }
    }
    done
}

/// Discards `runs` by one call; how many of them, from the first, are done as a whole.
///
/// # Safety
/// As for [`discard`].
unsafe fn discard_vector(runs: &[PageRun]) -> Result<usize, Errno> {
    const PIDFD_SELF: usize = (-10000isize).cast_unsigned();
    let mut vector = [[0usize; 2]; VECTOR_RUNS];
    for (entry, run) in vector.iter_mut().zip(runs) {
        *entry = [run.start, run.bytes];
    }
    let at = vector.as_ptr() as usize;
    // SAFETY: `vector` has as many entries as `runs`, each of which is ours to discard.
    let mut bytes = unsafe { call(nr::PROCESS_MADVISE, [PIDFD_SELF, at, runs.len(), MADV_DONTNEED, 0]) }?;
    let mut whole = 0;
    for run in runs {
        if bytes < run.bytes {
            break;
        }
        bytes -= run.bytes;
        whole += 1;
    }
    Ok(whole)
}
