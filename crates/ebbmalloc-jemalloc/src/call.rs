//! One call of `mallctl`: where it points, what is to be read, what is to be written.
//!
//! A node that can be read copies its value to `old`, if there is one; with a buffer of another size it
//! copies as much as fits, says how much, and fails with EINVAL. A node that can be written takes its
//! value from `new`, if there is one, and insists on its size.

use crate::errno::{Errno, Result};
use core::ffi::c_void;
use core::ptr::null_mut;

/// See the module.
#[derive(Debug)]
pub struct Call<'a> {
    /// The way to the node: its index in each group, and the indices that the caller chose.
    pub mib: &'a [usize],
    old: *mut c_void,
    old_len: *mut usize,
    new: *const c_void,
    new_len: usize,
}

impl<'a> Call<'a> {
    /// A call with C's arguments.
    ///
    /// # Safety
    /// `old_len` is null or valid; `old` is null or writable for `*old_len` bytes; `new` is null or
    /// readable for `new_len` bytes.
    pub unsafe fn new(
        mib: &'a [usize],
        old: *mut c_void,
        old_len: *mut usize,
        new: *const c_void,
        new_len: usize,
    ) -> Self {
        Self { mib, old, old_len, new, new_len }
    }

    /// The same call at the node that `mib` leads to.
    pub fn at<'b>(&self, mib: &'b [usize]) -> Call<'b> {
        Call { mib, ..*self }
    }

    /// Whether the caller wants to read.
    pub fn wants_old(&self) -> bool {
        !self.old.is_null() && !self.old_len.is_null()
    }

    /// Whether the caller wants to write.
    pub fn has_new(&self) -> bool {
        !self.new.is_null()
    }

    /// EPERM if the caller wants to write.
    pub fn read_only(&self) -> Result<()> {
        if self.new.is_null() && self.new_len == 0 { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// EPERM if the caller wants to read.
    pub fn write_only(&self) -> Result<()> {
        if self.old.is_null() && self.old_len.is_null() { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// EPERM if the caller wants to read and to write.
    pub fn read_or_write(&self) -> Result<()> {
        if self.wants_old() && self.read_only().is_err() {
            return Err(Errno::EPERM);
        }
        Ok(())
    }

    /// EPERM if the caller wants to read or to write.
    pub fn neither(&self) -> Result<()> {
        self.read_only()?;
        self.write_only()
    }

    /// EINVAL unless there is a buffer of a `T`'s size to read into; its length becomes 0 then.
    pub fn insists_on_old<T: Copy>(&self) -> Result<()> {
        // SAFETY: `old_len` is valid if it is not null.
        if self.wants_old() && unsafe { *self.old_len } == size_of::<T>() {
            return Ok(());
        }
        if !self.old_len.is_null() {
            // SAFETY: `old_len` is valid if it is not null.
            unsafe { *self.old_len = 0 };
        }
        Err(Errno::EINVAL)
    }

    /// Gives `value` to the caller, if it wants to read.
    pub fn give<T: Copy>(&self, value: T) -> Result<()> {
        if !self.wants_old() {
            return Ok(());
        }
        // SAFETY: `old_len` is valid, and `old` writable for as many bytes; both by `wants_old`.
        unsafe {
            let bytes = (*self.old_len).min(size_of::<T>());
            (&raw const value).cast::<u8>().copy_to_nonoverlapping(self.old.cast(), bytes);
            if *self.old_len == size_of::<T>() {
                return Ok(());
            }
            *self.old_len = bytes;
        }
        Err(Errno::EINVAL)
    }

    /// The caller's value, if it wants to write.
    pub fn take<T: Copy>(&self) -> Result<Option<T>> {
        if self.new.is_null() {
            return Ok(None);
        }
        if self.new_len != size_of::<T>() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: `new` is readable for `new_len` bytes; the types of all nodes are integers, truth
        // values and pointers, and those who write hold to them.
        Ok(Some(unsafe { self.new.cast::<T>().read_unaligned() }))
    }

    /// The caller's value; EINVAL if there is none.
    pub fn insists_on_new<T: Copy>(&self) -> Result<T> {
        self.take()?.ok_or(Errno::EINVAL)
    }

    /// What the caller gave to read into and to write from, as C has them, for the few nodes whose
    /// values have no fixed size: `(old, old_len, new, new_len)`.
    pub fn raw(&self) -> (*mut c_void, *mut usize, *const c_void, usize) {
        (self.old, self.old_len, self.new, self.new_len)
    }
}

impl Default for Call<'_> {
    /// A call that neither reads nor writes.
    fn default() -> Self {
        Self { mib: &[], old: null_mut(), old_len: null_mut(), new: null_mut(), new_len: 0 }
    }
}
