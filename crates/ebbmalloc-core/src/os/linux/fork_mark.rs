//! Finding out that this process is a child whose fork ran no handlers (raw clone, `_Fork`): a page
//! that the kernel wipes in every child with a memory of its own (MADV_WIPEONFORK, Linux 4.14).
//!
//! A child that shares the memory (vfork, CLONE_VM) sees the mark, as it should: it is the same heap.
//! It is recognised by its process id, for one purpose: threads it starts end with it.

use core::sync::atomic::{AtomicU32, Ordering};

use super::arch::nr;
use super::call::call;
use super::{Linux, Os, memory};

/// In place of the page's address: the kernel has no such pages.
const UNSUPPORTED: usize = 1;

impl Linux {
    /// Marks this process as the one that the allocator's state belongs to. False if the kernel
    /// cannot wipe the mark in children, so that [`Linux::is_alive_here`] always says true.
    pub fn mark_alive(&self) -> bool {
        self.owner.store(self.process_id(), Ordering::Relaxed);
        if self.fork_mark.load(Ordering::Acquire) == 0 {
            let made = self.make_mark().unwrap_or(UNSUPPORTED);
            let raced = self.fork_mark.compare_exchange(0, made, Ordering::AcqRel, Ordering::Acquire);
            if raced.is_err() && made != UNSUPPORTED {
                // SAFETY: another thread's page is in use; ours never was.
                unsafe { memory::release(made, self.page_bytes()) };
            }
        }
        match self.mark() {
            Some(mark) => {
                mark.store(1, Ordering::Relaxed);
                true
            }
            None => false,
        }
    }

    /// False in a child of a fork until it calls [`Linux::mark_alive`]; true where nothing has been
    /// marked yet.
    #[inline]
    pub fn is_alive_here(&self) -> bool {
        self.mark().is_none_or(|mark| mark.load(Ordering::Relaxed) != 0)
    }

    /// Id of the process that the heap belongs to, as of [`Linux::mark_alive`]: without a system call.
    pub fn owner_id(&self) -> u32 {
        self.owner.load(Ordering::Relaxed)
    }

    /// Whether the kernel wipes the mark in children: forks without handlers are noticed.
    pub fn has_fork_mark(&self) -> bool {
        self.mark().is_some()
    }

    /// Whether this process only borrows its memory from its parent, which called
    /// [`Linux::mark_alive`]: a child of vfork before its exec. A thread started here would be
    /// killed in the middle of whatever it does to the owner's heap.
    pub fn is_borrower(&self) -> bool {
        let (owner, this) = (self.owner.load(Ordering::Relaxed), self.process_id());
        if owner == this {
            return false;
        }
        // SAFETY: no arguments, no effects.
        if unsafe { call(nr::GETPPID, []) } == Ok(owner as usize) {
            return owner != 0;
        }
        // A child of vfork was the first to mark, and is gone.
        self.owner.store(this, Ordering::Relaxed);
        false
    }

    #[inline]
    fn mark(&self) -> Option<&AtomicU32> {
        match self.fork_mark.load(Ordering::Acquire) {
            0 | UNSUPPORTED => None,
            // SAFETY: the address is that of a page that `make_mark` mapped and that is never unmapped.
            page => Some(unsafe { AtomicU32::from_ptr(page as *mut u32) }),
        }
    }

    fn make_mark(&self) -> Option<usize> {
        const MADV_WIPEONFORK: usize = 18;
        let bytes = self.page_bytes();
        let page = memory::map_anonymous(bytes).ok()?;
        // SAFETY: the page was mapped just now and is ours.
        if unsafe { call(nr::MADVISE, [page, bytes, MADV_WIPEONFORK]) }.is_err() {
            // SAFETY: no other thread knows of the page.
            unsafe { memory::release(page, bytes) };
            return None;
        }
        // Marked before anybody can find it: a thread that saw the page unmarked would take itself
        // for a child and free locks that are held.
        // SAFETY: the page is ours alone until it is returned.
        unsafe { (page as *mut u32).write(1) };
        Some(page)
    }
}
