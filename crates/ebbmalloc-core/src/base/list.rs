//! Lists of units, linked through their descriptors under the lock that guards the list.

use core::ptr::null_mut;

/// The descriptor of a unit, which has two words for its neighbours on a list.
pub trait Linked: Sized {
    /// The word for the one before.
    ///
    /// # Safety
    /// `item` is a valid descriptor.
    unsafe fn prev(item: *mut Self) -> *mut *mut Self;

    /// The word for the next one.
    ///
    /// # Safety
    /// `item` is a valid descriptor.
    unsafe fn next(item: *mut Self) -> *mut *mut Self;
}

/// A list of units linked by two words in their descriptors; appending and removing are constant.
#[derive(Debug)]
pub struct List<N> {
    /// First element.
    pub first: *mut N,
    last: *mut N,
}

impl<N: Linked> List<N> {
    /// Not empty, and not to be walked.
    #[cfg(test)]
    pub fn torn() -> Self {
        let first = crate::base::corrupt::torn();
        Self { first, last: first }
    }

    /// Nothing.
    pub const fn new() -> Self {
        Self { first: null_mut(), last: null_mut() }
    }

    /// Puts `item` first.
    ///
    /// # Safety
    /// `item` is a valid descriptor on no list, and the caller holds the lock of this list.
    pub unsafe fn push_front(&mut self, item: *mut N) {
        // SAFETY: all elements are valid descriptors under the caller's lock.
        unsafe {
            *N::prev(item) = null_mut();
            *N::next(item) = self.first;
            if self.first.is_null() {
                self.last = item;
            } else {
                *N::prev(self.first) = item;
            }
        }
        self.first = item;
    }

    /// Puts `item` last.
    ///
    /// # Safety
    /// As for [`List::push_front`].
    pub unsafe fn push_back(&mut self, item: *mut N) {
        // SAFETY: all elements are valid descriptors under the caller's lock.
        unsafe {
            *N::next(item) = null_mut();
            *N::prev(item) = self.last;
            if self.last.is_null() {
                self.first = item;
            } else {
                *N::next(self.last) = item;
            }
        }
        self.last = item;
    }

    /// Takes `item` out.
    ///
    /// # Safety
    /// `item` is on this list, and the caller holds the lock of this list.
    pub unsafe fn remove(&mut self, item: *mut N) {
        // SAFETY: all elements are valid descriptors under the caller's lock.
        unsafe {
            let (prev, next) = (*N::prev(item), *N::next(item));
            if prev.is_null() {
                self.first = next;
            } else {
                *N::next(prev) = next;
            }
            if next.is_null() {
                self.last = prev;
            } else {
                *N::prev(next) = prev;
            }
            *N::prev(item) = null_mut();
            *N::next(item) = null_mut();
        }
    }
}

/// A list that a pass walks in steps. Between two steps the lock is dropped, and others add and remove.
pub struct Walk<N> {
    list: List<N>,
    /// What the walk comes to next; null when it is at its end, or none is under way.
    next: *mut N,
}

impl<N: Linked> Walk<N> {
    /// Nothing to walk.
    pub const fn new() -> Self {
        Self { list: List::new(), next: null_mut() }
    }

    /// Whether nothing is listed.
    pub fn is_empty(&self) -> bool {
        self.list.first.is_null()
    }

    /// Begins a walk with the first.
    pub fn start(&mut self) {
        self.next = self.list.first;
    }

    /// Whether nothing is left to look at.
    pub fn is_over(&self) -> bool {
        self.next.is_null()
    }

    /// The next, which stays listed; `None` at the end.
    pub fn look(&mut self) -> Option<*mut N> {
        let item = self.next;
        if item.is_null() {
            return None;
        }
        // SAFETY: what is listed is a valid descriptor, and `remove` keeps `next` listed; the caller has the lock,
        // as `&mut self` says.
        self.next = unsafe { *N::next(item) };
        Some(item)
    }

    /// Lists `item`; a walk that is not over comes to it.
    ///
    /// # Safety
    /// `item` is a valid descriptor on no list, and the caller holds the lock of this list.
    pub unsafe fn push(&mut self, item: *mut N) {
        // SAFETY: `item` is valid and on no list, and the lock is held (fn contract), as the list asks for.
        unsafe { self.list.push_back(item) };
    }

    /// Lists `item`; the walk under way comes to it in any case.
    ///
    /// # Safety
    /// As for [`Walk::push`].
    pub unsafe fn push_for_now(&mut self, item: *mut N) {
        // SAFETY: `item` is valid and on no list, and the lock is held (contract of `push`), as the list asks for.
        unsafe { self.list.push_back(item) };
        if self.next.is_null() {
            self.next = item;
        }
    }

    /// Lists `item`; the walk under way does not come to it.
    ///
    /// # Safety
    /// As for [`Walk::push`].
    pub unsafe fn push_for_later(&mut self, item: *mut N) {
        // SAFETY: `item` is valid and on no list, and the lock is held (contract of `push`), as the list asks for.
        unsafe { self.list.push_front(item) };
    }

    /// Takes `item` out.
    ///
    /// # Safety
    /// `item` is listed here, and the caller holds the lock of this list.
    pub unsafe fn remove(&mut self, item: *mut N) {
        // SAFETY: `item` is on this list, and the lock is held (fn contract), so its links lead to items of this
        // list.
        unsafe {
            if self.next == item {
                self.next = *N::next(item);
            }
            self.list.remove(item);
        }
    }
}

#[cfg(test)]
impl<N: Linked> Walk<N> {
    /// Not empty, and not to be walked.
    pub fn torn() -> Self {
        Self { list: List::torn(), next: crate::base::corrupt::torn() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::arena::granule::Granule;

    /// Everything that a walk comes to, as numbers of items; `between` is called after each.
    fn walked(
        walk: &mut Walk<Granule>,
        items: &mut [Granule],
        mut between: impl FnMut(&mut Walk<Granule>, usize, *mut Granule),
    ) -> Vec<usize> {
        let first = items.as_mut_ptr();
        let mut seen = Vec::new();
        while let Some(item) = walk.look() {
            // SAFETY: both are in `items`.
            let index = unsafe { item.offset_from(first) } as usize;
            seen.push(index);
            between(walk, index, first);
        }
        assert!(walk.is_over());
        seen
    }

    #[test]
    fn a_walk_goes_on_whatever_is_taken_out_and_listed_meanwhile() {
        let mut items: Vec<Granule> = (0..8).map(Granule::new).collect();
        let mut walk = Walk::new();
        for item in &mut items[..5] {
            // SAFETY: on no list yet.
            unsafe { walk.push(item) };
        }
        assert!(walk.is_over(), "none is under way");
        walk.start();
        let seen = walked(&mut walk, &mut items, |walk, index, first| {
            // SAFETY: items are taken out while they are listed, and listed while they are not.
            unsafe {
                match index {
                    0 => walk.remove(first.add(1)),
                    2 => walk.remove(first.add(2)),
                    3 => {
                        walk.push_for_later(first.add(5));
                        walk.push(first.add(6));
                    }
                    // The last.
                    6 => walk.push_for_now(first.add(7)),
                    _ => {}
                }
            }
        });
        assert_eq!(seen, [0, 2, 3, 4, 6, 7]);
        walk.start();
        let again = walked(&mut walk, &mut items, |_, _, _| {});
        assert_eq!(again, [5, 0, 3, 4, 6, 7]);
        assert!(!walk.is_empty());
    }
}
