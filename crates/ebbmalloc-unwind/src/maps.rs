//! The kernel's list of mappings (/proc/self/maps), read piece by piece.

/// As much of a line as is looked at.
const LINE_BYTES: usize = 512;

/// A mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping<'a> {
    /// Its first byte.
    pub start: usize,
    /// After its last.
    pub end: usize,
    /// It can be executed.
    pub executable: bool,
    /// Where it begins in its file.
    pub offset: usize,
    /// The file: device and inode; (0, 0) is none.
    pub file: (usize, usize),
    /// Its name as the kernel writes it; empty if it has none, or a long one.
    pub name: &'a [u8],
}

/// The text so far of a line.
pub struct Lines {
    line: [u8; LINE_BYTES],
    len: usize,
}

impl Lines {
    pub const fn new() -> Self {
        Self { line: [0; LINE_BYTES], len: 0 }
    }

    /// Takes the next piece of the text and calls `each` with every mapping whose line ends in it.
    pub fn push(&mut self, text: &[u8], each: &mut dyn FnMut(Mapping)) {
        for &byte in text {
            if byte == b'\n' {
                if let Some(mut mapping) = parse(&self.line[..self.len]) {
                    if self.len == LINE_BYTES {
                        mapping.name = &[];
                    }
                    each(mapping);
                }
                self.len = 0;
            } else if let Some(place) = self.line.get_mut(self.len) {
                *place = byte;
                self.len += 1;
            }
        }
    }
}

/// `start-end perms offset major:minor inode name`
fn parse(line: &[u8]) -> Option<Mapping<'_>> {
    let mut fields = line.split(|&byte| byte == b' ').filter(|field| !field.is_empty());
    let (start, end) = pair(fields.next()?, b'-')?;
    let rights = fields.next()?;
    let offset = number(fields.next()?, 16)?;
    let (major, minor) = pair(fields.next()?, b':')?;
    let inode = number(fields.next()?, 10)?;
    Some(Mapping {
        start,
        end,
        executable: rights.get(2) == Some(&b'x'),
        offset,
        file: (major << 32 | minor, inode),
        name: line.iter().position(|&byte| byte == b'/').map_or(&[], |at| &line[at..]),
    })
}

fn pair(text: &[u8], between: u8) -> Option<(usize, usize)> {
    let at = text.iter().position(|&byte| byte == between)?;
    Some((number(&text[..at], 16)?, number(&text[at + 1..], 16)?))
}

fn number(text: &[u8], base: u32) -> Option<usize> {
    usize::from_str_radix(core::str::from_utf8(text).ok()?, base).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_in_pieces_of_any_length() {
        let text = b"7f00-7f80 r-xp 00002000 fd:01 77   /usr/lib/a b.so\n\
            8000-9000 rw-p 00000000 00:00 0\nno line\n\
            a000-b000 r--s 00000000 00:05 12 [x]\n";
        let expected = [
            (0x7f00, 0x7f80, true, 0x2000, (0xfd_0000_0001, 77), "/usr/lib/a b.so".to_owned()),
            (0x8000, 0x9000, false, 0, (0, 0), String::new()),
            (0xa000, 0xb000, false, 0, (5, 12), String::new()),
        ];
        for piece in 1..text.len() {
            let mut found = Vec::new();
            let mut lines = Lines::new();
            for part in text.chunks(piece) {
                lines.push(part, &mut |mapping: Mapping| {
                    let Mapping { start, end, executable, offset, file, name } = mapping;
                    let name = String::from_utf8(name.to_vec()).unwrap();
                    found.push((start, end, executable, offset, file, name));
                });
            }
            assert_eq!(found, expected, "pieces of {piece}");
        }
    }

    #[test]
    fn a_long_name_is_left_out() {
        let mut lines = Lines::new();
        let mut count = 0;
        let line = format!("1000-2000 r-xp 0 00:00 0 /{}\n", "n".repeat(5000));
        for _ in 0..2 {
            lines.push(line.as_bytes(), &mut |mapping| count += usize::from(mapping.name.is_empty()));
        }
        assert_eq!(count, 2);
    }
}
