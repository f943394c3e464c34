//! The one line with which strict mode ends the process.

use super::super::instance::HEAP;
use super::tag::{Maker, Place, Tag};
use crate::base::corrupt::Line;
use crate::os::Os;

/// How a block was freed.
#[derive(Clone, Copy, Debug)]
pub struct Freed {
    /// By the function for blocks of this one.
    pub by: Maker,
    /// The size that was passed with it, if one was.
    pub size: Option<usize>,
}

/// Begins a line.
fn begin(words: &[&[u8]], address: usize) -> Line {
    let mut line = Line::new();
    line.push(b"ebbmalloc: ");
    words.iter().for_each(|word| line.push(word));
    line.push_hex(address);
    line
}

fn end(mut line: Line) -> ! {
    line.push(b"; aborting\n");
    HEAP.os.write_stderr(line.bytes());
    HEAP.os.abort()
}

fn push_block(line: &mut Line, tag: &Tag) {
    line.push_decimal(tag.size as u64);
    line.push(if tag.size == 1 { b" byte from " } else { b" bytes from " });
    line.push(tag.maker.names().0);
}

/// `what` about a block.
#[cold]
pub fn block(what: &[u8], place: Place, tag: &Tag) -> ! {
    let mut line = begin(&[what], place.block);
    line.push(b": ");
    push_block(&mut line, tag);
    end(line)
}

/// `function` was called with a block that was freed before.
#[cold]
pub fn freed(function: &[u8], place: Place, tag: &Tag) -> ! {
    if function.starts_with(b"free") || function.starts_with(b"operator") {
        block(b"double free of ", place, tag);
    }
    let mut line = begin(&[function, b" of "], place.block);
    line.push(b", which was freed: ");
    push_block(&mut line, tag);
    end(line)
}

/// Bytes next to a block were overwritten: `side` of it.
#[cold]
pub fn overwritten(side: &[u8], place: Place, tag: &Tag) -> ! {
    let mut line = begin(&[b"bytes overwritten ", side, b" "], place.block);
    line.push(b": ");
    push_block(&mut line, tag);
    end(line)
}

/// The bytes right before a block were overwritten, so that nothing else is known of it.
#[cold]
pub fn tag_overwritten(place: Place) -> ! {
    end(begin(&[b"bytes overwritten before "], place.block))
}

/// `function` was called with an address where no block is; `why` says more.
#[cold]
pub fn no_block(function: &[u8], address: usize, why: &[u8]) -> ! {
    let mut line = begin(&[function, b" of "], address);
    line.push(b": ");
    line.push(why);
    end(line)
}

/// `function` was called with an address inside a block.
#[cold]
pub fn inside(function: &[u8], address: usize, place: Place, tag: &Tag) -> ! {
    let mut line = begin(&[function, b" of "], address);
    line.push(b": ");
    line.push_decimal(address.abs_diff(place.block) as u64);
    line.push(if address.abs_diff(place.block) == 1 { b" byte" } else { b" bytes" });
    line.push(if address < place.block { b" before " } else { b" into " });
    line.push_hex(place.block);
    line.push(b", ");
    push_block(&mut line, tag);
    end(line)
}

/// A block was freed by another function, or with another size, than it was made.
#[cold]
pub fn mismatch(freed: Freed, place: Place, tag: &Tag) -> ! {
    let mut line = begin(&[freed.by.names().1, b" of "], place.block);
    if let Some(size) = freed.size {
        line.push(b" with size ");
        line.push_decimal(size as u64);
    }
    line.push(b": ");
    push_block(&mut line, tag);
    end(line)
}
