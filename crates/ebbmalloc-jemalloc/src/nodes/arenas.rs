//! `arenas.*`: how many arenas there are, what they have in common, their size classes.

use crate::arenas;
use crate::errno::{Errno, Result};
use crate::node::{Access, Node};
use core::ffi::c_void;
use core::ptr::null_mut;
use ebbmalloc_core::base::exact::{u32_of, usize_of};
use ebbmalloc_core::os::Os;
use ebbmalloc_core::os::hooks::ExtentHooks;
use ebbmalloc_core::runtime::conf::Id;
use ebbmalloc_core::runtime::face::HEAP;
use ebbmalloc_core::runtime::{decay, in_force};
pub use ebbmalloc_core::size::large::LARGE_CLASSES;
use ebbmalloc_core::size::large::large_class_size;
use ebbmalloc_core::size::{CLASS, CLASSES, GRANULE, QUANTUM};

pub static NODES: &[Node] = &[
    read!("narenas", u32, |_| Ok(u32_of(arenas::count()))),
    read_write!("dirty_decay_ms", isize, |_| Ok(decay::of_future()), |_, new| done(decay::set_of_future(new))),
    read_write!("muzzy_decay_ms", isize, |_| Ok(arenas::muzzy()), |_, new| { done(arenas::set_muzzy(new)) }),
    read!("quantum", usize, |_| Ok(QUANTUM)),
    read!("page", usize, |_| Ok(HEAP.os.page_bytes())),
    read!("hugepage", usize, |_| Ok(2 << 20)),
    read!("tcache_max", usize, |_| Ok(usize_of(in_force::number(Id::TcacheMax)))),
    read!("nbins", u32, |_| Ok(u32_of(CLASSES))),
    read!("nhbins", u32, |_| Ok(u32_of(CLASSES))),
    Node::indexed("bin", |_, bin| bin < CLASSES, BIN),
    read!("nlextents", u32, |_| Ok(u32_of(LARGE_CLASSES))),
    Node::indexed("lextent", |_, class| class < LARGE_CLASSES, LEXTENT),
    Node::leaf::<u32>("create", Access::ReadWrite, |call| {
        call.insists_on_old::<u32>()?;
        let hooks = call.take::<*mut ExtentHooks>()?.unwrap_or(null_mut());
        let index = arenas::create(hooks).ok_or(Errno::EAGAIN)?;
        call.give(u32_of(index))
    }),
    Node::leaf::<u32>("lookup", Access::ReadWrite, |call| {
        let address = call.insists_on_new::<*mut c_void>()?;
        let index = arenas::lookup(address as usize).ok_or(Errno::EINVAL)?;
        call.give(u32_of(index))
    }),
];

fn done(done: bool) -> Result<()> {
    if done { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Bins are counted from 0, classes from 1.
static BIN: &[Node] = &[
    read!("size", usize, |mib| Ok(CLASS[mib[2] + 1].size as usize)),
    read!("nregs", u32, |mib| Ok(CLASS[mib[2] + 1].slots)),
    read!("slab_size", usize, |mib| Ok(CLASS[mib[2] + 1].granules as usize * GRANULE)),
    read!("nshards", u32, |_| Ok(1)),
];

/// Large blocks are whole pages; these are the classes that they are counted under.
static LEXTENT: &[Node] = &[read!("size", usize, |mib| Ok(large_class_size(mib[2])))];
