//! Any name of the tree, with the type that the caller says it has.

use super::{Mib, Result, Value, tree};

/// A name: text, or bytes with or without C's zero at the end.
pub trait Name {
    #[doc(hidden)]
    fn bytes(&self) -> &[u8];
}

impl Name for str {
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl Name for [u8] {
    fn bytes(&self) -> &[u8] {
        self.strip_suffix(b"\0").unwrap_or(self)
    }
}

impl<const LENGTH: usize> Name for [u8; LENGTH] {
    fn bytes(&self) -> &[u8] {
        self.as_slice().strip_suffix(b"\0").unwrap_or(self)
    }
}

/// The value of a name.
///
/// # Safety
/// The name's values are of type `T`.
pub unsafe fn read<T: Value>(name: &(impl Name + ?Sized)) -> Result<T> {
    let place = tree::look_up(name.bytes())?;
    // SAFETY: the caller says that the name's values are of type `T`, which is all that `tree::read` asks for.
    unsafe { tree::read(&place) }
}

/// Sets the value of a name.
///
/// # Safety
/// The name takes values of type `T`; a text is given as a `&CStr` or its pointer; what the value leads to stays as long as the name's meaning
/// says; nothing relies on what the change ends (an arena that is reset).
pub unsafe fn write<T: Value>(name: &(impl Name + ?Sized), value: T) -> Result<()> {
    let place = tree::look_up(name.bytes())?;
    // SAFETY: the caller says that the name takes values of type `T`, and that what they lead to stays valid.
    unsafe { tree::write(&place, value) }
}

/// Sets the value of a name and returns the one before it.
///
/// # Safety
/// As for [`write()`].
pub unsafe fn update<T: Value>(name: &(impl Name + ?Sized), value: T) -> Result<T> {
    let place = tree::look_up(name.bytes())?;
    // SAFETY: `update`'s contract is that of `write` with the same `T`, so the old value has that type too.
    unsafe { tree::update(&place, value) }
}

/// Does what a name stands for that has no value, such as `arena.4096.purge`.
///
/// # Safety
/// Nothing relies on what is ended: blocks of an arena that is reset or destroyed.
pub unsafe fn act(name: &(impl Name + ?Sized)) -> Result<()> {
    tree::act(&tree::look_up(name.bytes())?)
}

/// A name of ours, whose type and access are known.
pub(super) fn mib<T: Value, Access>(name: &str) -> Result<Mib<T, Access>> {
    tree::look_up(name.as_bytes()).map(Mib::new)
}
