//! The settings that a jemalloc in a process really has, read from its own variables.
//!
//! Where its symbols are: in most Rust programs, which have it inside under prefixed names, and in programs that
//! link it statically. A stripped library (`libjemalloc.so.2` of distributions) tells nothing, and the
//! answer is that it is not there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::memory::{Reader, Unreadable};
use crate::symbols;
use crate::target::Target;

/// A jemalloc and the settings in force.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Jemalloc {
    /// The file that it is part of.
    pub file: PathBuf,
    /// What its names begin with: `je_`, or `_rjem_je_` in Rust programs.
    pub prefix: String,
    /// How long freed pages stay, in milliseconds; -1 for ever.
    pub dirty_decay_ms: i64,
    /// How long pages stay that were given back lazily.
    pub muzzy_decay_ms: Option<i64>,
    /// Whether a thread of its own gives pages back; else only the program's own requests do.
    pub background_thread: Option<bool>,
    /// Arenas.
    pub narenas: Option<u32>,
}

/// The variable that every jemalloc since 5.0 has.
const MARK: &str = "opt_dirty_decay_ms";

/// The jemallocs of `target` whose variables have symbols.
pub fn read(target: &Target) -> Result<Vec<Jemalloc>, Unreadable> {
    let mappings = target.mappings()?;
    let files: BTreeSet<&Path> = mappings
        .iter()
        .filter(|mapping| mapping.executable)
        .filter_map(|mapping| mapping.file())
        .collect();
    let mut reader = Reader::new(target.memory());
    let mut found = Vec::new();
    for file in files {
        let is_setting = |name: &str| name.contains("opt_");
        let variables = symbols::variables(target, &mappings, file, is_setting);
        let variables: BTreeMap<String, u64> = variables.into_iter().collect();
        let prefixes = variables.keys().filter_map(|name| name.strip_suffix(MARK));
        for prefix in prefixes {
            let at = |name: &str| variables.get(&format!("{prefix}{name}")).copied();
            let mut word = |name| if_there(at(name).map(|address| reader.word(address)));
            let Some(dirty_decay_ms) = word(MARK)? else {
                continue;
            };
            let muzzy_decay_ms = word("opt_muzzy_decay_ms")?;
            let narenas = if_there(at("opt_narenas").map(|address| reader.int(address)))?;
            let mut byte = [0];
            let background = at("opt_background_thread");
            let background = if_there(background.map(|address| reader.bytes(address, &mut byte)))?;
            found.push(Jemalloc {
                file: file.to_owned(),
                prefix: prefix.to_owned(),
                dirty_decay_ms: dirty_decay_ms.cast_signed(),
                muzzy_decay_ms: muzzy_decay_ms.map(u64::cast_signed),
                background_thread: background.map(|()| byte[0] != 0),
                narenas,
            });
        }
    }
    Ok(found)
}

/// A variable that has no symbol, or lies on a page that is not there, is not known.
fn if_there<T>(read: Option<Result<T, Unreadable>>) -> Result<Option<T>, Unreadable> {
    match read.transpose() {
        Err(error) if !error.is_final() => Ok(None),
        other => other,
    }
}
