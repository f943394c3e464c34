//! A name of the control tree with its type and what can be done with it.

use std::fmt;
use std::marker::PhantomData;

use super::{Result, tree};

/// A type of the control tree's values: integers, `bool`, text that lives as long as the process.
pub trait Value: tree::Held {}

impl<T: tree::Held> Value for T {}

/// A name that is read.
#[derive(Clone, Copy, Debug)]
pub enum ReadOnly {}

/// A name that is read and written.
#[derive(Clone, Copy, Debug)]
pub enum ReadWrite {}

/// A name that was looked up, for many calls without the search.
pub struct Mib<T, Access> {
    place: tree::Place,
    what: PhantomData<fn() -> (T, Access)>,
}

impl<T, Access> Clone for Mib<T, Access> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, Access> Copy for Mib<T, Access> {}

impl<T, Access> fmt::Debug for Mib<T, Access> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mib").field(&self.place).finish()
    }
}

impl<T: Value, Access> Mib<T, Access> {
    /// The caller's word is that the name has this type and allows this access.
    pub(super) fn new(place: tree::Place) -> Self {
        Self { place, what: PhantomData }
    }

    /// The value.
    pub fn read(&self) -> Result<T> {
        // SAFETY: the name has this type: only `key!` and those who promise it make one of these.
        unsafe { tree::read(&self.place) }
    }
}

impl<T: Value> Mib<T, ReadWrite> {
    /// Sets the value.
    pub fn write(&self, value: T) -> Result<()> {
        // SAFETY: the name has this type, as in `read`, and `ReadWrite` is given only to names that can be written.
        unsafe { tree::write(&self.place, value) }
    }

    /// Sets the value and returns the one before it.
    pub fn update(&self, value: T) -> Result<T> {
        // SAFETY: the name has this type, as in `read`, and `ReadWrite` is given only to names that can be written.
        unsafe { tree::update(&self.place, value) }
    }
}

/// A module for each name, with the functions that its access allows.
macro_rules! key {
    ($($(#[$doc:meta])* $module:ident: $name:literal, $type:ty, $access:ident;)*) => {$(
        $(#[$doc])*
        #[doc = concat!("\n\nThe name `", $name, "`.")]
        pub mod $module {
            use $crate::control::{Mib, Result, $access, raw};

            /// The name's place, for many calls without the search.
            pub fn mib() -> Result<Mib<$type, $access>> {
                raw::mib($name)
            }

            /// The value.
            pub fn read() -> Result<$type> {
                mib()?.read()
            }

            key!(@ $access, $type);
        }
    )*};
    (@ ReadOnly, $type:ty) => {};
    (@ ReadWrite, $type:ty) => {
        /// Sets the value.
        pub fn write(value: $type) -> Result<()> {
            mib()?.write(value)
        }

        /// Sets the value and returns the one before it.
        pub fn update(value: $type) -> Result<$type> {
            mib()?.update(value)
        }
    };
}
