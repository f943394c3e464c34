//! What returning pages costs on this machine, and having one again: measured on memory of our own, in a few
//! milliseconds.
//!
//! malloc_trim makes a call of madvise for each free chunk that has a whole page. So its time follows from
//! the number of such chunks and of the pages in them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ebb_inspect::exact::usize_of;
use nix::errno::Errno;
use nix::time::{ClockId, clock_gettime};

/// Pages that are touched and returned: so many that a call's own cost is seen, and done in a millisecond.
const PAGES_U32: u32 = 1024;
const PAGES: usize = PAGES_U32 as usize;
/// The fastest of so many rounds counts: others have been disturbed.
const ROUNDS: usize = 3;

/// The cost of returning memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Cost of a system call, without its pages.
    pub call: Duration,
    /// Cost of a page.
    pub page: Duration,
}

impl Cost {
    /// Measures.
    pub fn measure() -> Result<Self, Errno> {
        let memory = Memory::map()?;
        let mut at_once = Duration::MAX;
        let mut one_by_one = Duration::MAX;
        for _ in 0..ROUNDS {
            at_once = at_once.min(memory.time_return(PAGES)?);
            one_by_one = one_by_one.min(memory.time_return(1)?);
        }
        Ok(Self { call: one_by_one.saturating_sub(at_once) / PAGES_U32, page: at_once / PAGES_U32 })
    }
}

/// What a page costs that an allocator returns and its program wants again, in CPU time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Refault {
    /// Cost of touching it again: the fault and a page of zeros, as for a first touch.
    pub touched: Duration,
    /// Cost of returning it before.
    pub returned: Duration,
}

impl Refault {
    /// Pages that are returned by one call: 64 KiB of them. Allocators find what they return in pieces.
    const RUN: usize = 16;
    /// The median of so many rounds counts.
    const ROUNDS: usize = 5;

    /// Measures, as it is in a program whose other threads run meanwhile: then returning pages interrupts the
    /// processors that these run on, which costs more than the rest of it.
    pub fn measure() -> Result<Self, Errno> {
        let memory = Memory::map()?;
        let (runs, done) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                runs.store(true, Ordering::Relaxed);
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            while !runs.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            let measured = Self::beside_a_thread(&memory);
            done.store(true, Ordering::Relaxed);
            measured
        })
    }

    fn beside_a_thread(memory: &Memory) -> Result<Self, Errno> {
        let (mut touched, mut returned) = (Vec::new(), Vec::new());
        for _ in 0..Self::ROUNDS {
            let begin = own_time()?;
            memory.touch();
            let between = own_time()?;
            memory.give_back(Self::RUN)?;
            touched.push(between.saturating_sub(begin));
            returned.push(own_time()?.saturating_sub(between));
        }
        let a_page = |mut all: Vec<Duration>| {
            all.sort_unstable();
            all[Self::ROUNDS / 2] / PAGES_U32
        };
        Ok(Self { touched: a_page(touched), returned: a_page(returned) })
    }
}

/// CPU time of this thread: what waits for a processor does not count.
fn own_time() -> Result<Duration, Errno> {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from)
}

/// Memory of our own.
struct Memory {
    start: *mut libc::c_void,
    page_bytes: usize,
}

impl Memory {
    fn map() -> Result<Self, Errno> {
        let page_bytes = usize_of(procfs::page_size());
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that there is.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGES * page_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let memory = Self { start, page_bytes };
        // A kernel without huge pages refuses, and needs it not.
        let _ = memory.advise(0, PAGES, libc::MADV_NOHUGEPAGE);
        Ok(memory)
    }

    fn time_return(&self, pages_a_call: usize) -> Result<Duration, Errno> {
        self.touch();
        let begin = Instant::now();
        self.give_back(pages_a_call)?;
        Ok(begin.elapsed())
    }

    /// Returns all pages, so many in a call.
    fn give_back(&self, pages_a_call: usize) -> Result<(), Errno> {
        for page in (0..PAGES).step_by(pages_a_call) {
            self.advise(page, pages_a_call, libc::MADV_DONTNEED)?;
        }
        Ok(())
    }

    /// Writes to all pages.
    fn touch(&self) {
        for page in 0..PAGES {
            // SAFETY: within the mapping, which is ours alone.
            unsafe { self.start.cast::<u8>().add(page * self.page_bytes).write_volatile(1) };
        }
    }

    fn advise(&self, page: usize, pages: usize, advice: i32) -> Result<(), Errno> {
        let bytes = pages * self.page_bytes;
        // SAFETY: within the mapping, which holds nothing that anybody reads.
        let done = unsafe {
            let from = self.start.cast::<u8>().add(page * self.page_bytes);
            libc::madvise(from.cast(), bytes, advice)
        };
        Errno::result(done).map(drop)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no pointer into it is left.
        let _ = unsafe { libc::munmap(self.start, PAGES * self.page_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returning_a_page_costs_something() {
        let cost = Cost::measure().unwrap();
        assert!(cost.page > Duration::ZERO && cost.page < Duration::from_millis(1));
    }

    #[test]
    fn a_page_that_goes_and_comes_costs_both_ways() {
        let refault = Refault::measure().unwrap();
        for cost in [refault.touched, refault.returned] {
            assert!(cost > Duration::ZERO && cost < Duration::from_millis(1), "{refault:?}");
        }
    }
}
