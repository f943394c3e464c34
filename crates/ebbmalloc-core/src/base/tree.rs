//! A tree of units in an order: of slabs and of free extents of one length by address, of long extents by length.
//!
//! A treap (Aragon and Seidel, "Randomized Search Trees", 1989): the priority is a hash of the
//! address, so nothing has to be stored for balance and the shape does not depend on the order of
//! insertion. The nodes are the units' own descriptors.

use core::marker::PhantomData;
use core::ptr::null_mut;

/// The descriptor of a unit, which has two words for its children in a tree.
pub trait Node: Sized {
    /// The word for the left child.
    ///
    /// # Safety
    /// `node` is a valid descriptor.
    unsafe fn left(node: *mut Self) -> *mut *mut Self;

    /// The word for the right child.
    ///
    /// # Safety
    /// `node` is a valid descriptor.
    unsafe fn right(node: *mut Self) -> *mut *mut Self;

    /// Address of the unit.
    ///
    /// # Safety
    /// `node` is a valid descriptor.
    unsafe fn address(node: *mut Self) -> usize;
}

/// An order of units.
pub trait Order<N> {
    /// What they are compared by; no two units have the same.
    type Key: Ord + Copy;

    /// That of a unit.
    ///
    /// # Safety
    /// `node` is a valid descriptor.
    unsafe fn key(node: *mut N) -> Self::Key;
}

/// By address.
#[derive(Debug)]
pub struct ByAddress;

impl<N: Node> Order<N> for ByAddress {
    type Key = usize;

    unsafe fn key(node: *mut N) -> usize {
        // SAFETY: the node is a valid descriptor (contract of `Order::key`).
        unsafe { N::address(node) }
    }
}

/// See the module. All descriptors in it belong to the holder of one lock, that of the arena or of a bin.
#[derive(Debug)]
pub struct Tree<N, O> {
    root: *mut N,
    order: PhantomData<O>,
}

fn priority(address: usize) -> u64 {
    // Fibonacci hashing (Knuth, TAOCP 3, 6.4) of the number of 64 KiB, mixed once more.
    let hash = ((address >> 16) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (hash ^ (hash >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

impl<N: Node, O: Order<N>> Tree<N, O> {
    /// An empty tree.
    pub const fn new() -> Self {
        Self { root: null_mut(), order: PhantomData }
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.root.is_null()
    }

    /// Adds a unit.
    ///
    /// # Safety
    /// `node` is the head of a unit that is in no tree, what it is ordered by is set, and the
    /// caller holds the lock.
    pub unsafe fn insert(&mut self, node: *mut N) {
        // SAFETY: every node of the tree is a valid descriptor under the caller's lock; `link`
        // points at `root` or at a child field of such a node.
        unsafe {
            let (node_key, node_priority) = (O::key(node), priority(N::address(node)));
            let mut link: *mut *mut N = &raw mut self.root;
            while !(*link).is_null() && priority(N::address(*link)) >= node_priority {
                link = if node_key < O::key(*link) { N::left(*link) } else { N::right(*link) };
            }
            // Split the subtree at `link` by the key; the halves become the children.
            let mut rest = *link;
            *link = node;
            let mut less: *mut *mut N = N::left(node);
            let mut more: *mut *mut N = N::right(node);
            while !rest.is_null() {
                if O::key(rest) < node_key {
                    *less = rest;
                    less = N::right(rest);
                    rest = *less;
                } else {
                    *more = rest;
                    more = N::left(rest);
                    rest = *more;
                }
            }
            *less = null_mut();
            *more = null_mut();
        }
    }

    /// Takes a unit out.
    ///
    /// # Safety
    /// `node` is in this tree with an unchanged key, and the caller holds the lock.
    pub unsafe fn remove(&mut self, node: *mut N) {
        // SAFETY: the caller holds the lock (fn contract), so links lead to valid units; the search ends because
        // `node` is in the tree.
        unsafe {
            let node_key = O::key(node);
            let mut link: *mut *mut N = &raw mut self.root;
            while *link != node {
                debug_assert!(!(*link).is_null());
                link = if node_key < O::key(*link) { N::left(*link) } else { N::right(*link) };
            }
            let (mut left, mut right) = (*N::left(node), *N::right(node));
            // Merge the children by priority.
            while !left.is_null() && !right.is_null() {
                if priority(N::address(left)) >= priority(N::address(right)) {
                    *link = left;
                    link = N::right(left);
                    left = *link;
                } else {
                    *link = right;
                    link = N::left(right);
                    right = *link;
                }
            }
            *link = if left.is_null() { right } else { left };
            *N::left(node) = null_mut();
            *N::right(node) = null_mut();
        }
    }

    /// The first; null if there is none.
    ///
    /// # Safety
    /// The caller holds the lock.
    pub unsafe fn first(&self) -> *mut N {
        // SAFETY: the caller holds the lock (fn contract), under which the tree does not change.
        unsafe { self.first_where(|_| true) }
    }

    /// The last; null if there is none.
    ///
    /// # Safety
    /// The caller holds the lock.
    pub unsafe fn last(&self) -> *mut N {
        let mut at = self.root;
        // SAFETY: every node is a valid descriptor under the caller's lock.
        unsafe {
            while !at.is_null() && !(*N::right(at)).is_null() {
                at = *N::right(at);
            }
        }
        at
    }

    /// The first node for which `holds` is true; null if there is none. `holds` is then true for all nodes after it.
    ///
    /// # Safety
    /// The caller holds the lock.
    #[inline]
    pub unsafe fn first_where(&self, holds: impl Fn(*mut N) -> bool) -> *mut N {
        let mut found = null_mut();
        let mut at = self.root;
        while !at.is_null() {
            // SAFETY: every node is a valid descriptor under the caller's lock.
            unsafe {
                if holds(at) {
                    found = at;
                    at = *N::left(at);
                } else {
                    at = *N::right(at);
                }
            }
        }
        found
    }

    /// Whether another unit than `node` is in it.
    ///
    /// # Safety
    /// The caller holds the lock.
    pub unsafe fn has_other(&self, node: *mut N) -> bool {
        let root = self.root;
        // SAFETY: every node is a valid descriptor under the caller's lock.
        unsafe { !root.is_null() && (root != node || !(*N::left(root)).is_null() || !(*N::right(root)).is_null()) }
    }

    /// Takes all units of `other`, which is empty afterwards: at once if nothing was here, else one by one.
    ///
    /// # Safety
    /// The caller holds the locks of both.
    pub unsafe fn append(&mut self, other: &mut Self) {
        if self.is_empty() {
            core::mem::swap(self, other);
        }
        // SAFETY: the caller holds both locks (fn contract); each unit is taken out of one tree before it enters the
        // other.
        unsafe {
            while !other.is_empty() {
                let node = other.root;
                other.remove(node);
                self.insert(node);
            }
        }
    }
}

impl<N: Node> Tree<N, ByAddress> {
    /// The first after `address`; null if there is none.
    ///
    /// # Safety
    /// The caller holds the lock.
    pub unsafe fn behind(&self, address: usize) -> *mut N {
        // SAFETY: the caller holds the lock (fn contract), so every node is valid and the tree does not change.
        unsafe { self.first_where(|node| N::address(node) > address) }
    }
}

#[cfg(test)]
impl<N, O> Tree<N, O> {
    /// Not empty, and not to be looked into.
    pub fn torn() -> Self {
        Self { root: crate::base::corrupt::torn(), order: PhantomData }
    }
}

#[cfg(any(test, loom))]
impl<N: Node, O: Order<N>> Tree<N, O> {
    /// Checks order and priorities; calls `visit` for each unit. Returns how many there are.
    ///
    /// # Safety
    /// The caller holds the lock.
    pub unsafe fn validate(&self, visit: &mut dyn FnMut(*mut N)) -> usize {
        unsafe fn walk<N: Node, O: Order<N>>(
            at: *mut N,
            visit: &mut dyn FnMut(*mut N),
            previous: &mut Option<O::Key>,
        ) -> usize {
            if at.is_null() {
                return 0;
            }
            // SAFETY: every node is a valid descriptor under the caller's lock.
            unsafe {
                for child in [*N::left(at), *N::right(at)] {
                    assert!(child.is_null() || priority(N::address(child)) <= priority(N::address(at)));
                }
                let left = walk::<N, O>(*N::left(at), visit, previous);
                let key = O::key(at);
                assert!(previous.is_none_or(|previous| previous < key));
                *previous = Some(key);
                visit(at);
                left + 1 + walk::<N, O>(*N::right(at), visit, previous)
            }
        }
        // SAFETY: the caller holds the lock.
        unsafe { walk::<N, O>(self.root, visit, &mut None) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::granule::Granule;

    /// The next of a sequence of numbers, whose upper bits are random enough.
    fn next(seed: &mut u64) -> usize {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*seed >> 33) as usize
    }

    #[test]
    fn by_address_agrees_with_a_sorted_set_at_every_step() {
        let mut nodes: Vec<Box<Granule>> = (1..100).map(|i| Box::new(Granule::new(i << 16))).collect();
        let mut trees = [Tree::<Granule, ByAddress>::new(), Tree::new()];
        let mut models = [(); 2].map(|()| std::collections::BTreeSet::new());
        let mut seed = 7;
        for step in 0..5000 {
            let node: *mut Granule = &mut *nodes[next(&mut seed) % 99];
            let into = next(&mut seed) % 2;
            // SAFETY: the nodes are boxed and live; the test is alone.
            unsafe {
                let at = (*node).base;
                match models.iter_mut().position(|model| model.remove(&at)) {
                    Some(from) => trees[from].remove(node),
                    None => {
                        trees[into].insert(node);
                        models[into].insert(at);
                    }
                }
                if step % 500 == 499 {
                    let (first, second) = trees.split_at_mut(1);
                    first[0].append(&mut second[0]);
                    let moved = core::mem::take(&mut models[1]);
                    models[0].extend(moved);
                }
                for (tree, model) in trees.iter().zip(&models) {
                    assert_eq!(tree.validate(&mut |_| ()), model.len());
                    assert_eq!(tree.is_empty(), model.is_empty());
                    let base = |node: *mut Granule| node.as_ref().map(|node| node.base);
                    assert_eq!(base(tree.first()), model.first().copied());
                    assert_eq!(base(tree.behind(at)), model.range(at + 1..).next().copied());
                    let others = model.iter().any(|&other| other != at);
                    assert_eq!(tree.has_other(node), others);
                }
            }
        }
    }
}
