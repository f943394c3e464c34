//! Reads the parent process's environment and mappings from /proc, in small pieces. Only when a setting is wrong: to find
//! out whether the parent has reported it already.

use core::ffi::CStr;

use super::Linux;
use super::arch::nr;
use super::call::call;

/// Bytes that are read at a time. The settings are read on the program's own stack.
const PIECE_BYTES: usize = 1024;

impl Linux {
    /// Whether the parent was started with all these variables, with the same values. False if /proc does
    /// not show it.
    pub fn parent_has<const N: usize>(&self, variables: [(&[u8], &[u8]); N]) -> bool {
        let mut entries = variables.map(|(name, value)| Entry::new([name, b"=", value]));
        let read = self.read_of_parent(b"/environ\0", &mut |piece| {
            for byte in piece {
                entries.iter_mut().for_each(|entry| entry.take(*byte));
            }
        });
        read && entries.iter().all(|entry| entry.found)
    }

    /// Whether a mapping of the parent names a file with `word` in its path. The first byte of `word` must not occur in it again.
    pub fn parent_maps(&self, word: &[u8]) -> bool {
        let mut matched = 0;
        let read = self.read_of_parent(b"/maps\0", &mut |piece| {
            for byte in piece {
                if matched == word.len() {
                    return;
                }
                matched = match (word.get(matched) == Some(byte), word.first() == Some(byte)) {
                    (true, _) => matched + 1,
                    (false, true) => 1,
                    (false, false) => 0,
                };
            }
        });
        read && matched == word.len()
    }

    /// Calls `each` with the pieces of a file of the parent in /proc; `name` has a slash and a final NUL.
    fn read_of_parent(&self, name: &[u8], each: &mut dyn FnMut(&[u8])) -> bool {
        // SAFETY: no arguments, no effects.
        let parent = unsafe { call(nr::GETPPID, []) }.unwrap_or(0);
        let mut path = [0; 40];
        let Some(path) = proc_path(parent, name, &mut path) else {
            return false;
        };
        self.read_pieces(path, &mut [0; PIECE_BYTES], each)
    }
}

/// `/proc/PID` and `name`.
fn proc_path<'a>(pid: usize, name: &[u8], into: &'a mut [u8; 40]) -> Option<&'a CStr> {
    let mut digits = [0; 20];
    let mut rest = pid;
    let mut first = digits.len();
    while rest > 0 {
        first = first.checked_sub(1)?;
        *digits.get_mut(first)? = b'0' + u8::try_from(rest % 10).ok()?;
        rest /= 10;
    }
    let mut end = 0;
    for part in [b"/proc/", digits.get(first..)?, name] {
        into.get_mut(end..end + part.len())?.copy_from_slice(part);
        end += part.len();
    }
    CStr::from_bytes_until_nul(into).ok()
}

/// Looks for one entry in a list of entries that each end with a NUL, byte by byte.
struct Entry<'a> {
    parts: [&'a [u8]; 3],
    /// How many bytes of the current entry matched so far; `None` if one did not.
    equal: Option<usize>,
    found: bool,
}

impl<'a> Entry<'a> {
    fn new(parts: [&'a [u8]; 3]) -> Self {
        Self { parts, equal: Some(0), found: false }
    }

    fn take(&mut self, byte: u8) {
        let wanted = self.equal.map(|place| self.at(place));
        if byte == 0 {
            self.found |= wanted == Some(None);
            self.equal = Some(0);
        } else if wanted == Some(Some(byte)) {
            self.equal = self.equal.map(|place| place + 1);
        } else {
            self.equal = None;
        }
    }

    /// The byte at a place of the wanted entry; none at its end.
    fn at(&self, place: usize) -> Option<u8> {
        let mut place = place;
        for part in self.parts {
            match part.get(place) {
                Some(byte) => return Some(*byte),
                None => place -= part.len(),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_found_as_a_whole_and_with_its_value() {
        let found = |entries: &[u8], name: &[u8], value: &[u8]| {
            let mut entry = Entry::new([name, b"=", value]);
            entries.iter().for_each(|byte| entry.take(*byte));
            entry.found
        };
        let entries = b"PATHS=1\0PATH=a=b\0EMPTY=\0NOVALUE\0CUT=of";
        assert!(found(entries, b"PATH", b"a=b"));
        assert!(found(entries, b"EMPTY", b""));
        assert!(!found(entries, b"PATH", b"a"));
        assert!(!found(entries, b"PATH", b"a=bc"));
        assert!(!found(entries, b"ATH", b"a=b"));
        assert!(!found(entries, b"NOVALUE", b""));
        assert!(!found(entries, b"CUT", b"of"));
        assert!(!found(b"", b"", b""));
    }

    #[test]
    fn the_parent_of_a_test_shows_what_std_reads_of_it() {
        let os = Linux::new();
        let parent = std::os::unix::process::parent_id();
        let read = |name| std::fs::read(format!("/proc/{parent}/{name}")).unwrap_or_default();
        let path = std::env::var("PATH").unwrap_or_default();
        let entry = format!("PATH={path}").into_bytes();
        let has = read("environ").split(|byte| *byte == 0).any(|it| it == entry);
        assert_eq!(os.parent_has([(b"PATH", path.as_bytes())]), has);
        assert!(!os.parent_has([(b"EBB_NOT_SET", b"")]));
        let maps = String::from_utf8_lossy(&read("maps")).contains("[stack]");
        assert_eq!(os.parent_maps(b"[stack]"), maps);
        assert!(!os.parent_maps(b"no such file"));
    }

    #[test]
    fn paths_in_proc() {
        let path = |pid| {
            let mut room = [0; 40];
            proc_path(pid, b"/maps\0", &mut room).map(CStr::to_owned)
        };
        assert_eq!(path(4_194_303).as_deref(), Some(c"/proc/4194303/maps"));
        assert!(path(usize::MAX).is_some());
    }
}
