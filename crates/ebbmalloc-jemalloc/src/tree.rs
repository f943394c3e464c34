//! From a name or a mib to a node, and the calls that start there.

use crate::call::Call;
use crate::errno::{Errno, Result};
use crate::node::{Kind, Node, Value};
use crate::nodes::ROOT;
use core::ffi::c_void;
use core::ptr::{null, null_mut};
use ebbmalloc_core::runtime::control;

/// Nodes from the root to a leaf, at most.
pub const DEPTH: usize = 7;

#[derive(Clone, Copy)]
enum Below {
    Named(&'static [Node]),
    Numbered(&'static crate::node::Indexed),
    Nothing(fn(&Call<'_>) -> Result<()>),
}

impl Below {
    fn of(node: &'static Node) -> Self {
        match &node.kind {
            Kind::Group(members) => Self::Named(members),
            Kind::Indexed(indexed) => Self::Numbered(indexed),
            Kind::Leaf { run, .. } => Self::Nothing(*run),
        }
    }

    fn at(self, way: &[usize], index: usize) -> Result<Self> {
        match self {
            Self::Named(nodes) => nodes.get(index).map(Self::of).ok_or(Errno::ENOENT),
            Self::Numbered(indexed) if (indexed.holds)(way, index) => Ok(Self::Named(indexed.members)),
            Self::Numbered(_) | Self::Nothing(_) => Err(Errno::ENOENT),
        }
    }

    /// The index that an element of a name stands for.
    fn index(self, element: &[u8]) -> Result<usize> {
        match self {
            Self::Named(nodes) => nodes.iter().position(|node| node.name.as_bytes() == element).ok_or(Errno::ENOENT),
            Self::Numbered(_) => number(element).ok_or(Errno::ENOENT),
            Self::Nothing(_) => Err(Errno::ENOENT),
        }
    }
}

/// The number that an element begins with, as C reads it.
fn number(element: &[u8]) -> Option<usize> {
    let digits = element.iter().take_while(|byte| byte.is_ascii_digit());
    let mut value = None::<usize>;
    for digit in digits {
        let so_far = value.unwrap_or(0).checked_mul(10)?;
        value = Some(so_far.checked_add(usize::from(digit - b'0'))?);
    }
    value
}

/// Writes the way to `name` into `mib`, as far as it reaches; returns how many of its places are used,
/// and what is below the last.
fn walk(name: &[u8], mib: &mut [usize]) -> Result<(usize, Below)> {
    let mut below = Below::Named(ROOT);
    let mut elements = name.split(|&byte| byte == b'.').peekable();
    let mut depth = 0;
    while depth < mib.len()
        && let Some(element) = elements.next()
    {
        let index = below.index(element)?;
        below = below.at(&mib[..depth], index)?;
        mib[depth] = index;
        depth += 1;
        if matches!(below, Below::Nothing(_)) && elements.peek().is_some() {
            return Err(Errno::ENOENT);
        }
    }
    Ok((depth, below))
}

/// The mib of a name, which may be that of a group; how many places of `mib` it takes. A name longer
/// than `mib` is translated as far as there is room.
pub fn name_to_mib(name: &[u8], mib: &mut [usize]) -> Result<usize> {
    control::make_ready();
    walk(name, mib).map(|(depth, _)| depth)
}

/// Makes a call at the node of that name.
pub fn by_name(name: &[u8], call: &Call<'_>) -> Result<()> {
    control::make_ready();
    let mut mib = [0; DEPTH];
    match walk(name, &mut mib)? {
        (depth, Below::Nothing(run)) => run(&call.at(&mib[..depth])),
        _ => Err(Errno::ENOENT),
    }
}

/// Makes a call at the node of `call.mib`.
pub fn by_mib(call: &Call<'_>) -> Result<()> {
    control::make_ready();
    let mut below = Below::Named(ROOT);
    for (depth, &index) in call.mib.iter().enumerate() {
        below = below.at(&call.mib[..depth], index)?;
    }
    match below {
        Below::Nothing(run) => run(call),
        _ => Err(Errno::ENOENT),
    }
}

/// The node that a mib leads to, where that is a node and not an index.
pub(crate) fn node(mib: &[usize]) -> Option<&'static Node> {
    let mut nodes = ROOT;
    let mut found = None;
    let mut way = mib.iter();
    while let Some(&index) = way.next() {
        let node = nodes.get(index)?;
        found = Some(node);
        match &node.kind {
            Kind::Group(members) => nodes = members,
            Kind::Indexed(indexed) => {
                nodes = indexed.members;
                way.next()?;
            }
            Kind::Leaf { .. } => nodes = &[],
        }
    }
    found
}

/// Reads a value by name.
pub fn read<T: Value>(name: &[u8]) -> Result<T> {
    let mut mib = [0; DEPTH];
    let depth = name_to_mib(name, &mut mib)?;
    read_mib(&mib[..depth])
}

/// Reads a value by mib.
pub fn read_mib<T: Value>(mib: &[usize]) -> Result<T> {
    let mut value = core::mem::MaybeUninit::<T>::zeroed();
    let mut bytes = size_of::<T>();
    // Zeroed: a name of an arena is read to where the buffer points, which is nowhere then.
    // SAFETY: the buffer is as long as `bytes` says.
    let call = unsafe { Call::new(mib, value.as_mut_ptr().cast(), &raw mut bytes, null(), 0) };
    by_mib(&call)?;
    // SAFETY: the call succeeded, so a value of this size was written, and leaves of one size that
    // can be read here are integers, truth values and pointers, which their types tell apart.
    Ok(unsafe { value.assume_init() })
}

/// Writes a value by name.
pub fn write<T: Value>(name: &[u8], value: T) -> Result<()> {
    let mut mib = [0; DEPTH];
    let depth = name_to_mib(name, &mut mib)?;
    write_mib(&mib[..depth], value)
}

/// Writes a value by mib.
pub fn write_mib<T: Value>(mib: &[usize], value: T) -> Result<()> {
    let new = (&raw const value).cast::<c_void>();
    // SAFETY: `new` is readable for the size of its type.
    by_mib(&unsafe { Call::new(mib, null_mut(), null_mut(), new, size_of::<T>()) })
}

/// Does what a name stands for that has no value.
pub fn act(name: &[u8]) -> Result<()> {
    by_name(name, &Call::default())
}
