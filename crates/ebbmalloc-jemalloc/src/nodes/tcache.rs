//! `tcache.*`: explicit caches.

use crate::arenas;
use crate::errno::Errno;
use crate::node::{Access, Node};
use ebbmalloc_core::base::exact::u32_of;

pub static NODES: &[Node] = &[
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
        // SAFETY: who ends a cache says that nobody uses it any more.
        unsafe { arenas::destroy_cache(index as usize) };
        Ok(())
    }),
];
