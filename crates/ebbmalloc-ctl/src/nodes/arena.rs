//! `arena.<i>.*`: one arena, or all of them.

use crate::errno::{Errno, Result};
use crate::node::Node;
use ebbmalloc_core::process::figures::Which;
use ebbmalloc_core::process::{self, control};

/// The index that stands for all arenas.
pub const ALL: usize = 4096;
/// The index that stands for those that were destroyed.
pub const DESTROYED: usize = 4097;

/// Whether there is an arena of this index; the one behind the last is an old name for all.
pub fn holds(_: &[usize], index: usize) -> bool {
    index == ALL || index == DESTROYED || index <= control::arenas()
}

/// What an index that [`holds`] stands for.
pub fn which(index: usize) -> Which {
    match index {
        DESTROYED => Which::Destroyed,
        ALL => Which::All,
        index if index == control::arenas() => Which::All,
        index => Which::One(index),
    }
}

/// How long memory of an arena may stay idle, in milliseconds; -1 for ever.
pub fn decay_of(_index: usize) -> Result<isize> {
    Ok(control::own_decay_ms())
}

pub static NODES: &[Node] = &[
    read!("initialized", bool, |mib| Ok(mib[1] < control::arenas())),
    act!("decay", |mib| existing(mib).map(|_| ())),
    act!("purge", |mib| {
        existing(mib)?;
        process::trim();
        Ok(())
    }),
];

/// The index of a call, if it stands for something that is there.
fn existing(mib: &[usize]) -> Result<u32> {
    let index = super::unsigned(mib, 1)?;
    if index as usize == DESTROYED {
        return Err(Errno::EFAULT);
    }
    Ok(index)
}
