//! A tree of free extents ordered by length, then address: best fit, and among equals the lowest
//! address, which keeps the heap together.
//!
//! A treap (Aragon and Seidel, "Randomized Search Trees", 1989): the priority is a hash of the
//! address, so nothing has to be stored for balance and the shape does not depend on the order of
//! insertion. The nodes are the descriptors of the extents' first granules.

use super::granule::Granule;
use core::ptr::null_mut;

/// See the module. All descriptors in it belong to the holder of the arena's lock.
#[derive(Debug)]
pub struct Tree {
    root: *mut Granule,
}

fn priority(base: usize) -> u64 {
    // Fibonacci hashing (Knuth, TAOCP 3, 6.4) of the granule's number, mixed once more.
    let hash = ((base >> 16) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (hash ^ (hash >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

/// # Safety
/// `node` is a valid descriptor.
unsafe fn key(node: *mut Granule) -> (u32, usize) {
    // SAFETY: the caller's promise.
    unsafe { ((*node).len, (*node).base) }
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

impl Tree {
    /// An empty tree.
    pub const fn new() -> Self {
        Self { root: null_mut() }
    }

    /// Adds an extent.
    ///
    /// # Safety
    /// `node` is the head of a free extent that is in no tree, its `len` and `base` are set, and the
    /// caller holds the arena's lock.
    pub unsafe fn insert(&mut self, node: *mut Granule) {
        // SAFETY: every node of the tree is a valid descriptor under the caller's lock; `link`
        // points at `root` or at a child field of such a node.
        unsafe {
            let (node_key, node_priority) = (key(node), priority((*node).base));
            let mut link: *mut *mut Granule = &raw mut self.root;
            while !(*link).is_null() && priority((**link).base) >= node_priority {
                link = if node_key < key(*link) {
                    &raw mut (**link).left
                } else {
                    &raw mut (**link).right
                };
            }
            // Split the subtree at `link` by the key; the halves become the children.
            let mut rest = *link;
            *link = node;
            let mut less: *mut *mut Granule = &raw mut (*node).left;
            let mut more: *mut *mut Granule = &raw mut (*node).right;
            while !rest.is_null() {
                if key(rest) < node_key {
                    *less = rest;
                    less = &raw mut (*rest).right;
                    rest = *less;
                } else {
                    *more = rest;
                    more = &raw mut (*rest).left;
                    rest = *more;
                }
            }
            *less = null_mut();
            *more = null_mut();
        }
    }

    /// Takes an extent out.
    ///
    /// # Safety
    /// `node` is in this tree with unchanged `len` and `base`, and the caller holds the arena's lock.
    pub unsafe fn remove(&mut self, node: *mut Granule) {
        // SAFETY: as in `insert`; the search ends because `node` is in the tree.
        unsafe {
            let node_key = key(node);
            let mut link: *mut *mut Granule = &raw mut self.root;
            while *link != node {
                debug_assert!(!(*link).is_null());
                link = if node_key < key(*link) {
                    &raw mut (**link).left
                } else {
                    &raw mut (**link).right
                };
            }
            let (mut left, mut right) = ((*node).left, (*node).right);
            // Merge the children by priority.
            while !left.is_null() && !right.is_null() {
                if priority((*left).base) >= priority((*right).base) {
                    *link = left;
                    link = &raw mut (*left).right;
                    left = *link;
                } else {
                    *link = right;
                    link = &raw mut (*right).left;
                    right = *link;
                }
            }
            *link = if left.is_null() { right } else { left };
            (*node).left = null_mut();
            (*node).right = null_mut();
        }
    }

    /// The smallest extent of at least `len` granules, at the lowest address among equals; null if
    /// there is none.
    ///
    /// # Safety
    /// The caller holds the arena's lock.
    pub unsafe fn best_fit(&self, len: u32) -> *mut Granule {
        let mut best = null_mut();
        let mut at = self.root;
        while !at.is_null() {
            // SAFETY: every node is a valid descriptor under the caller's lock.
            unsafe {
                if (*at).len >= len {
                    best = at;
                    at = (*at).left;
                } else {
                    at = (*at).right;
                }
            }
        }
        best
    }

    /// The longest extent; null if there is none.
    ///
    /// # Safety
    /// The caller holds the arena's lock.
    pub unsafe fn longest(&self) -> *mut Granule {
        let mut at = self.root;
        // SAFETY: every node is a valid descriptor under the caller's lock.
        unsafe {
            while !at.is_null() && !(*at).right.is_null() {
                at = (*at).right;
            }
        }
        at
    }

    /// Checks order and priorities; calls `visit` for each extent. Returns how many there are.
    ///
    /// # Safety
    /// The caller holds the arena's lock.
    #[cfg(test)]
    pub unsafe fn validate(&self, visit: &mut dyn FnMut(*mut Granule)) -> usize {
        unsafe fn walk(
            at: *mut Granule,
            visit: &mut dyn FnMut(*mut Granule),
            previous: &mut (u32, usize),
        ) -> usize {
            if at.is_null() {
                return 0;
            }
            // SAFETY: every node is a valid descriptor under the caller's lock.
            unsafe {
                for child in [(*at).left, (*at).right] {
                    assert!(child.is_null() || priority((*child).base) <= priority((*at).base));
                }
                let left = walk((*at).left, visit, previous);
                assert!(*previous < key(at));
                *previous = key(at);
                visit(at);
                left + 1 + walk((*at).right, visit, previous)
            }
        }
        // SAFETY: the caller holds the lock.
        unsafe { walk(self.root, visit, &mut (0, 0)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_fit_agrees_with_a_sorted_set_at_every_step() {
        let mut nodes: Vec<Box<Granule>> =
            (1..200).map(|i| Box::new(Granule::new(i << 16))).collect();
        let mut tree = Tree::new();
        let mut model = std::collections::BTreeSet::new();
        let mut seed = 1u64;
        for _ in 0..5000 {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let node: *mut Granule = &mut *nodes[(seed >> 33) as usize % 199];
            // SAFETY: the nodes are boxed and live; the test is alone.
            unsafe {
                let at = ((*node).len, (*node).base);
                if model.remove(&at) {
                    tree.remove(node);
                } else {
                    (*node).len = (seed >> 50) as u32 % 40 + 1;
                    tree.insert(node);
                    model.insert(((*node).len, (*node).base));
                }
                assert_eq!(tree.validate(&mut |_| ()), model.len());
                let want = (seed >> 40) as u32 % 45;
                let found = tree.best_fit(want);
                let expected = model.range((want, 0)..).next();
                assert_eq!(expected.map(|e| e.1), found.as_ref().map(|f| f.base));
            }
        }
    }
}
