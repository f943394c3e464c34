//! Where a loaded module says that its unwind tables are.

use crate::{Host, PAGE, word_at};

const MAGIC: usize = 0x464c_457f;
const PROGRAM_HEADERS_MOST: usize = 64;
const PT_LOAD: usize = 1;
const PT_GNU_EH_FRAME: usize = 0x6474_e550;
const HALF: usize = 0xffff_ffff;

/// The tables of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tables {
    /// Address of `.eh_frame_hdr`.
    pub index: usize,
    /// Its length.
    pub index_bytes: usize,
    /// The segment that it and `.eh_frame` are in, and after its last byte.
    pub start: usize,
    pub end: usize,
    /// Where that segment begins in the file.
    pub file_start: usize,
    /// The module's first bytes, which are its headers: where they are mapped, and how many.
    pub headers: (usize, usize),
    /// A sum over the module's headers, to know it again.
    pub identity: usize,
}

/// The tables of the module whose file is mapped at `base`, from its first byte on, and which has the code at `pc`; `None`
/// if it has none, or there is no such module.
pub fn tables(host: &impl Host, base: usize, pc: usize) -> Option<Tables> {
    let word = |offset: usize| word_at(host, base.checked_add(offset)?);
    if word(0)? & HALF != MAGIC {
        return None;
    }
    // e_phoff; e_phentsize and e_phnum are at 54 and 56.
    let headers = word(32)?;
    let count = word(56)? & 0xffff;
    let entry_bytes = word(48)? >> 48;
    if entry_bytes != 56 || !headers.is_multiple_of(8) || headers > PAGE {
        return None;
    }
    let mut identity = word(24)? ^ word(40)?;
    let (mut bias, mut index, mut has_code) = (None, None, false);
    for number in 0..count.min(PROGRAM_HEADERS_MOST) {
        let (kind, start, file_bytes) = header(host, base + headers + number * 56)?;
        identity = identity.rotate_left(7).wrapping_add(start.wrapping_mul(31)).wrapping_add(file_bytes);
        let offset = word(headers + number * 56 + 8)?;
        if kind == PT_LOAD && offset == 0 && bias.is_none() {
            bias = Some(base.wrapping_sub(start & !(PAGE - 1)));
        }
        let inside = |bias: usize| pc.wrapping_sub(bias).wrapping_sub(start) < file_bytes;
        has_code |= kind == PT_LOAD && bias.is_some_and(inside);
        if kind == PT_GNU_EH_FRAME {
            index = Some((start, file_bytes));
        }
    }
    let (bias, (index, index_bytes)) = (bias?, index.filter(|_| has_code)?);
    let (start, end, file_start) = (0..count.min(PROGRAM_HEADERS_MOST)).find_map(|number| {
        let (kind, start, file_bytes) = header(host, base + headers + number * 56)?;
        let inside = kind == PT_LOAD && index >= start && index - start < file_bytes;
        let file_start = word(headers + number * 56 + 8)?;
        let begin = bias.wrapping_add(start);
        inside.then(|| (begin, begin.wrapping_add(file_bytes), file_start))
    })?;
    let index = bias.wrapping_add(index);
    let headers = (base, headers + count.min(PROGRAM_HEADERS_MOST) * 56);
    (index_bytes <= end.checked_sub(index)?).then_some(Tables {
        index,
        index_bytes,
        start,
        end,
        file_start,
        headers,
        identity,
    })
}

/// Type, address and length of the segment whose program header is at `address`.
fn header(host: &impl Host, address: usize) -> Option<(usize, usize, usize)> {
    Some((word_at(host, address)? & HALF, word_at(host, address + 16)?, word_at(host, address + 32)?))
}
