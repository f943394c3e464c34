//! What returning pages costs on this machine, and having one again: measured on memory of our own, in a few
//! milliseconds.
//!
//! malloc_trim makes a call of madvise for each free chunk that has a whole page. So its time follows from
//! the number of such chunks and of the pages in them.

use std::time::{Duration, Instant};

use nix::errno::Errno;

/// Pages that are touched and returned: so many that a call's own cost is seen, and done in a millisecond.
const PAGES: usize = 1024;
/// The fastest of so many rounds counts: others have been disturbed.
const ROUNDS: usize = 3;

/// The cost of returning memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Of a system call, without its pages.
    pub call: Duration,
    /// Of a page.
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
        Ok(Self {
            call: one_by_one.saturating_sub(at_once) / PAGES as u32,
            page: at_once / PAGES as u32,
        })
    }

    /// Measures what a page costs that is touched for the first time, or again after it was returned: the fault, and a
    /// page of zeros.
    pub fn of_page_fault() -> Result<Duration, Errno> {
        let memory = Memory::map()?;
        let mut all = Duration::MAX;
        for _ in 0..ROUNDS {
            all = all.min(memory.time_touch());
            memory.advise(0, PAGES, libc::MADV_DONTNEED)?;
        }
        Ok(all / PAGES as u32)
    }

    /// Of returning `pages` in `calls`.
    pub fn of(&self, calls: u64, pages: u64) -> Duration {
        let seconds =
            self.call.as_secs_f64() * calls as f64 + self.page.as_secs_f64() * pages as f64;
        Duration::from_secs_f64(seconds)
    }
}

/// Memory of our own.
struct Memory {
    start: *mut libc::c_void,
    page_bytes: usize,
}

impl Memory {
    fn map() -> Result<Self, Errno> {
        let page_bytes = procfs::page_size() as usize;
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

    /// How long it takes to return all pages, so many in a call.
    fn time_return(&self, pages_a_call: usize) -> Result<Duration, Errno> {
        self.time_touch();
        let begin = Instant::now();
        for page in (0..PAGES).step_by(pages_a_call) {
            self.advise(page, pages_a_call, libc::MADV_DONTNEED)?;
        }
        Ok(begin.elapsed())
    }

    /// How long it takes to write to all pages.
    fn time_touch(&self) -> Duration {
        let begin = Instant::now();
        for page in 0..PAGES {
            // SAFETY: within the mapping, which is ours alone.
            unsafe {
                self.start
                    .cast::<u8>()
                    .add(page * self.page_bytes)
                    .write_volatile(1)
            };
        }
        begin.elapsed()
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
        // SAFETY: the mapping is ours, and nobody has a pointer into it any more.
        let _ = unsafe { libc::munmap(self.start, PAGES * self.page_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returning_costs_something_and_more_pages_cost_more() {
        let cost = Cost::measure().unwrap();
        assert!(cost.page > Duration::ZERO && cost.page < Duration::from_millis(1));
        assert!(cost.of(10, 1000) > cost.of(10, 10));
        assert_eq!(cost.of(0, 0), Duration::ZERO);
        let fault = Cost::of_page_fault().unwrap();
        assert!(fault > Duration::ZERO && fault < Duration::from_millis(1));
    }
}
