//! `thread.*`: the calling thread; `tcache.*`: explicit caches.

use crate::arenas;
use crate::errno::{Errno, Result};
use crate::node::{Access, Node};
use core::sync::atomic::{AtomicU64, Ordering};
use ebbmalloc_core::base::exact::u32_of;
use ebbmalloc_core::runtime::face::{HEAP, with_own_cache};
use ebbmalloc_core::runtime::thread_control;
use ebbmalloc_core::size::{CLASS, SMALL_MAX};

pub static NODES: &[Node] = &[
    Node::leaf::<u32>("arena", Access::ReadWrite, |call| {
        let old = u32_of(arenas::of_thread());
        let new = call.take::<u32>()?;
        call.give(old)?;
        match new {
            Some(new) if new != old && !arenas::move_thread(new as usize) => Err(Errno::EFAULT),
            _ => Ok(()),
        }
    }),
    read!("allocated", u64, |_| Ok(load(&counters()?.allocated))),
    read!("allocatedp", *mut u64, |_| Ok(counters()?.allocated.as_ptr())),
    read!("deallocated", u64, |_| Ok(load(&counters()?.deallocated))),
    read!("deallocatedp", *mut u64, |_| Ok(counters()?.deallocated.as_ptr())),
    Node::group("tcache", TCACHE),
    Node::group("prof", super::prof::THREAD),
    Node::group("peak", PEAK),
    act!("idle", flush),
];

static PEAK: &[Node] = &[
    read!("read", u64, |_| thread_control::thread_peak().ok_or(Errno::EAGAIN)),
    act!("reset", |_| { if thread_control::reset_thread_peak() { Ok(()) } else { Err(Errno::EAGAIN) } }),
];

static TCACHE: &[Node] = &[
    Node::leaf::<bool>("enabled", Access::ReadWrite, |call| {
        let was = thread_control::has_thread_cache();
        if let Some(enabled) = call.take::<bool>()?
            && !thread_control::set_thread_cache(enabled)
        {
            return Err(Errno::EAGAIN);
        }
        call.give(was)
    }),
    read_write!("max", usize, |_| Ok(cache_max()), |_, most| {
        if set_cache_max(most.min(SMALL_MAX)) { Ok(()) } else { Err(Errno::EAGAIN) }
    }),
    act!("flush", |mib| {
        if !thread_control::has_thread_cache() {
            return Err(Errno::EFAULT);
        }
        flush(mib)
    }),
];

fn counters() -> Result<&'static thread_control::Counters> {
    thread_control::thread_counters().ok_or(Errno::EAGAIN)
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn flush(_: &[usize]) -> Result<()> {
    thread_control::flush_thread_cache();
    Ok(())
}

/// The largest slots that the calling thread's cache keeps, in bytes; 0 for none.
fn cache_max() -> usize {
    with_own_cache(|own| {
        let class = own.map_or(0, |own| {
            // SAFETY: `with_own_cache` has entered it.
            unsafe { own.limit_now() }
        });
        CLASS[class].size as usize
    })
}

/// Lets the calling thread's cache keep slots of up to `bytes`, or none for 0. False if it has none.
fn set_cache_max(bytes: usize) -> bool {
    with_own_cache(|own| match own {
        // SAFETY: `with_own_cache` has entered it.
        Some(own) => unsafe {
            HEAP.limit_cache(own, bytes);
            true
        },
        None => false,
    })
}

/// `tcache.*`: explicit caches.
pub static CACHES: &[Node] = &[
    Node::leaf::<u32>("create", Access::Read, |call| {
        call.read_only()?;
        call.insists_on_old::<u32>()?;
        let index = arenas::create_cache().ok_or(Errno::EFAULT)?;
        call.give(u32_of(index))
    }),
    Node::leaf::<u32>("flush", Access::Write, |call| {
        call.write_only()?;
        let index = call.insists_on_new::<u32>()?;
        arenas::flush_cache(index as usize);
        Ok(())
    }),
    Node::leaf::<u32>("destroy", Access::Write, |call| {
        call.write_only()?;
        let index = call.insists_on_new::<u32>()?;
        // SAFETY: a program that ends a cache says that it is not in use any more.
        unsafe { arenas::destroy_cache(index as usize) };
        Ok(())
    }),
];
