//! Blocks by their sizes.

use std::collections::BTreeMap;

use ebb_inspect::glibc::SizeCount;

use crate::snapshot::Class;

/// Those that have any.
pub(super) fn classes(sizes: &[SizeCount]) -> BTreeMap<u64, Class> {
    sizes
        .iter()
        .filter(|size| size.chunks > 0)
        .map(|size| {
            let class = Class { count: size.chunks, bytes: size.bytes };
            (size.up_to, class)
        })
        .collect()
}
