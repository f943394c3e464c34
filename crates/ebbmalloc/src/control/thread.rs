//! The calling thread: what it has allocated, its arena, its cache.

use super::{Mib, ReadOnly, Result, raw, tree};

key! {
    /// The arena that the thread's small blocks come from.
    arena: "thread.arena", u32, ReadWrite;
    /// Whether the thread has a cache of free blocks.
    tcache_enabled: "thread.tcache.enabled", bool, ReadWrite;
}

/// A counter of one thread's, which cannot leave it.
#[derive(Clone, Copy, Debug)]
pub struct ThreadLocal<T>(*const T);

impl<T: Copy> ThreadLocal<T> {
    /// Its value now.
    pub fn get(self) -> T {
        // SAFETY: the tree gives the address of a counter that lives as long as its thread, which is
        // this one: the pointer makes the type stay in it. Only the thread itself counts there.
        unsafe { self.0.read_volatile() }
    }
}

/// A counter's modules: the looked-up name gives the calling thread's counter.
macro_rules! counter {
    ($($(#[$doc:meta])* $module:ident: $name:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// The counter is live: asking for it is one call, reading it is one load.
        pub mod $module {
            use super::*;

            /// The calling thread's counter.
            pub fn read() -> Result<ThreadLocal<u64>> {
                mib()?.read()
            }

            /// The name's place, for many threads without the search.
            pub fn mib() -> Result<CounterMib> {
                raw::mib($name).map(CounterMib)
            }
        }
    )*};
}

/// The looked-up name of a counter.
#[derive(Clone, Copy, Debug)]
pub struct CounterMib(Mib<*mut u64, ReadOnly>);

impl CounterMib {
    /// The calling thread's counter.
    pub fn read(&self) -> Result<ThreadLocal<u64>> {
        self.0.read().map(|counter| ThreadLocal(counter))
    }
}

counter! {
    /// Bytes that the thread has allocated since its start.
    allocatedp: "thread.allocatedp";
    /// Bytes that the thread has freed since its start, also bytes that other threads allocated.
    deallocatedp: "thread.deallocatedp";
}

/// Gives all that the thread's cache holds back to the arenas.
pub fn flush_tcache() -> Result<()> {
    tree::act(&tree::look_up(b"thread.tcache.flush")?)
}

/// Says that the thread will be idle for a while: its cache is returned.
pub fn idle() -> Result<()> {
    tree::act(&tree::look_up(b"thread.idle")?)
}
