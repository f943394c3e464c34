//! Values of the tree as they are printed.

use crate::node::{Access, Kind, Node, Text, Type};
use crate::tree::{DEPTH, name_to_mib, read_mib};
use core::ffi::CStr;
use core::fmt::{self, Write};

/// A value of the tree, as it is printed.
pub(super) enum Shown {
    Truth(bool),
    Number(u64),
    Signed(i64),
    Text(&'static CStr),
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truth(value) => value.fmt(f),
            Self::Number(value) => value.fmt(f),
            Self::Signed(value) => value.fmt(f),
            Self::Text(text) => Quoted(text).fmt(f),
        }
    }
}

/// A text as JSON has it.
pub(super) struct Quoted<'a>(pub(super) &'a CStr);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for &byte in self.0.to_bytes() {
            match byte {
                b'"' | b'\\' => {
                    f.write_char('\\')?;
                    f.write_char(char::from(byte))?;
                }
                0..0x20 | 0x7f.. => write!(f, "\\u{byte:04x}")?,
                byte => f.write_char(char::from(byte))?,
            }
        }
        f.write_char('"')
    }
}

/// The value of a leaf; `None` if it cannot be read now.
pub(super) fn shown(node: &Node, mib: &[usize]) -> Option<Shown> {
    let Kind::Leaf { access, value, .. } = node.kind else {
        return None;
    };
    // A text that can be written is read to where its buffer points.
    let is_read = match access {
        Access::Read => true,
        Access::ReadWrite => value != Type::Text,
        Access::Write | Access::Act => false,
    };
    if !is_read {
        return None;
    }
    Some(match value {
        Type::Bool => Shown::Truth(read_mib(mib).ok()?),
        Type::Unsigned => Shown::Number(u64::from(read_mib::<u32>(mib).ok()?)),
        Type::U64 => Shown::Number(read_mib(mib).ok()?),
        Type::Size => Shown::Number(read_mib::<usize>(mib).ok()? as u64),
        Type::I64 => Shown::Signed(read_mib(mib).ok()?),
        Type::SignedSize => Shown::Signed(read_mib::<isize>(mib).ok()? as i64),
        Type::Text => {
            let text = read_mib::<Text>(mib).ok()?;
            // SAFETY: the texts of leaves that can only be read live as long as the process.
            Shown::Text(unsafe { (!text.is_null()).then(|| CStr::from_ptr(text)) }?)
        }
        Type::Pointer | Type::None => return None,
    })
}

/// A name put together, as bytes.
struct Name {
    bytes: [u8; 96],
    length: usize,
}

impl Write for Name {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        let room = self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// The value of the leaf of that name, 0 where it cannot be read.
#[inline(never)]
pub(super) fn number(name: fmt::Arguments<'_>) -> u64 {
    match value(name) {
        Some(Shown::Number(number)) => number,
        _ => 0,
    }
}

/// The value of the leaf of that name, if it can be read.
#[inline(never)]
pub(super) fn value(name: fmt::Arguments<'_>) -> Option<Shown> {
    let mut text = Name { bytes: [0; 96], length: 0 };
    text.write_fmt(name).ok()?;
    let mut mib = [0; DEPTH];
    let depth = name_to_mib(&text.bytes[..text.length], &mut mib).ok()?;
    shown(crate::tree::node(&mib[..depth])?, &mib[..depth])
}
