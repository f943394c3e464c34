//! The heap profile, as a tool switches it on and reads it from outside.
//!
//! The allocator has one [`Switch`], found as a page of counters is. A tool writes these words of it, and nothing else in the
//! process: first [`Switch::asked`], then 0 to [`Switch::attention`], which leads the next slow operation of any thread
//! here; and in a process with CPython once [`Switch::interpreter`] before them. A request is a lease: it ends by itself unless another follows it. The allocator says in [`Switch::answered`]
//! which request it follows.
//!
//! What is sampled is in a table. A table's first word is the address of [`BUCKETS`] words, or 0 before the first
//! sample; its second counts samples that found no room. Each bucket leads to a chain of stacks. What always holds, in words of 8 bytes:
//!
//! - A stack is `next, hash, depth, tallies`, and `depth` return addresses, the innermost first, whose [`hash`] is `hash`.
//! - A tally is what one thread allocated from a stack: `next, stack, thread, samples, objects, bytes, all objects, all
//!   bytes`. The first pair is what is live, the second what was ever allocated while [`ACCUMULATES`] is set. Both are
//!   estimates of all allocations, not counts of samples; objects are in units of 1/[`OBJECT`].
//!
//! Where the tool has said how the process's CPython lies in memory ([`Interpreter`]), a stack's addresses may end with
//! [`PYTHON`] and two words for each Python frame, the innermost first: the address of its code object, plus
//! [`OUTERMOST`] in the last frame that one call of the interpreter's loop runs, and in its highest byte 1 + the index of
//! the return address into that call, or 0 where it is not known; and [`Interpreter::check`] of that object in the upper half, the position of the instruction in the lower.
//!
//! The table changes while it is read: a stack whose hash is wrong, or a tally that names another stack, is no longer one.

#[cfg(not(loom))]
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(loom)]
use loom::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};

/// The first eight bytes of a switch.
pub const MAGIC: [u8; 8] = *b"ebbprof\0";
/// The version of what the words mean.
pub const VERSION: u64 = 2;
/// Chains of a table.
pub const BUCKETS: usize = 4096;
/// Words of a stack before its return addresses.
pub const STACK_WORDS: usize = 4;
/// Words of a tally.
pub const TALLY_WORDS: usize = 8;
/// Return addresses of a stack at most.
pub const DEPTH: usize = 128;
/// Frames of Python of a stack at most.
pub const PYTHON_DEPTH: usize = 64;
/// Words of a stack at most.
pub const WORDS: usize = DEPTH + 1 + 2 * PYTHON_DEPTH;
/// Between return addresses and frames of Python: no address.
pub const PYTHON: u64 = 1;
/// In the address of a code object: the frame's caller runs in another call of the interpreter's loop.
pub const OUTERMOST: u64 = 1;
/// Of the highest byte of its word.
pub const INDEX_SHIFT: u32 = 56;
/// Memory of a profile that a tool asked for: 16384 stacks that are as deep as can be, and as much for samples.
pub const MOST_BYTES: usize = 64 << 20;
/// Memory of a profile that `profile:on` keeps, without the buckets: 16,000 stacks of the usual depth, and samples of 32 GiB.
pub const MOST_BYTES_KEPT: usize = (8 << 20) - BUCKETS * 8;
/// One object.
pub const OBJECT: u64 = 256;

/// In [`Switch::state`]: the process has the profile by its own settings, and no request changes it.
pub const BY_SETTINGS: u64 = 1 << 8;
/// In [`Switch::state`]: allocations are sampled.
pub const ACTIVE: u64 = 1 << 9;
/// In [`Switch::state`]: sums of what was freed are kept.
pub const ACCUMULATES: u64 = 1 << 10;

/// See the module. Words that are written from outside are the first two after the address; the rest is the allocator's.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Switch {
    magic: [u8; 8],
    version: u64,
    table: AtomicPtr<()>,
    /// The [`Request`]. Written by a tool; the allocator acquires it after [`Switch::take_call`].
    pub asked: AtomicU64,
    /// A slow operation looks here when so many bytes were freed: a tool writes 0.
    pub attention: AtomicUsize,
    /// The request that is followed: released when the rest is so.
    pub answered: AtomicU64,
    /// When the profile began, by the process's monotonic clock in milliseconds.
    pub began_ms: AtomicU64,
    /// The logarithm of the mean interval between samples, and the flags above.
    pub state: AtomicU64,
    /// How CPython lies in memory, the last word first: an [`Interpreter`], or zeros. Written by a tool, the first word
    /// last; the allocator acquires that.
    pub interpreter: [AtomicU64; INTERPRETER_WORDS],
}

/// Bytes of a switch.
pub const BYTES: usize = size_of::<Switch>();
/// Offset of [`Switch::asked`], which [`Switch::attention`] follows.
pub const ASKED: usize = core::mem::offset_of!(Switch, asked);
/// Offset of [`Switch::interpreter`].
pub const INTERPRETER: usize = core::mem::offset_of!(Switch, interpreter);
/// Words of an [`Interpreter`].
pub const INTERPRETER_WORDS: usize = 4;

macro_rules! new {
    ($($constant:tt)?) => {
        impl Switch {
            /// Off. The table is at `table`; slow operations look when `attention` bytes were freed.
            pub $($constant)? fn new(table: *const (), attention: usize) -> Self {
                Self {
                    magic: MAGIC,
                    version: VERSION,
                    table: AtomicPtr::new(table.cast_mut()),
                    asked: AtomicU64::new(0),
                    attention: AtomicUsize::new(attention),
                    answered: AtomicU64::new(0),
                    began_ms: AtomicU64::new(0),
                    state: AtomicU64::new(0),
                    interpreter: [
                        AtomicU64::new(0),
                        AtomicU64::new(0),
                        AtomicU64::new(0),
                        AtomicU64::new(0),
                    ],
                }
            }
        }
    };
}
#[cfg(not(loom))]
new!(const);
#[cfg(loom)]
new!();

impl Switch {
    /// What a tool has said of the process's CPython.
    pub fn interpreter(&self) -> Option<Interpreter> {
        let [key, rest @ ..] = &self.interpreter;
        // With the tool's last store.
        let key = key.load(Ordering::Acquire);
        let [code_type, low, high] = rest.each_ref().map(|word| word.load(Ordering::Relaxed));
        (key != 0).then(|| Interpreter::from_words([key, code_type, low, high]))
    }

    /// Whether a tool has called; the next call is seen again. `attention` is what [`Switch::new`] got.
    #[inline]
    pub fn take_call(&self, attention: usize) -> bool {
        let is_called =
            self.attention.load(Ordering::Relaxed) == 0 && self.attention.swap(attention, Ordering::Relaxed) == 0;
        if is_called {
            // Pairs with the system calls between the two writes of each tool: the requests of all calls that the swap
            // has overwritten are read afterwards.
            fence(Ordering::SeqCst);
        }
        is_called
    }

    /// Where the table is.
    pub fn table(&self) -> u64 {
        // Relaxed: it never changes.
        self.table.load(Ordering::Relaxed) as u64
    }
}

/// A switch as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Address of the table.
    pub table: u64,
    /// See [`Switch::asked`].
    pub asked: u64,
    /// See [`Switch::answered`].
    pub answered: u64,
    /// See [`Switch::began_ms`].
    pub began_ms: u64,
    /// See [`Switch::state`].
    pub state: u64,
}

impl State {
    /// Reads a switch from `bytes`, which start at its magic. `None` for what is none, or of another version.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.get(..MAGIC.len()) != Some(&MAGIC) {
            return None;
        }
        let words = bytes.get(..BYTES)?.as_chunks().0;
        let word = |index: usize| words.get(index).copied().map(u64::from_ne_bytes);
        (word(1)? == VERSION).then_some(Self {
            table: word(2)?,
            asked: word(3)?,
            answered: word(5)?,
            began_ms: word(6)?,
            state: word(7)?,
        })
    }

    /// The logarithm of the mean interval between samples.
    pub fn lg_sample(&self) -> u32 {
        u32::from(self.state.to_le_bytes()[0])
    }
}

/// Where the switch lies within `memory`, as [`crate::find`] finds a page of counters.
pub fn find(memory: &[u8]) -> Option<usize> {
    let mut offsets = (0..memory.len()).step_by(crate::PAGE_ALIGN);
    offsets.find(|&at| State::from_bytes(&memory[at..]).is_some())
}

/// What a tool asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Tells it from the one before.
    pub number: u16,
    /// The logarithm of the mean interval between samples, below 128.
    pub lg_sample: u8,
    /// What was sampled before is forgotten.
    pub is_anew: bool,
    /// Tools that have asked and not said that they are done.
    pub users: u8,
    /// The profile ends after so many milliseconds without another request; at once for 0.
    pub lease_ms: u32,
}

/// In the byte of the logarithm.
const ANEW: u8 = 0x80;

impl Request {
    /// The word: 16 bits of the number are kept.
    pub const fn word(self) -> u64 {
        let anew = if self.is_anew { ANEW } else { 0 };
        let lg = (self.lg_sample & !ANEW) | anew;
        (self.number as u64) << 48 | (self.users as u64) << 40 | (lg as u64) << 32 | self.lease_ms as u64
    }

    /// Reads one.
    pub const fn from_word(word: u64) -> Self {
        let bytes = word.to_le_bytes();
        Self {
            number: u16::from_le_bytes([bytes[6], bytes[7]]),
            users: bytes[5],
            lg_sample: bytes[4] & !ANEW,
            is_anew: bytes[4] & ANEW != 0,
            lease_ms: u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
        }
    }
}

/// A frame of Python, as it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Address of its code object.
    pub code: u64,
    /// See [`Interpreter::check`].
    pub check: u32,
    /// Of its instruction: a number up to 3.10, later the distance from the code object in bytes.
    pub position: u32,
    /// Whether it is the outermost of a call of the interpreter's loop.
    pub is_outermost: bool,
    /// Index of the return address into that call, where it is known.
    pub index: Option<usize>,
}

impl Frame {
    /// Reads its two words.
    pub const fn from_words([code, rest]: [u64; 2]) -> Self {
        let [a, b, c, d, e, f, g, h] = rest.to_le_bytes();
        Self {
            code: (code & !OUTERMOST) << 8 >> 8,
            check: u32::from_le_bytes([e, f, g, h]),
            position: u32::from_le_bytes([a, b, c, d]),
            is_outermost: code & OUTERMOST != 0,
            index: ((code >> INDEX_SHIFT) as usize).checked_sub(1),
        }
    }
}

/// How a CPython lies in memory: where the allocator finds the frames of the calling thread. Offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interpreter {
    /// Address of the `Py_tss_t` whose value is a thread's state.
    pub key: u64,
    /// Address of the type of code objects.
    pub code_type: u64,
    /// In a thread's state: the innermost frame, or what leads to it.
    pub first: u8,
    /// In what leads to the innermost frame: that frame. [`Interpreter::DIRECT`] if the state has it itself.
    pub current: u8,
    /// In a frame: the caller's.
    pub previous: u8,
    /// In a frame: its code object.
    pub code: u8,
    /// In a frame: its instruction.
    pub instruction: u8,
    /// In a frame: the byte that says where one call of the interpreter's loop ends.
    pub border: u8,
    /// How it says so.
    pub borders: Borders,
    /// In a code object: its first line.
    pub line: u8,
    /// In a code object: its name, its file and its table of lines.
    pub names: [u8; 3],
}

/// What [`Interpreter::border`] means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Borders {
    /// Each frame has a call of the loop of its own (to 3.10). The instruction is a number.
    All = 0,
    /// Where the byte is not 0, the frame is the outermost one of its call (3.11).
    Entries = 1,
    /// Where the byte is at least 3, the frame has no code, and the one before it was the outermost (3.12 and later).
    Shims = 3,
}

impl Interpreter {
    /// See [`Interpreter::current`].
    pub const DIRECT: u8 = u8::MAX;

    /// The words of [`Switch::interpreter`].
    pub fn words(self) -> [u64; INTERPRETER_WORDS] {
        let low = [
            self.first, self.current, self.previous, self.code, self.instruction, self.border, self.borders as u8,
            self.line,
        ];
        let [name, file, lines] = self.names;
        let high = [name, file, lines, 0, 0, 0, 0, 0];
        [self.key, self.code_type, u64::from_le_bytes(low), u64::from_le_bytes(high)]
    }

    /// Reads them.
    pub fn from_words([key, code_type, low, high]: [u64; INTERPRETER_WORDS]) -> Self {
        let [first, current, previous, code, instruction, border, borders, line] = low.to_le_bytes();
        let borders = match borders {
            0 => Borders::All,
            1 => Borders::Entries,
            _ => Borders::Shims,
        };
        let [name, file, lines, ..] = high.to_le_bytes();
        Self {
            key,
            code_type,
            first,
            current,
            previous,
            code,
            instruction,
            border,
            borders,
            line,
            names: [name, file, lines],
        }
    }

    /// Tells a code object from a later one at its address, by the aligned word with its first line and the words at
    /// [`Interpreter::names`], which `word` reads.
    pub fn check<E>(&self, mut word: impl FnMut(u64) -> Result<u64, E>) -> Result<u32, E> {
        let line = word(u64::from(self.line) & !7)?;
        let mut words = [line; 4];
        for (place, offset) in words[1..].iter_mut().zip(self.names) {
            *place = word(offset.into())?;
        }
        let [.., a, b, c, d] = hash(words).to_le_bytes();
        Ok(u32::from_le_bytes([a, b, c, d]))
    }
}

/// Of a stack's words.
pub fn hash(frames: impl IntoIterator<Item = u64>) -> u64 {
    frames.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, frame| {
        (hash ^ frame).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
    })
}
