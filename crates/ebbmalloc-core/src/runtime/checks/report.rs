//! The one line with which strict mode ends the process, and a wrong free of a sampled guard's block.

use super::super::instance::HEAP;
use super::tag::{Maker, Place, Tag};
use crate::base::corrupt::{self, Corruption, Line};
use crate::base::exact::usize_of;
use ebb_stats::guards::Record;

/// How a block was freed.
#[derive(Clone, Copy, Debug)]
pub struct Freed {
    /// By the function for blocks of this one.
    pub by: Maker,
    /// The size that was passed with it, if one was.
    pub size: Option<usize>,
}

#[inline(never)]
fn begin(words: &[&[u8]], address: usize) -> Line {
    let mut line = Line::new();
    line.push(b"ebbmalloc: ");
    words.iter().for_each(|word| line.push(word));
    line.push_hex(address);
    line
}

fn end(line: Line, address: usize) -> ! {
    corrupt::end(&HEAP.os, line, address)
}

/// Appends what is known of a block.
pub fn push_block(line: &mut Line, tag: &Tag) {
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
    end(line, place.block)
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
    end(line, place.block)
}

/// Bytes next to a block were overwritten: `side` of it.
#[cold]
pub fn overwritten(side: &[u8], place: Place, tag: &Tag) -> ! {
    let mut line = begin(&[b"bytes overwritten ", side, b" "], place.block);
    line.push(b": ");
    push_block(&mut line, tag);
    end(line, place.block)
}

/// The bytes right before a block were overwritten, so that nothing else is known of it.
#[cold]
pub fn tag_overwritten(place: Place) -> ! {
    end(begin(&[b"bytes overwritten before "], place.block), place.block)
}

/// `function` was called with an address where no block is; `why` says more.
#[cold]
pub fn no_block(function: &[u8], address: usize, why: &[u8]) -> ! {
    let mut line = begin(&[function, b" of "], address);
    line.push(b": ");
    line.push(why);
    end(line, address)
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
    end(line, address)
}

/// `address` was freed wrongly: in the page of a sampled guard, or in the one next to it.
#[cold]
pub fn sampled(what: Corruption, address: usize, record: &Record) -> ! {
    let mut line = begin(&[what.text()], address);
    if record.block != 0 {
        if record.block != address as u64 {
            line.push(b": block ");
            line.push_hex(usize_of(record.block));
        }
        line.push(b": ");
        line.push_decimal(record.bytes);
        line.push(if record.bytes == 1 { b" byte" } else { b" bytes" });
        let words: [&[u8]; 2] = [b", allocated at ", b", freed at "];
        for (words, stack) in words.into_iter().zip(&record.stacks) {
            if stack[0] != 0 {
                line.push(words);
                push_place(&mut line, usize_of(stack[0]));
            }
        }
    }
    end(line, address)
}

/// Where code is: the mapped file and the offset in it, else the address.
pub fn push_place(line: &mut Line, address: usize) {
    let mut room = [0; 2048];
    let mut text = MapsLine { text: [0; 512], len: 0, found: None, address };
    HEAP.os.read_pieces(c"/proc/self/maps", &mut room, &mut |piece| text.read(piece));
    match text.found {
        Some(offset) => {
            let path = &text.text[..text.len];
            let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
            line.push(name);
            line.push(b"+");
            line.push_hex(offset);
        }
        None => line.push_hex(address),
    }
}

/// Looks for the line of `/proc/self/maps` that has an address; then `text` is that line.
struct MapsLine {
    text: [u8; 512],
    len: usize,
    found: Option<usize>,
    address: usize,
}

impl MapsLine {
    fn read(&mut self, piece: &[u8]) {
        for &byte in piece {
            if self.found.is_some() {
                return;
            }
            if byte == b'\n' {
                self.found = self.offset();
                if self.found.is_none() {
                    self.len = 0;
                }
            } else if let Some(place) = self.text.get_mut(self.len) {
                *place = byte;
                self.len += 1;
            }
        }
    }

    /// Of the address in the file, if the line is that of a file with the address.
    fn offset(&self) -> Option<usize> {
        let line = core::str::from_utf8(&self.text[..self.len]).ok()?;
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let (start, end) = (number(start)?, number(end)?);
        let offset = number(fields.nth(1)?)?;
        let is_file = fields.nth(2).is_some_and(|path| path.starts_with('/'));
        let is_here = (start..end).contains(&self.address);
        (is_file && is_here).then(|| self.address - start + offset)
    }
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
    end(line, place.block)
}
