//! Frames and code objects of CPython: where the allocator finds a thread's frames, and which function, file and line a
//! frame is at.
//!
//! Offsets are those of the versions' headers on a 64-bit machine. What is read is checked: an object that is none, or a
//! newer one at the same address, has no name.

use ebb_stats::profile::{Borders, Frame, Interpreter};

use crate::exact::usize_of;
use crate::heap::Unsupported;
use crate::memory::{Reader, Unreadable};
use crate::target::Target;

use super::layout::Layout;
use super::locate;

/// Characters of a name at most.
const MOST_NAME: u64 = 4096;
/// Bytes of a table of lines at most: a module of 100,000 lines has less.
const MOST_TABLE: u64 = 1 << 20;
/// In an object.
const TYPE: u64 = 8;
/// In a text or bytes object.
const LENGTH: u64 = 16;
/// In a bytes object.
const BYTES: u64 = 32;
/// In a text: what it is made of.
const TEXT_STATE: u64 = 32;

/// Where code objects are, and what they look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codes {
    /// For the allocator.
    pub interpreter: Interpreter,
    fields: Fields,
}

/// Offsets of one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fields {
    minor: u8,
    /// In a code object: what the function is called.
    name: u64,
    /// The first instruction, where positions are distances from the object.
    instructions: u8,
    /// The characters of a text: if all are ASCII, and if not.
    characters: [u64; 2],
}

impl Codes {
    /// Of a process with CPython.
    pub fn of(target: &Target) -> Result<Self, Unsupported> {
        let place = locate::runtime(target, &target.mappings()?)?;
        Layout::of(&mut Reader::new(target.memory()), &place)?;
        let (_, minor) = place.version;
        // The key; in a thread, in what it leads to, in a frame: caller, code, instruction, border; in a code object.
        let direct = Interpreter::DIRECT;
        let (key, [first, current], [previous, code, instruction, border], line) = match minor {
            8 => (1392, [24, direct], [24, 32, 104, 0], 40),
            9 => (584, [24, direct], [24, 32, 104, 0], 40),
            10 => (584, [24, direct], [24, 32, 96, 0], 40),
            11 => (592, [56, 8], [48, 32, 56, 68], 72),
            12 => (1544, [56, 0], [8, 0, 56, 70], 68),
            13 => (2160, [72, direct], [8, 0, 56, 70], 68),
            _ => (2336, [72, direct], [8, 0, 56, 74], 68),
        };
        let (borders, names) = match minor {
            ..=10 => (Borders::All, [112, 104, 120]),
            11 => (Borders::Entries, [120, 112, 136]),
            _ => (Borders::Shims, [120, 112, 136]),
        };
        let interpreter = Interpreter {
            key: place.runtime.wrapping_add(key),
            code_type: place.type_of_code,
            first,
            current,
            previous,
            code,
            instruction,
            border,
            borders,
            line,
            names,
        };
        let fields = Fields {
            minor,
            // From 3.11 on with the classes and functions around it.
            name: if minor < 11 { 112 } else { 128 },
            instructions: match minor {
                ..=11 => 184,
                12 => 192,
                13 => 200,
                _ => 208,
            },
            characters: if minor < 12 { [48, 72] } else { [40, 56] },
        };
        Ok(Self { interpreter, fields })
    }

    /// The code object of `frame`; `None` where it is gone.
    pub fn read(&self, reader: &mut Reader<'_>, frame: Frame) -> Result<Option<Code>, Unreadable> {
        let Interpreter { code_type, line, names, .. } = self.interpreter;
        let mut at = |offset: u64| reader.word(frame.code.wrapping_add(offset));
        // The lower half counts references: a freed object keeps the rest.
        let is_freed = at(0)?.trailing_zeros() >= 32;
        if is_freed || at(TYPE)? != code_type || self.interpreter.check(&mut at)? != frame.check {
            return Ok(None);
        }
        let [_, file, lines] = names.map(u64::from);
        let [name, file, lines] = [at(self.fields.name)?, at(file)?, at(lines)?];
        let first = reader.int(frame.code.wrapping_add(line.into()))?;
        let table = reader.word(lines.wrapping_add(LENGTH))?.min(MOST_TABLE);
        let mut lines_of = vec![0; usize_of(table)];
        reader.bytes(lines.wrapping_add(BYTES), &mut lines_of)?;
        Ok(Some(Code {
            function: self.text(reader, name)?,
            file: self.text(reader, file)?,
            first,
            lines: lines_of,
            fields: self.fields,
        }))
    }

    /// A `str`.
    fn text(&self, reader: &mut Reader<'_>, at: u64) -> Result<String, Unreadable> {
        let length = reader.word(at.wrapping_add(LENGTH))?.min(MOST_NAME);
        let state = reader.int(at.wrapping_add(TEXT_STATE))?;
        let is_ascii = state >> 6 & 1 == 1;
        // Bytes of a character.
        let kind = match state >> 2 & 7 {
            kind @ (1 | 2 | 4) => usize_of(kind.into()),
            _ => return Ok(String::new()),
        };
        let [ascii, other] = self.fields.characters;
        let mut bytes = vec![0; usize_of(length) * kind];
        reader.bytes(at.wrapping_add(if is_ascii { ascii } else { other }), &mut bytes)?;
        let character = |bytes: &[u8]| {
            let number = bytes.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte));
            char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER)
        };
        Ok(bytes.chunks_exact(kind).map(character).collect())
    }
}

/// What a code object says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// The function's name; from 3.11 on with what it is in.
    pub function: String,
    /// Its file.
    pub file: String,
    first: u32,
    lines: Vec<u8>,
    fields: Fields,
}

impl Code {
    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.function.len() + self.file.len() + self.lines.len()
    }

    /// The line of `frame`.
    pub fn line(&self, frame: Frame) -> u32 {
        let number = i64::from(frame.position.cast_signed());
        match self.fields.minor {
            ..=9 => self.line_by_pairs(number),
            10 => self.line_by_ranges(2 * number),
            _ => self.line_by_entries((number - i64::from(self.fields.instructions)) / 2),
        }
    }

    /// To 3.9: pairs of a number of bytes, and of lines that follow them.
    fn line_by_pairs(&self, position: i64) -> u32 {
        let (mut at, mut line) = (0, self.first);
        for &[bytes, lines] in self.lines.as_chunks().0 {
            at += i64::from(bytes);
            if at > position {
                break;
            }
            line = line.wrapping_add_signed(lines.cast_signed().into());
        }
        line
    }

    /// 3.10: pairs of a number of bytes, and of lines before them; -128 for bytes without a line.
    fn line_by_ranges(&self, position: i64) -> u32 {
        let (mut end, mut line) = (0, self.first);
        for &[bytes, lines] in self.lines.as_chunks().0 {
            let lines = lines.cast_signed();
            end += i64::from(bytes);
            if lines != i8::MIN {
                line = line.wrapping_add_signed(lines.into());
            }
            if end > position {
                break;
            }
        }
        line
    }

    /// 3.11 and later: entries of a byte with a kind and a number of instructions, then lines and columns.
    fn line_by_entries(&self, position: i64) -> u32 {
        let (mut end, mut line) = (0, self.first);
        let mut bytes = self.lines.iter().copied().peekable();
        while let Some(head) = bytes.next() {
            end += i64::from(head & 7) + 1;
            line = line.wrapping_add_signed(match head >> 3 & 15 {
                13 | 14 => signed(&mut bytes),
                kind @ 10..=12 => i32::from(kind) - 10,
                _ => 0,
            });
            if end > position {
                break;
            }
            // Columns: only the first byte of an entry has this bit.
            while bytes.next_if(|byte| byte & 0x80 == 0).is_some() {}
        }
        line
    }
}

/// A number in pieces of 6 bits, the lowest first; its lowest bit is its sign.
fn signed(bytes: &mut impl Iterator<Item = u8>) -> i32 {
    let (mut number, mut shift) = (0u32, 0);
    for byte in bytes {
        number |= u32::from(byte & 63).checked_shl(shift).unwrap_or(0);
        shift += 6;
        if byte & 64 == 0 {
            break;
        }
    }
    let amount = (number >> 1).cast_signed();
    if number & 1 == 1 { -amount } else { amount }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line at a position, from a table of `minor` that begins with line 10.
    fn line(minor: u8, lines: &[u8], position: i32) -> u32 {
        let fields = Fields { minor, name: 0, instructions: 200, characters: [0, 0] };
        let [function, file] = ["f", "f.py"].map(str::to_owned);
        let code = Code { function, file, first: 10, lines: lines.to_vec(), fields };
        code.line(Frame::from_words([0, position.cast_unsigned().into()]))
    }

    #[test]
    fn lines_of_each_kind_of_table() {
        // Four bytes, then 2 lines more; six, then one less.
        let pairs = [4, 2, 6, 255];
        for (position, expected) in [(-1, 10), (0, 10), (3, 10), (4, 12), (9, 12), (10, 11), (900, 11)] {
            assert_eq!(line(9, &pairs, position), expected, "{position}");
        }
        // The same, and in the middle four bytes without a line. Positions count two bytes.
        let ranges = [4, 0, 4, 128, 2, 2, 100, 255];
        for (position, expected) in [(-1, 10), (0, 10), (1, 10), (3, 10), (4, 12), (5, 11), (900, 11)] {
            assert_eq!(line(10, &ranges, position), expected, "{position}");
        }
        // Two instructions with columns; one that is 2 lines below; three a line up, without columns; one by long numbers,
        // 70 lines below; one without a line.
        let entries = [0x81, 0x12, 0xe0, 4, 9, 0xea, 3, 0xf0, 0x4c, 0x02, 0, 1, 1, 0xf8];
        for (position, expected) in [(-3, 10), (0, 10), (1, 10), (2, 12), (3, 11), (5, 11), (6, 81), (7, 81), (900, 81)]
        {
            assert_eq!(line(12, &entries, 200 + 2 * position), expected, "{position}");
        }
        for minor in [8, 10, 11] {
            assert_eq!(line(minor, &[255], 0), 10, "a table that ends in the middle");
        }
    }
}
