//! Arenas: how many there are, how long they keep idle memory, and each by its number.

use super::{Mib, ReadWrite, Result, raw, tree};

key! {
    /// Arenas that there are, explicit ones included.
    narenas: "arenas.narenas", u32, ReadOnly;
    /// Size of a page.
    page: "arenas.page", usize, ReadOnly;
    /// How long arenas that are made from now on keep idle memory, in milliseconds; -1 for ever.
    dirty_decay_ms: "arenas.dirty_decay_ms", isize, ReadWrite;
    /// The same for pages that the kernel may take; ebbmalloc has none.
    muzzy_decay_ms: "arenas.muzzy_decay_ms", isize, ReadWrite;
}

/// One arena, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arena(u32);

/// A new arena of the program's own, for blocks that C code asks for with `MALLOCX_ARENA` and for
/// threads that choose it as their [`thread::arena`](super::thread::arena).
pub fn create() -> Result<Arena> {
    // SAFETY: the name's values are of this type.
    unsafe { raw::read("arenas.create") }.map(Arena)
}

impl Arena {
    /// All arenas together, for [`purge`](Self::purge) and [`decay`](Self::decay).
    pub const ALL: Self = Self(4096);

    /// The arena of this number.
    pub fn with_index(index: u32) -> Self {
        Self(index)
    }

    /// Its number.
    pub fn index(self) -> u32 {
        self.0
    }

    fn place(self, what: &str) -> Result<tree::Place> {
        tree::look_up(format!("arena.{}.{what}", self.0).as_bytes())
    }

    /// Returns all of its free memory now.
    pub fn purge(self) -> Result<()> {
        tree::act(&self.place("purge")?)
    }

    /// Returns what has been idle for long enough.
    pub fn decay(self) -> Result<()> {
        tree::act(&self.place("decay")?)
    }

    /// Whether it is there.
    pub fn is_initialized(self) -> Result<bool> {
        // SAFETY: the name's values are of this type.
        unsafe { tree::read(&self.place("initialized")?) }
    }

    /// How long it keeps idle memory, in milliseconds; -1 for ever.
    pub fn dirty_decay_ms(self) -> Result<Mib<isize, ReadWrite>> {
        self.place("dirty_decay_ms").map(Mib::new)
    }

    /// Frees all of its blocks at once.
    ///
    /// # Safety
    /// None of them is used again, and no cache holds one.
    pub unsafe fn reset(self) -> Result<()> {
        tree::act(&self.place("reset")?)
    }

    /// Frees all of its blocks and gives its memory back; its number may come again.
    ///
    /// # Safety
    /// As for [`reset`](Self::reset).
    pub unsafe fn destroy(self) -> Result<()> {
        tree::act(&self.place("destroy")?)
    }
}
