//! What the tree is made of: groups, indexed groups, and leaves with a type and a direction.
//!
//! A leaf is a function over a [`Call`]. The macros write the functions for the common shapes: a value
//! that is read, one that is read and written, an action. A node whose rules differ has a function of
//! its own.

use crate::call::Call;
use crate::errno::{Errno, Result};
use core::ffi::{CStr, c_char};

/// A node of the tree.
#[derive(Debug)]
pub struct Node {
    /// Its name within its group.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
}

/// What a node is.
#[derive(Debug)]
pub enum Kind {
    /// Named nodes.
    Group(&'static [Node]),
    /// A number, then named nodes.
    Indexed(Indexed),
    /// A value or an action.
    Leaf {
        /// What can be done with it.
        access: Access,
        /// The type of its value.
        value: Type,
        /// Does it.
        run: fn(&Call<'_>) -> Result<()>,
    },
}

/// A group of which there is one for each index.
#[derive(Debug)]
pub struct Indexed {
    /// Whether there is one for `index`; `mib` is the way so far.
    pub holds: fn(mib: &[usize], index: usize) -> bool,
    /// The nodes below the index.
    pub members: &'static [Node],
}

/// What can be done with a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read.
    Read,
    /// Read and written, also both in one call.
    ReadWrite,
    /// Written.
    Write,
    /// Done, without a value.
    Act,
}

/// The type of a leaf's value, in C's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Type {
    Bool,
    Unsigned,
    U64,
    I64,
    Size,
    SignedSize,
    Text,
    Pointer,
    None,
}

/// A C string that lives as long as the process, or one of the caller's.
pub type Text = *const c_char;

/// A text as a leaf gives it.
pub const fn text(text: &'static CStr) -> Text {
    text.as_ptr()
}

/// The index at `depth` of a mib, of a thing that is counted in C's `unsigned`.
pub fn unsigned(mib: &[usize], depth: usize) -> Result<u32> {
    let index = mib.get(depth).ok_or(Errno::ENOENT)?;
    u32::try_from(*index).map_err(|_| Errno::EFAULT)
}

/// A type that leaves have.
pub trait Value: Copy {
    /// Its name.
    const TYPE: Type;
}

macro_rules! value_types {
    ($($type:ty => $name:ident,)+) => {$(
        impl Value for $type {
            const TYPE: Type = Type::$name;
        }
    )+};
}

value_types! {
    bool => Bool,
    u32 => Unsigned,
    u64 => U64,
    i64 => I64,
    usize => Size,
    isize => SignedSize,
    Text => Text,
}

impl<T> Value for *mut T {
    const TYPE: Type = Type::Pointer;
}

impl Node {
    /// A group.
    pub const fn group(name: &'static str, members: &'static [Node]) -> Self {
        Self { name, kind: Kind::Group(members) }
    }

    /// A group of which there is one for each index.
    pub const fn indexed(name: &'static str, holds: fn(&[usize], usize) -> bool, members: &'static [Node]) -> Self {
        Self { name, kind: Kind::Indexed(Indexed { holds, members }) }
    }

    /// A leaf of type `T` with a function of its own.
    pub const fn leaf<T: Value>(name: &'static str, access: Access, run: fn(&Call<'_>) -> Result<()>) -> Self {
        Self { name, kind: Kind::Leaf { access, value: T::TYPE, run } }
    }

    /// A leaf that does something and has no value.
    pub const fn act(name: &'static str, run: fn(&Call<'_>) -> Result<()>) -> Self {
        Self { name, kind: Kind::Leaf { access: Access::Act, value: Type::None, run } }
    }
}

/// A leaf that is read: `read!("name", type, |mib| Ok(value))`.
macro_rules! read {
    ($name:literal, $type:ty, $get:expr) => {
        $crate::node::Node::leaf::<$type>($name, $crate::node::Access::Read, |call| {
            call.read_only()?;
            let get: fn(&[usize]) -> $crate::errno::Result<$type> = $get;
            call.give::<$type>(get(call.mib)?)
        })
    };
}

/// A leaf that is read and written: `read_write!("name", type, |mib| Ok(value), |mib, new| Ok(()))`. A
/// wrong size of either buffer leaves it as it is.
macro_rules! read_write {
    ($name:literal, $type:ty, $get:expr, $set:expr) => {
        $crate::node::Node::leaf::<$type>($name, $crate::node::Access::ReadWrite, |call| {
            let get: fn(&[usize]) -> $crate::errno::Result<$type> = $get;
            let set: fn(&[usize], $type) -> $crate::errno::Result<()> = $set;
            let new = call.take::<$type>()?;
            call.give::<$type>(get(call.mib)?)?;
            new.map_or(Ok(()), |new| set(call.mib, new))
        })
    };
}

/// A leaf that does something: `act!("name", |mib| Ok(()))`.
macro_rules! act {
    ($name:literal, $run:expr) => {
        $crate::node::Node::act($name, |call| {
            call.neither()?;
            let run: fn(&[usize]) -> $crate::errno::Result<()> = $run;
            run(call.mib)
        })
    };
}
