//! Settings: the texts of the environment and the program made into [`Options`].
//!
//! Called once at boot, before anything can be allocated: pure functions over bytes that live as long
//! as the process, no memory, no words printed. Messages about the text are returned, for
//! the caller to print.
//!
//! All texts hold `key:value` pairs with commas between, as jemalloc's do; any key may be in any of
//! them. What a later [`Source`] says wins.
#![forbid(unsafe_code)]

pub mod keys;
mod options;
#[cfg(test)]
mod tests;
mod value;

pub use keys::{Effect, Id, KEYS, nearest};
pub use options::{Fault, Options};
pub use value::{PATH_BYTES, expand_path};

/// Where a text comes from, in the order in which they are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The program's symbol `malloc_conf`.
    Program,
    /// What the link /etc/malloc.conf points to.
    Link,
    /// The environment's `MALLOC_CONF`.
    Malloc,
    /// The environment's `EBB_CONF`.
    Ebb,
    /// The program's symbol `malloc_conf_2_conf_harder`.
    Harder,
}

impl Source {
    /// All of them; the later wins.
    pub const ALL: [Self; 5] = [Self::Program, Self::Link, Self::Malloc, Self::Ebb, Self::Harder];

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Program => "malloc_conf",
            Self::Link => "/etc/malloc.conf",
            Self::Malloc => "MALLOC_CONF",
            Self::Ebb => "EBB_CONF",
            Self::Harder => "malloc_conf_2_conf_harder",
        }
    }
}

/// One setting of a text, and what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report<'a> {
    /// Where it stands.
    pub source: Source,
    /// Its text, `key:value`.
    pub text: &'a [u8],
    /// Its key.
    pub key: &'a [u8],
    /// What it does, or what is wrong.
    pub outcome: Result<Effect, Fault>,
}

/// Reads the texts, in the order of [`Source::ALL`]; says of each setting what became of it.
pub fn parse<'a>(
    texts: [Option<&'a [u8]>; Source::ALL.len()],
    mut report: impl FnMut(Report<'a>),
) -> Options<'a> {
    let mut options = Options::DEFAULT;
    for (source, text) in Source::ALL.into_iter().zip(texts) {
        let settings = text.unwrap_or_default().split(|&byte| byte == b',');
        for text in settings.map(<[u8]>::trim_ascii).filter(|text| !text.is_empty()) {
            let (key, outcome) = apply(&mut options, text);
            report(Report { source, text, key, outcome });
        }
    }
    options
}

/// Applies one setting; returns its key, and what that does.
fn apply<'a>(options: &mut Options<'a>, text: &'a [u8]) -> (&'a [u8], Result<Effect, Fault>) {
    let colon = text.iter().position(|&byte| byte == b':');
    let colon = colon.unwrap_or(text.len());
    let (key, value) = (&text[..colon], text.get(colon + 1..).unwrap_or_default());
    let outcome = match keys::find(key) {
        Some(place) => value::set(options, place, value).map(|()| KEYS[place].effect),
        None if keys::is_ignored(key) => Ok(Effect::NoCounterpart),
        None => Err(Fault::UnknownKey),
    };
    (key, outcome)
}
