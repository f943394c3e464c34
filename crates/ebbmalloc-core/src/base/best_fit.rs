//! Free extents by length, then address: best fit, and among equals the lowest address, which keeps the heap together.
//!
//! Each short length has a tree of its own, and a bit that says whether extents are in it. So a search, an insertion and
//! a removal meet one or two descriptors instead of a path through all. The arena's lock is held meanwhile, and with many
//! threads each descriptor lies in another processor's cache.

use super::tree::{ByAddress, Node, Order, Tree};

/// Extents of up to so many granules (4 MiB) are short: a bit each.
const SHORT: usize = u64::BITS as usize;

/// A free extent, by its descriptor.
pub trait Extent: Node {
    /// Its granules, at least one.
    ///
    /// # Safety
    /// `node` is a valid descriptor.
    unsafe fn length(node: *mut Self) -> u32;
}

/// By length, then address.
#[derive(Debug)]
struct ByLength;

impl<N: Extent> Order<N> for ByLength {
    type Key = (u32, usize);

    unsafe fn key(node: *mut N) -> (u32, usize) {
        // SAFETY: the node is a valid descriptor (contract of `Order::key`).
        unsafe { (N::length(node), N::address(node)) }
    }
}

/// See the module. All descriptors in it belong to the holder of one lock.
#[derive(Debug)]
pub struct BestFit<N> {
    /// Bit `i`: whether `short[i]` has an extent.
    filled: u64,
    /// Extents of `i + 1` granules.
    short: [Tree<N, ByAddress>; SHORT],
    long: Tree<N, ByLength>,
}

impl<N: Extent> BestFit<N> {
    /// No extent.
    pub const fn new() -> Self {
        Self { filled: 0, short: [const { Tree::new() }; SHORT], long: Tree::new() }
    }

    /// Adds an extent.
    ///
    /// # Safety
    /// `node` is the head of an extent that is in no tree, its length is set, and the caller holds the lock.
    pub unsafe fn insert(&mut self, node: *mut N) {
        // SAFETY: the trees ask for the same (fn contract).
        unsafe {
            let index = N::length(node) as usize - 1;
            match self.short.get_mut(index) {
                Some(tree) => {
                    tree.insert(node);
                    self.filled |= 1 << index;
                }
                None => self.long.insert(node),
            }
        }
    }

    /// Takes an extent out.
    ///
    /// # Safety
    /// `node` is here with an unchanged length, and the caller holds the lock.
    pub unsafe fn remove(&mut self, node: *mut N) {
        // SAFETY: `node` is in the tree of its length (fn contract).
        unsafe {
            let index = N::length(node) as usize - 1;
            match self.short.get_mut(index) {
                Some(tree) => {
                    tree.remove(node);
                    if tree.is_empty() {
                        self.filled &= !(1 << index);
                    }
                }
                None => self.long.remove(node),
            }
        }
    }

    /// The shortest extent of at least `length` granules, one or more, at the lowest address among equals; null if there
    /// is none.
    ///
    /// # Safety
    /// The caller holds the lock.
    pub unsafe fn best_fit(&self, length: u32) -> *mut N {
        let least = length as usize - 1;
        let fitting = if least < SHORT { self.filled >> least } else { 0 };
        // SAFETY: the caller holds the lock (fn contract), so every node is valid and no tree changes.
        unsafe {
            if fitting != 0 {
                return self.short[least + fitting.trailing_zeros() as usize].first();
            }
            self.long.first_where(|node| N::length(node) >= length)
        }
    }

    /// The longest extent, at the highest address among equals; null if there is none.
    ///
    /// # Safety
    /// The caller holds the lock.
    pub unsafe fn last(&self) -> *mut N {
        let tree = self.filled.checked_ilog2().map(|index| &self.short[index as usize]);
        // SAFETY: the caller holds the lock (fn contract), so every node is valid and no tree changes.
        unsafe {
            match tree {
                Some(tree) if self.long.is_empty() => tree.last(),
                _ => self.long.last(),
            }
        }
    }
}

#[cfg(test)]
impl<N> BestFit<N> {
    /// Not empty, and not to be looked into.
    pub fn torn() -> Self {
        let short = core::array::from_fn(|_| Tree::torn());
        Self { filled: u64::MAX, short, long: Tree::torn() }
    }
}

#[cfg(any(test, loom))]
impl<N: Extent> BestFit<N> {
    /// Checks the trees, and that each extent is where its length belongs; calls `visit` for each. Returns how many there
    /// are.
    ///
    /// # Safety
    /// The caller holds the lock.
    pub unsafe fn validate(&self, visit: &mut dyn FnMut(*mut N)) -> usize {
        let mut count = 0;
        // SAFETY: the caller holds the lock (fn contract).
        unsafe {
            for (index, tree) in self.short.iter().enumerate() {
                count += tree.validate(&mut |node| {
                    assert_eq!(N::length(node) as usize, index + 1);
                    visit(node);
                });
                assert_eq!(tree.is_empty(), self.filled & (1 << index) == 0);
            }
            count
                + self.long.validate(&mut |node| {
                    assert!(N::length(node) as usize > SHORT);
                    visit(node);
                })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::granule::Granule;

    #[test]
    fn best_fit_agrees_with_a_sorted_set_at_every_step() {
        let mut nodes: Vec<Box<Granule>> = (1..200).map(|i| Box::new(Granule::new(i << 16))).collect();
        let mut extents = BestFit::<Granule>::new();
        let mut model = std::collections::BTreeSet::new();
        let mut seed = 1u64;
        for _ in 0..5000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let node: *mut Granule = &mut *nodes[(seed >> 33) as usize % 199];
            // SAFETY: the nodes are boxed and live; the test is alone.
            unsafe {
                let at = ((*node).len, (*node).base);
                if model.remove(&at) {
                    extents.remove(node);
                } else {
                    (*node).len = (seed >> 50) as u32 % 80 + 1;
                    extents.insert(node);
                    model.insert(((*node).len, (*node).base));
                }
                assert_eq!(extents.validate(&mut |_| ()), model.len());
                let base = |node: *mut Granule| node.as_ref().map(|found| found.base);
                assert_eq!(base(extents.last()), model.last().map(|last| last.1));
                let want = (seed >> 40) as u32 % 85 + 1;
                let expected = model.range((want, 0)..).next();
                assert_eq!(base(extents.best_fit(want)), expected.map(|fit| fit.1));
            }
        }
    }
}
