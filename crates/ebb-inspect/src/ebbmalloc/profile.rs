//! The heap profile of an ebbmalloc: asked for, and read while the process goes on changing it
//! ([`ebb_stats::profile`] says how it lies in memory).

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use ebb_stats::profile::{
    ASKED, BUCKETS, BYTES, Frame, INTERPRETER, Interpreter, PYTHON, Request, STACK_WORDS, State, TALLY_WORDS, WORDS,
    hash,
};

use crate::memory::{Memory, Reader, Unreadable, unless_torn};

/// Stacks of a table at most: more than fit into the allocator's own memory for them in practice.
const MOST_STACKS: usize = 1 << 20;
/// Threads that allocated from one stack at most.
const MOST_TALLIES: usize = 1 << 16;
/// How often a chain is read that changes meanwhile.
const ATTEMPTS: u32 = 4;

/// What was allocated from one stack, all threads together, estimated from samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// All its words, which tell it from others.
    pub frames: Vec<u64>,
    /// Samples that are live.
    pub samples: u64,
    /// What is live: objects in units of 1/[`ebb_stats::profile::OBJECT`], and bytes.
    pub live: (u64, u64),
    /// The same of all that was allocated, where the process keeps that.
    pub all: (u64, u64),
}

/// The stacks of a table as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stacks {
    /// Each stack once.
    pub stacks: Vec<Stack>,
    /// Samples that found no room in the table.
    pub refused: u64,
    /// Chains that changed each time that they were read, so that stacks may be missing.
    pub torn: usize,
}

/// The switch at `address`.
pub fn state(memory: &dyn Memory, address: u64) -> Result<State, Unreadable> {
    let mut bytes = [0; BYTES];
    memory.copy(&[(address, BYTES)], &mut bytes)?;
    State::from_bytes(&bytes).ok_or(Unreadable::Gone)
}

/// Writes `request` into the switch at `address` of process `pid`, whose memory is `memory`: with [`tell`] all that is ever
/// written into a process. Returns the word that [`State::answered`] will be.
pub fn ask(pid: i32, memory: &dyn Memory, address: u64, request: Request) -> Result<u64, Unreadable> {
    let word = request.word();
    let at = address + ASKED as u64;
    put(pid, memory, address, &[(at, word), (at + 8, 0)])?;
    Ok(word)
}

/// Says there how the process's CPython lies in memory.
pub fn tell(pid: i32, memory: &dyn Memory, address: u64, interpreter: Interpreter) -> Result<(), Unreadable> {
    let places = (address + INTERPRETER as u64..).step_by(8);
    let mut words: Vec<(u64, u64)> = places.zip(interpreter.words()).collect();
    words.reverse();
    put(pid, memory, address, &words)
}

/// Writes words of the switch at `address`, one after the other.
fn put(pid: i32, memory: &dyn Memory, address: u64, words: &[(u64, u64)]) -> Result<(), Unreadable> {
    let file = OpenOptions::new().write(true).open(format!("/proc/{pid}/mem"));
    let file = file.map_err(|error| Unreadable::from_io(&error))?;
    // The number may be another process's by now, whose memory the file shows then.
    state(memory, address)?;
    for &(at, word) in words {
        let written = file.write_at(&word.to_ne_bytes(), at);
        match written.map_err(|error| Unreadable::from_io_at(&error, at))? {
            8 => {}
            _ => return Err(Unreadable::Gone),
        }
    }
    Ok(())
}

impl Stack {
    /// Return addresses, the innermost first.
    pub fn addresses(&self) -> &[u64] {
        let end = self.frames.iter().position(|&it| it == PYTHON);
        &self.frames[..end.unwrap_or(self.frames.len())]
    }

    /// Frames of Python, the innermost first.
    pub fn python(&self) -> impl Iterator<Item = Frame> {
        let words = self.frames.get(self.addresses().len() + 1..).unwrap_or_default();
        words.as_chunks().0.iter().map(|&words| Frame::from_words(words))
    }
}

/// All stacks of the table at `table`.
pub fn read(memory: &dyn Memory, table: u64) -> Result<Stacks, Unreadable> {
    let mut found = Stacks::default();
    let mut chains: Vec<u64> = (0..BUCKETS as u64).collect();
    for _ in 0..ATTEMPTS {
        // A reader remembers pages, so that a chain that was torn stays so.
        let mut reader = Reader::new(memory);
        let Some(buckets) = unless_torn(reader.word(table))? else { continue };
        if buckets == 0 {
            return Ok(found);
        }
        found.refused = unless_torn(reader.word(table.saturating_add(8)))?.unwrap_or(0);
        let mut torn = Vec::new();
        for &index in &chains {
            let chain = chain(&mut reader, buckets.saturating_add(index * 8));
            match unless_torn(chain)?.flatten() {
                Some(stacks) => found.stacks.extend(stacks),
                None => torn.push(index),
            }
            if found.stacks.len() > MOST_STACKS {
                return Err(Unreadable::Other("its profile has no end".to_owned()));
            }
        }
        chains = torn;
        if chains.is_empty() {
            break;
        }
    }
    found.torn = chains.len();
    Ok(found)
}

/// The stacks that the word at `bucket` leads to; `None` if they changed meanwhile.
fn chain(reader: &mut Reader<'_>, bucket: u64) -> Result<Option<Vec<Stack>>, Unreadable> {
    let mut stacks = Vec::new();
    let mut seen = BTreeSet::new();
    let mut at = reader.word(bucket)?;
    while at != 0 {
        let [next, sum, depth, tally] = words::<STACK_WORDS>(reader, at)?;
        if !seen.insert(at) || depth > WORDS as u64 || stacks.len() > MOST_STACKS {
            return Ok(None);
        }
        let first = at.wrapping_add(8 * STACK_WORDS as u64);
        let frames: Vec<u64> =
            (0..depth).map(|index| reader.word(first.wrapping_add(8 * index))).collect::<Result<_, _>>()?;
        if hash(frames.iter().copied()) != sum {
            return Ok(None);
        }
        let Some(stack) = tallies(reader, at, tally, frames)? else { return Ok(None) };
        stacks.push(stack);
        at = next;
    }
    Ok(Some(stacks))
}

/// The sum of the tallies from `tally` on, which are of the stack at `owner`.
fn tallies(reader: &mut Reader<'_>, owner: u64, mut tally: u64, frames: Vec<u64>) -> Result<Option<Stack>, Unreadable> {
    let mut stack = Stack { frames, ..Stack::default() };
    for _ in 0..MOST_TALLIES {
        if tally == 0 {
            return Ok(Some(stack));
        }
        let [next, of, _, samples, objects, bytes, all_objects, all_bytes] = words::<TALLY_WORDS>(reader, tally)?;
        if of != owner {
            return Ok(None);
        }
        stack.samples = stack.samples.saturating_add(samples);
        for (sum, more) in [(&mut stack.live, (objects, bytes)), (&mut stack.all, (all_objects, all_bytes))] {
            *sum = (sum.0.saturating_add(more.0), sum.1.saturating_add(more.1));
        }
        tally = next;
    }
    Ok(None)
}

fn words<const N: usize>(reader: &mut Reader<'_>, at: u64) -> Result<[u64; N], Unreadable> {
    let mut words = [0; N];
    for (word, at) in words.iter_mut().zip((0..).map(|index: u64| at.wrapping_add(8 * index))) {
        *word = reader.word(at)?;
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::fake::FakeMemory;

    const TABLE: u64 = 0x10000;
    const BUCKET: u64 = 0x20000;
    const STACK: u64 = 0x40000;
    const TALLY: u64 = 0x50000;

    /// A table of one stack with two tallies.
    fn table() -> FakeMemory {
        let mut memory = FakeMemory::new();
        let mut put = |at: u64, words: &[u64]| {
            for (at, word) in (at..).step_by(8).zip(words) {
                memory.write_word(at, *word);
            }
        };
        put(TABLE, &[BUCKET, 5]);
        put(BUCKET, &[0; BUCKETS]);
        put(BUCKET + 80, &[STACK]);
        put(STACK, &[0, hash([7, 8]), 2, TALLY, 7, 8]);
        put(TALLY, &[TALLY + 64, STACK, 1, 2, 512, 200, 1024, 400]);
        put(TALLY + 64, &[0, STACK, 2, 1, 256, 100, 256, 100]);
        memory
    }

    #[test]
    fn the_tallies_of_a_stack_are_one_sum() {
        let stack = Stack { frames: vec![7, 8], samples: 3, live: (768, 300), all: (1280, 500) };
        let stacks = Stacks { stacks: vec![stack], refused: 5, torn: 0 };
        assert_eq!(read(&table(), TABLE), Ok(stacks));
        let mut memory = table();
        memory.write_word(TABLE, 0);
        assert_eq!(read(&memory, TABLE), Ok(Stacks::default()), "before the first sample");
    }

    #[test]
    fn what_makes_no_sense_is_torn_and_ends() {
        for (at, word) in [
            (STACK, STACK),
            (STACK + 8, 1),
            (STACK + 16, u64::MAX),
            (STACK + 24, 3),
            (STACK + 32, 9),
            (TALLY, TALLY),
            (TALLY + 8, TALLY),
            (BUCKET + 80, u64::MAX - 7),
        ] {
            let mut memory = table();
            memory.write_word(at, word);
            assert_eq!(read(&memory, TABLE), Ok(Stacks { refused: 5, torn: 1, ..Stacks::default() }), "{at:#x}");
        }
    }
}
