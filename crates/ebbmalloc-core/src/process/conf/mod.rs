//! Settings: the text of `EBB_CONF` and `MALLOC_CONF` made into a [`Config`].
//!
//! Called once at boot, before anything can be allocated: pure functions over bytes that live as long
//! as the process, no memory, no words printed. What is wrong in the text comes back as [`Problem`]s,
//! for the caller to print.
//!
//! Both variables hold `key:value` pairs with commas between. `MALLOC_CONF` is jemalloc's: a service
//! that was tuned for it goes on working, keys without a meaning here are passed over in silence.
//! What `EBB_CONF` says wins.
#![forbid(unsafe_code)]

mod jemalloc;
mod path;
#[cfg(test)]
mod tests;

use crate::arena::delay::BYTES_PER_CORE;
pub use path::{PATH_BYTES, expand_path};

/// How long a page may stay idle before it goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleLimit {
    /// As long as the allocator finds right.
    Own,
    /// At most so many milliseconds.
    AtMostMs(u64),
    /// For ever: nothing is returned but by `malloc_trim`.
    Never,
}

/// The settings of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config<'a> {
    /// `purge`: whether memory is returned without being asked for.
    pub purge: bool,
    /// `background_thread`: whether a thread may be started for it.
    pub background_thread: bool,
    /// `dirty_decay_ms`: upper bound on the idle time; -1 is [`IdleLimit::Never`].
    pub idle_limit: IdleLimit,
    /// `memory_price`: bytes of memory that are worth as much as one processor.
    pub memory_price: u64,
    /// `thp`: whether the kernel may make huge pages of the heap.
    pub huge_pages: bool,
    /// `narenas`: upper bound on the number of arenas.
    pub narenas: Option<u32>,
    /// `stats_print`: whether statistics are printed when the process exits.
    pub stats_print: bool,
    /// `confirm_conf`: whether version, settings and mechanisms are printed at the start.
    pub confirm_conf: bool,
    /// `stats_file`: file for the published counters; `%p` stands for the process id.
    pub stats_file: Option<&'a [u8]>,
}

impl Config<'_> {
    /// The settings of a process that sets nothing.
    pub const DEFAULT: Self = Self {
        purge: true,
        background_thread: true,
        idle_limit: IdleLimit::Own,
        memory_price: BYTES_PER_CORE,
        huge_pages: false,
        narenas: None,
        stats_print: false,
        confirm_conf: false,
        stats_file: None,
    };
}

/// The variable that a setting stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variable {
    /// `EBB_CONF`.
    Ebb,
    /// `MALLOC_CONF`.
    Malloc,
}

impl Variable {
    /// The variable's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ebb => "EBB_CONF",
            Self::Malloc => "MALLOC_CONF",
        }
    }
}

/// What is wrong with a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nobody knows the key.
    UnknownKey,
    /// The value is not one that the key can have.
    BadValue,
}

/// A setting without effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem<'a> {
    /// Where it stands.
    pub variable: Variable,
    /// What is wrong.
    pub fault: Fault,
    /// The setting's text, `key:value`.
    pub text: &'a [u8],
}

/// As many problems are told one by one.
const PROBLEMS: usize = 8;

/// The first problems in the text, and how many there are in all.
#[derive(Clone, Copy, Debug)]
pub struct Problems<'a> {
    first: [Option<Problem<'a>>; PROBLEMS],
    found: usize,
}

impl<'a> Problems<'a> {
    /// The problems that are told, in the order of the text.
    pub fn iter(&self) -> impl Iterator<Item = Problem<'a>> + '_ {
        self.first.iter().copied().flatten()
    }

    /// How many more there are.
    pub const fn untold(&self) -> usize {
        self.found.saturating_sub(PROBLEMS)
    }

    fn add(&mut self, problem: Problem<'a>) {
        if let Some(place) = self.first.get_mut(self.found) {
            *place = Some(problem);
        }
        self.found += 1;
    }
}

/// Reads both variables, each of which may be unset.
pub fn parse<'a>(ebb: Option<&'a [u8]>, malloc: Option<&'a [u8]>) -> (Config<'a>, Problems<'a>) {
    let mut config = Config::DEFAULT;
    let mut problems = Problems {
        first: [None; PROBLEMS],
        found: 0,
    };
    // The later wins.
    for (variable, text) in [(Variable::Malloc, malloc), (Variable::Ebb, ebb)] {
        let settings = text.unwrap_or_default().split(|&byte| byte == b',');
        for text in settings
            .map(<[u8]>::trim_ascii)
            .filter(|text| !text.is_empty())
        {
            if let Err(fault) = apply(&mut config, variable, text) {
                problems.add(Problem {
                    variable,
                    fault,
                    text,
                });
            }
        }
    }
    (config, problems)
}

/// Applies one setting.
fn apply<'a>(config: &mut Config<'a>, variable: Variable, text: &'a [u8]) -> Result<(), Fault> {
    let colon = text
        .iter()
        .position(|&byte| byte == b':')
        .unwrap_or(text.len());
    let (key, value) = (&text[..colon], text.get(colon + 1..).unwrap_or_default());
    let ours = variable == Variable::Ebb;
    match key {
        b"purge" if ours => config.purge = on_or_off(value)?,
        b"thp" if ours => config.huge_pages = huge_pages(value)?,
        b"stats_file" if ours => config.stats_file = Some(path::check(value)?),
        b"memory_price" if ours => config.memory_price = memory_price(value)?,
        b"background_thread" => config.background_thread = truth(value)?,
        b"dirty_decay_ms" => config.idle_limit = idle_limit(value)?,
        // There are no muzzy pages: what goes back is gone at once.
        b"muzzy_decay_ms" => drop(idle_limit(value)?),
        b"narenas" => config.narenas = narenas(value)?,
        b"stats_print" => config.stats_print = truth(value)?,
        b"confirm_conf" => config.confirm_conf = truth(value)?,
        _ if !ours && jemalloc::knows(key) => {}
        _ => return Err(Fault::UnknownKey),
    }
    Ok(())
}

fn truth(value: &[u8]) -> Result<bool, Fault> {
    match value {
        b"true" => Ok(true),
        b"false" => Ok(false),
        _ => Err(Fault::BadValue),
    }
}

fn on_or_off(value: &[u8]) -> Result<bool, Fault> {
    match value {
        b"on" => Ok(true),
        b"off" => Ok(false),
        _ => Err(Fault::BadValue),
    }
}

fn huge_pages(value: &[u8]) -> Result<bool, Fault> {
    match value {
        b"default" => Ok(true),
        b"never" => Ok(false),
        _ => Err(Fault::BadValue),
    }
}

fn idle_limit(value: &[u8]) -> Result<IdleLimit, Fault> {
    match value {
        b"-1" => Ok(IdleLimit::Never),
        _ => number(value).map(IdleLimit::AtMostMs),
    }
}

/// A number of arenas, or `default`; 0 is what jemalloc reads as one arena.
fn narenas(value: &[u8]) -> Result<Option<u32>, Fault> {
    match value {
        b"default" => Ok(None),
        _ => {
            let arenas = u32::try_from(number(value)?).map_err(|_| Fault::BadValue)?;
            Ok(Some(arenas.max(1)))
        }
    }
}

/// Bytes, in whole numbers or with `k`, `m` or `g` behind; a price of nothing is none.
fn memory_price(value: &[u8]) -> Result<u64, Fault> {
    let (digits, shift) = match value {
        [digits @ .., b'k' | b'K'] => (digits, 10),
        [digits @ .., b'm' | b'M'] => (digits, 20),
        [digits @ .., b'g' | b'G'] => (digits, 30),
        digits => (digits, 0),
    };
    match number(digits)?.checked_mul(1 << shift) {
        Some(0) | None => Err(Fault::BadValue),
        Some(bytes) => Ok(bytes),
    }
}

fn number(value: &[u8]) -> Result<u64, Fault> {
    let text = core::str::from_utf8(value).map_err(|_| Fault::BadValue)?;
    if text.starts_with('+') {
        return Err(Fault::BadValue);
    }
    text.parse().map_err(|_| Fault::BadValue)
}
