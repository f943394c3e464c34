//! When an allocator means to give idle memory back, by its settings.
//!
//! Used by trials, whose rests must be longer. Pure. What is not known for sure is `None`.

use super::allocator::Allocator;
use serde::{Deserialize, Serialize};

/// jemalloc 5's own, in milliseconds: dirty pages, then muzzy ones.
const JEMALLOC_MS: (i64, i64) = (10_000, 0);
/// ebbmalloc keeps a page for T to 2 T, T at most 900 ms (docs/settings.md).
const EBBMALLOC_S: f64 = 2.0;

/// When a variant means to give idle memory back.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Decay {
    /// All of it within this time after its last use.
    Within {
        /// The time.
        seconds: f64,
        /// Only while the program goes on allocating.
        only_when_active: bool,
    },
    /// It is set to keep it.
    Never,
}

/// The decay of an allocator, named or a path, with `setting` looking up its variables.
pub fn decay(allocator: &str, setting: impl Fn(&str) -> Option<String>) -> Option<Decay> {
    let file = allocator.rsplit('/').next().unwrap_or(allocator);
    match Allocator::from_choice(allocator).or_else(|| Allocator::from_file_name(file))? {
        Allocator::Jemalloc => Some(jemalloc(&setting("MALLOC_CONF").unwrap_or_default())),
        Allocator::Ebbmalloc => {
            // Its own variable comes after jemalloc's, and the last word counts.
            let both = [setting("MALLOC_CONF"), setting("EBB_CONF")];
            let text: Vec<String> = both.into_iter().flatten().collect();
            Some(ebbmalloc(&text.join(",")))
        }
        Allocator::Mimalloc => match setting("MIMALLOC_PURGE_DELAY")?.trim().parse::<i64>() {
            Ok(ms) if ms < 0 => Some(Decay::Never),
            Ok(ms) => Some(Decay::Within { seconds: ms as f64 / 1000.0, only_when_active: true }),
            Err(_) => None,
        },
        Allocator::Tcmalloc | Allocator::Glibc | Allocator::Musl => None,
    }
}

fn jemalloc(text: &str) -> Decay {
    let ms = |key: &str, default: i64| match last(text, key) {
        Some(value) => value.parse().unwrap_or(default),
        None => default,
    };
    let dirty = ms("dirty_decay_ms", JEMALLOC_MS.0);
    let muzzy = ms("muzzy_decay_ms", JEMALLOC_MS.1);
    if dirty < 0 || muzzy < 0 {
        return Decay::Never;
    }
    Decay::Within {
        seconds: (dirty + muzzy) as f64 / 1000.0,
        only_when_active: last(text, "background_thread") != Some("true"),
    }
}

fn ebbmalloc(text: &str) -> Decay {
    let bound = last(text, "dirty_decay_ms").and_then(|value| value.parse::<i64>().ok());
    match (last(text, "purge"), bound) {
        (Some("off"), _) => Decay::Never,
        (_, Some(ms)) if ms < 0 => Decay::Never,
        (_, bound) => Decay::Within {
            // An upper bound on the idle time.
            seconds: bound.map_or(EBBMALLOC_S, |ms| (ms as f64 / 1000.0).min(EBBMALLOC_S)),
            only_when_active: last(text, "background_thread") == Some("false"),
        },
    }
}

/// The value of a key in `key:value,...`; of two the last counts.
fn last<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.split(',')
        .filter_map(|pair| pair.split_once(':'))
        .filter(|(name, _)| name.trim() == key)
        .map(|(_, value)| value.trim())
        .next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_say_when_memory_is_returned() {
        let within = |seconds, only_when_active| Some(Decay::Within { seconds, only_when_active });
        let deployed = "background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:1000";
        let kept = "dirty_decay_ms:1000,muzzy_decay_ms:-1";
        let twice = "dirty_decay_ms:-1,dirty_decay_ms:500";
        for (allocator, name, value, expected) in [
            ("jemalloc", "", "", within(10.0, true)),
            ("/usr/lib/libjemalloc.so.2", "MALLOC_CONF", deployed, within(2.0, false)),
            ("jemalloc", "MALLOC_CONF", kept, Some(Decay::Never)),
            ("jemalloc", "MALLOC_CONF", twice, within(0.5, true)),
            ("ebbmalloc", "", "", within(2.0, false)),
            ("ebbmalloc", "EBB_CONF", "dirty_decay_ms:500", within(0.5, false)),
            ("ebbmalloc", "MALLOC_CONF", "dirty_decay_ms:30000", within(2.0, false)),
            ("ebbmalloc", "EBB_CONF", "purge:off", Some(Decay::Never)),
            ("mimalloc", "MIMALLOC_PURGE_DELAY", "-1", Some(Decay::Never)),
            ("mimalloc", "", "", None),
            ("glibc", "", "", None),
            ("tcmalloc", "", "", None),
            ("/opt/libother.so", "", "", None),
        ] {
            let setting = |asked: &str| (asked == name).then(|| value.to_owned());
            assert_eq!(decay(allocator, setting), expected, "{allocator} {name}={value}");
        }
    }
}
