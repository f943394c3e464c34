//! Typed control: what jemalloc's users reach by names such as `stats.allocated`, in Rust.
//!
//! The calls have the shape of those of `tikv-jemalloc-ctl`, so that a program which has them needs
//! another `use` line and no more. Each name that this module knows is a module with `read`, and where
//! it can be set `write` and `update`; `mib` looks the name up once for many calls. [`raw`] reaches
//! every other name of the tree; docs/jemalloc.md lists them all and says what each means here.
//!
//! ```
//! use ebbmalloc::control::{epoch, stats};
//!
//! #[global_allocator]
//! static GLOBAL: ebbmalloc::Ebbmalloc = ebbmalloc::Ebbmalloc;
//!
//! fn main() -> ebbmalloc::control::Result<()> {
//!     # if cfg!(not(target_os = "linux")) { return Ok(()); }
//!     let allocated = stats::allocated::mib()?;
//!     let before = allocated.read()?;
//!     let block = vec![1_u8; 1 << 20];
//!     // Statistics are those of the last epoch.
//!     epoch::advance()?;
//!     assert!(allocated.read()? >= before + block.len());
//!     Ok(())
//! }
//! ```
//!
//! On systems where ebbmalloc passes requests through, every call fails.

#[macro_use]
mod key;
mod error;
#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "other.rs")]
mod tree;

pub mod arenas;
pub mod profiling;
pub mod raw;
pub mod stats_print;
pub mod thread;

pub use error::{Error, Result};
pub use key::{Mib, ReadOnly, ReadWrite, Value};

key! {
    /// The release of jemalloc whose names these are, then that of ebbmalloc.
    version: "version", &'static str, ReadOnly;
    /// Whether a thread of the allocator returns memory; otherwise calls of malloc and free do.
    background_thread: "background_thread", bool, ReadWrite;
    /// How many such threads there may be; ebbmalloc has at most one.
    max_background_threads: "max_background_threads", usize, ReadWrite;
}

pub mod epoch {
    //! The statistics' age: they are taken when the epoch is advanced, and stand still in between.

    use super::{Mib, ReadWrite, Result, raw};

    /// Takes new statistics; returns the epoch's number.
    pub fn advance() -> Result<u64> {
        mib()?.advance()
    }

    /// The epoch's number.
    pub fn read() -> Result<u64> {
        mib()?.0.read()
    }

    /// Looks the name up once for many calls.
    pub fn mib() -> Result<EpochMib> {
        Ok(EpochMib(raw::mib("epoch")?))
    }

    /// The looked-up name.
    #[derive(Clone, Copy, Debug)]
    pub struct EpochMib(pub(super) Mib<u64, ReadWrite>);

    impl EpochMib {
        /// Takes new statistics; returns the epoch's number.
        pub fn advance(&self) -> Result<u64> {
            self.0.update(1)
        }

        /// The epoch's number.
        pub fn read(&self) -> Result<u64> {
            self.0.read()
        }
    }
}

pub mod opt {
    //! The settings that are in force, each by the name that `MALLOC_CONF` and `EBB_CONF` know it by.

    key! {
        /// Whether a warning ends the process.
        abort: "opt.abort", bool, ReadOnly;
        /// Whether memory comes from the program break.
        dss: "opt.dss", &'static str, ReadOnly;
        /// Arenas that there are without anybody's asking.
        narenas: "opt.narenas", u32, ReadOnly;
        /// What new and freed blocks are filled with.
        junk: "opt.junk", &'static str, ReadOnly;
        /// Whether new blocks are filled with zeros.
        zero: "opt.zero", bool, ReadOnly;
        /// Whether threads have caches.
        tcache: "opt.tcache", bool, ReadOnly;
        /// The largest block that caches take.
        tcache_max: "opt.tcache_max", usize, ReadOnly;
        /// Whether a thread of the allocator was asked for.
        background_thread: "opt.background_thread", bool, ReadOnly;
        /// How long memory may stay idle, in milliseconds; -1 for ever.
        dirty_decay_ms: "opt.dirty_decay_ms", isize, ReadOnly;
        /// The same for pages that the kernel may take; ebbmalloc has none.
        muzzy_decay_ms: "opt.muzzy_decay_ms", isize, ReadOnly;
    }
}

pub mod stats {
    //! Figures of the whole heap, as of the last [epoch](super::epoch).
    //!
    //! They are ordered: allocated <= active <= resident <= mapped.

    key! {
        /// Bytes of all blocks that are with the program, at their usable sizes.
        allocated: "stats.allocated", usize, ReadOnly;
        /// Bytes of all pages that hold such blocks.
        active: "stats.active", usize, ReadOnly;
        /// Bytes that the allocator's own records take.
        metadata: "stats.metadata", usize, ReadOnly;
        /// Bytes that are in memory: what the kernel counts as resident.
        resident: "stats.resident", usize, ReadOnly;
        /// Bytes of address space that the allocator has made usable.
        mapped: "stats.mapped", usize, ReadOnly;
        /// Bytes of address space that are kept for later, without memory.
        retained: "stats.retained", usize, ReadOnly;
    }
}
