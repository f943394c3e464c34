//! The settings of a process, and what can be wrong with one.
#![forbid(unsafe_code)]

use super::keys::{self, Id, KEYS};

/// The settings of a process: a value for each key of [`KEYS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options<'a> {
    /// By the key's place: a truth value, a number (a negative one in two's complement), or the place
    /// of a word among those to choose from.
    pub numbers: [u64; KEYS.len()],
    /// The texts, where they are set.
    pub texts: [Option<&'a [u8]>; keys::TEXTS],
}

impl Options<'_> {
    /// The settings of a process that sets nothing.
    pub const DEFAULT: Self = {
        let mut numbers = [0; KEYS.len()];
        let mut place = 0;
        while place < numbers.len() {
            numbers[place] = KEYS[place].default;
            place += 1;
        }
        Self { numbers, texts: [None; keys::TEXTS] }
    };

    /// Whether something is switched on.
    pub const fn is(&self, id: Id) -> bool {
        self.numbers[id as usize] != 0
    }

    /// A number, or the place of a word.
    pub const fn number(&self, id: Id) -> u64 {
        self.numbers[id as usize]
    }

    pub(super) fn set(&mut self, id: Id, number: u64) {
        self.numbers[id as usize] = number;
    }
}

/// What is wrong with a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The key is unknown.
    UnknownKey,
    /// The value is not one that the key can have.
    BadValue,
    /// The value is a number, but too small or too large.
    OutOfRange,
}
