//! The calling thread's frames of CPython, which stand still while it is in malloc. Which code they run is recorded; the
//! tool that said where to look ([`Interpreter`]) finds the names from outside.
//!
//! Nothing of Python is called, and no lock is taken. Each page is read only after the kernel was asked, so that a wrong
//! offset costs frames, not the process.

use super::super::hooks::hooks;
use super::super::instance::HEAP;
use super::lease;
use crate::base::exact::usize_of;
use ebb_stats::profile::{Borders, INDEX_SHIFT, Interpreter, OUTERMOST, PYTHON, PYTHON_DEPTH};

/// Pages are at least that long: what is readable at one place is, as far as the next multiple.
const PAGE: u64 = 4096;
/// The type in an object.
const TYPE: u64 = 8;
/// Bits of an address that 3.14 uses for something else.
const TAGS: u64 = 7;

/// Memory of the process that may not be there.
struct Memory {
    /// Pages that can be read, by their number: a code object is seldom on the last one's page.
    pages: [u64; 16],
}

impl Memory {
    /// The word at `address`; `None` for what is no address of one.
    fn word(&mut self, address: u64) -> Option<u64> {
        if !address.is_multiple_of(8) {
            return None;
        }
        let page = address & !(PAGE - 1);
        let place = &mut self.pages[usize_of(page / PAGE) % 16];
        if *place != page {
            if !HEAP.os.is_readable(usize_of(address)) {
                return None;
            }
            *place = page;
        }
        // SAFETY: the kernel says that the page can be read; aligned. Volatile: it may be anyone's.
        Some(unsafe { (usize_of(address) as *const u64).read_volatile() })
    }

    fn at(&mut self, object: u64, offset: u8) -> Option<u64> {
        self.word(object.wrapping_add(offset.into()))
    }
}

/// Writes the thread's frames of Python to `words` as `ebb_stats::profile` says; returns how many words they take. `stacks`
/// are the stack pointers of the return addresses, or zeros.
pub(super) fn walk(words: &mut [usize], stacks: &[usize]) -> usize {
    let Some(interpreter) = lease::interpreter() else {
        return 0;
    };
    let mut memory = Memory { pages: [u64::MAX; 16] };
    let mut frames = Frames { words, stacks, count: 0 };
    if let Some(first) = innermost(&mut memory, &interpreter) {
        // What was found up to a page that cannot be read counts.
        let _ = frames.follow(&mut memory, &interpreter, first);
    }
    frames.count
}

fn innermost(memory: &mut Memory, interpreter: &Interpreter) -> Option<u64> {
    let [initialised, key] = halves(memory.word(interpreter.key)?);
    if initialised != 1 {
        return None;
    }
    // SAFETY: any key may be asked for.
    let thread = unsafe { (hooks().thread_value)(key) } as u64;
    let first = memory.at(thread, interpreter.first)?;
    match interpreter.current {
        Interpreter::DIRECT => Some(first),
        current => memory.at(first, current),
    }
}

fn halves(word: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
}

/// Frames as they are recorded.
struct Frames<'a> {
    words: &'a mut [usize],
    stacks: &'a [usize],
    count: usize,
}

impl Frames<'_> {
    /// Records the frames from `at` on.
    fn follow(&mut self, memory: &mut Memory, of: &Interpreter, mut at: u64) -> Option<()> {
        // As many have no code at most.
        for _ in 0..2 * PYTHON_DEPTH {
            let word = memory.word(at.wrapping_add(of.border.into()) & !7)?;
            let byte = word.to_le_bytes()[usize::from(of.border % 8)];
            let is_border = byte >= of.borders as u8;
            if !(is_border && of.borders == Borders::Shims) {
                self.record(memory, of, at)?;
            }
            if is_border {
                self.end_call(usize_of(at));
            }
            at = memory.at(at, of.previous)?;
        }
        Some(())
    }

    /// Records one frame, if it runs code; `None` where there is no room for more.
    fn record(&mut self, memory: &mut Memory, of: &Interpreter, frame: u64) -> Option<()> {
        let code = memory.at(frame, of.code)? & !TAGS;
        if memory.word(code.wrapping_add(TYPE))? != of.code_type {
            return Some(());
        }
        let instruction = memory.at(frame, of.instruction)?;
        let origin = if of.borders == Borders::All { 0 } else { code };
        let [position, _] = halves(instruction.wrapping_sub(origin));
        let word = |offset| memory.word(code.wrapping_add(offset)).ok_or(());
        let check = of.check(word).ok()?;
        let is_first = self.count == 0;
        let pair = [code, u64::from(check) << 32 | u64::from(position)];
        let mark = is_first.then_some(PYTHON);
        let needed = pair.len() + usize::from(is_first);
        let places = self.words.get_mut(self.count..self.count + needed)?;
        for (place, word) in places.iter_mut().zip(mark.into_iter().chain(pair)) {
            *place = usize_of(word);
        }
        self.count += needed;
        Some(())
    }

    /// The last frame was the outermost of a call of the interpreter's loop; `border` is the frame at its end, which is a
    /// variable of the loop where it is a shim.
    fn end_call(&mut self, border: usize) {
        let Some(last) = self.count.checked_sub(2) else {
            return;
        };
        let is_within = |pair: &[usize]| (pair[0]..pair[1]).contains(&border);
        let index = self.stacks.windows(2).position(is_within);
        let index = index.map_or(0, |index| index + 1) << INDEX_SHIFT;
        self.words[last] |= usize_of(OUTERMOST) | index;
    }
}
