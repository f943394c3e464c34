//! No control tree: the system's allocator serves this process.

use std::ffi::CStr;

use super::{Error, Result};

/// What a name that is not known leads to: there are none of these.
#[derive(Clone, Copy, Debug)]
pub enum Place {}

/// A type of values.
pub trait Held: Copy {}

impl<T: Copy> Held for T {}

/// No name is known.
pub fn look_up(_: &[u8]) -> Result<Place> {
    Err(Error::UNKNOWN)
}

/// # Safety
/// None is needed: there is no place.
pub unsafe fn read<T: Held>(place: &Place) -> Result<T> {
    match *place {}
}

/// # Safety
/// None is needed: there is no place.
pub unsafe fn write<T: Held>(place: &Place, _: T) -> Result<()> {
    match *place {}
}

/// # Safety
/// None is needed: there is no place.
pub unsafe fn update<T: Held>(place: &Place, _: T) -> Result<T> {
    match *place {}
}

/// Does nothing: there is no place.
pub fn act(place: &Place) -> Result<()> {
    match *place {}
}

/// There are no statistics.
pub fn print(_: &mut dyn FnMut(&CStr), _: &[u8]) {}
