//! `arena.<i>.*`: one arena, or all of them.

use crate::errno::{Errno, Result};
use crate::node::Node;
use ebbmalloc_core::process::{self, control};

/// The index that stands for all arenas.
pub const ALL: usize = 4096;
/// The index that stands for those that were destroyed.
pub const DESTROYED: usize = 4097;

/// Whether there is an arena of this index; the one behind the last is an old name for all.
pub fn holds(_: &[usize], index: usize) -> bool {
    index == ALL || index == DESTROYED || index <= control::arenas()
}

/// Whether an index stands for all arenas.
#[allow(dead_code)] // For the groups to come.
pub fn is_all(index: usize) -> bool {
    index == ALL || index == control::arenas()
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
