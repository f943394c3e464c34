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
pub fn parse<'a>(texts: [Option<&'a [u8]>; Source::ALL.len()], mut report: impl FnMut(Report<'a>)) -> Options<'a> {
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

#[cfg(test)]
mod tests {
    use super::keys::{Effect, IGNORED, MIRRORED, OWN_DECAY, STATS_FILE};
    use super::*;
    use std::string::{String, ToString};
    use std::vec::Vec;

    /// What `EBB_CONF` alone makes, and what is wrong with it.
    fn ebb(text: &str) -> (Options<'_>, Vec<(Fault, String)>) {
        let mut wrong = Vec::new();
        let options = parse([None, None, None, Some(text.as_bytes()), None], |report| {
            if let Err(fault) = report.outcome {
                wrong.push((fault, String::from_utf8_lossy(report.text).to_string()));
            }
        });
        (options, wrong)
    }

    fn number(text: &str, id: Id) -> u64 {
        let (options, wrong) = ebb(text);
        assert_eq!(wrong, [], "{text}");
        // Each key sets its value alone.
        let others = |place: &usize| *place != id as usize;
        let changed =
            (0..KEYS.len()).filter(others).find(|&place| options.numbers[place] != Options::DEFAULT.numbers[place]);
        assert_eq!(changed, None, "{text}");
        options.number(id)
    }

    #[test]
    fn nothing_set_is_the_default() {
        for text in [None, Some(b"".as_slice()), Some(b" , ,".as_slice())] {
            let options = parse([text; 5], |report| panic!("{report:?}"));
            assert_eq!(options, Options::DEFAULT);
        }
        assert!(Options::DEFAULT.is(Id::BackgroundThread) && Options::DEFAULT.is(Id::Purge));
        assert_eq!(Options::DEFAULT.number(Id::DirtyDecayMs), OWN_DECAY);
    }

    #[test]
    fn a_key_is_at_its_place_and_the_mirror_ends_where_it_says() {
        assert_eq!(Id::AbortConf.key().name, "abort_conf");
        assert_eq!(KEYS[Id::StatsFile as usize].name, "stats_file");
        assert_eq!(KEYS[MIRRORED].name, "lg_tcache_max");
        let mut names: Vec<_> = KEYS.iter().map(|key| key.name).chain(IGNORED.split(' ')).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), KEYS.len() + IGNORED.split(' ').count());
    }

    #[test]
    fn each_shape_reads_its_values() {
        let minus = |value: i64| value as u64;
        for (text, id, expected) in [
            ("purge:off", Id::Purge, 0),
            ("purge:off,purge:on", Id::Purge, 1),
            (" confirm_conf:true ,", Id::ConfirmConf, 1),
            ("background_thread:false", Id::BackgroundThread, 0),
            ("dirty_decay_ms:-1", Id::DirtyDecayMs, minus(-1)),
            ("dirty_decay_ms:0", Id::DirtyDecayMs, 0),
            ("dirty_decay_ms:10000", Id::DirtyDecayMs, 10_000),
            ("narenas:3", Id::Narenas, 3),
            ("narenas:3,narenas:default", Id::Narenas, 0),
            ("narenas_ratio:0.5", Id::NarenasRatio, 1 << 15),
            ("narenas_ratio:2", Id::NarenasRatio, 2 << 16),
            ("thp:default", Id::Thp, 0),
            ("thp:always", Id::Thp, 1),
            ("percpu_arena:phycpu", Id::PercpuArena, 2),
            ("oversize_threshold:0x100000", Id::OversizeThreshold, 1 << 20),
            ("lg_tcache_max:10", Id::TcacheMax, 1024),
            ("lg_tcache_max:16", Id::TcacheMax, 64 << 10),
            ("tcache_max:1000000", Id::TcacheMax, 64 << 10),
            ("stats_interval:-1", Id::StatsInterval, minus(-1)),
            ("stats_interval:010", Id::StatsInterval, 8),
            ("lg_prof_sample:99", Id::LgProfSample, 63),
            ("memory_price:4294967296", Id::MemoryPrice, 4 << 30),
            ("memory_price:512m", Id::MemoryPrice, 512 << 20),
            ("memory_price:1K,memory_price:2G", Id::MemoryPrice, 2 << 30),
            ("junk:alloc", Id::Junk, 2),
            ("zero_realloc:abort", Id::ZeroRealloc, 2),
        ] {
            assert_eq!(number(text, id), expected, "{text}");
        }
        let (options, wrong) = ebb("stats_file:/run/ebb/%p");
        assert_eq!(options.texts[STATS_FILE], Some(b"/run/ebb/%p".as_slice()));
        assert!(wrong.is_empty());
    }

    #[test]
    fn what_makes_no_sense_is_told_and_changes_nothing() {
        use Fault::{BadValue, OutOfRange, UnknownKey};
        for (text, fault) in [
            ("typo:1", UnknownKey),
            ("purge", BadValue),
            ("purge:", BadValue),
            ("purge:true", BadValue),
            ("stats_print:on", BadValue),
            ("dirty_decay_ms:-2", OutOfRange),
            ("dirty_decay_ms:1s", BadValue),
            ("dirty_decay_ms:99999999999999999999999", BadValue),
            ("dirty_decay_ms:", BadValue),
            ("narenas:-1", OutOfRange),
            ("thp:Always", BadValue),
            ("narenas_ratio:.", BadValue),
            ("narenas_ratio:-1", BadValue),
            ("narenas_ratio:1e3", BadValue),
            ("narenas_ratio:70000", OutOfRange),
            ("memory_price:0", OutOfRange),
            ("memory_price:99999999999g", OutOfRange),
            ("stats_file:relative", BadValue),
            ("lg_prof_interval:64", OutOfRange),
            ("oversize_threshold:08", BadValue),
        ] {
            let (options, wrong) = ebb(text);
            assert_eq!(wrong, [(fault, text.to_string())], "{text}");
            assert_eq!(options, Options::DEFAULT, "{text}");
        }
    }

    #[test]
    fn names_that_are_ignored_are_accepted_with_any_value() {
        for name in IGNORED.split(' ') {
            let text = format!("{name}:1-8:2|x");
            let (options, wrong) = ebb(&text);
            assert_eq!((options, wrong), (Options::DEFAULT, vec![]), "{name}");
        }
    }

    #[test]
    fn the_later_text_wins() {
        let text = |number: usize| ["narenas:1", "narenas:2", "narenas:3", "narenas:4", "narenas:5"][number];
        for last in 0..5 {
            let texts = core::array::from_fn(|at| (at <= last).then(|| text(at).as_bytes()));
            let options = parse(texts, |_| ());
            assert_eq!(options.number(Id::Narenas), last as u64 + 1);
        }
        assert_eq!(Source::ALL[3].name(), "EBB_CONF");
    }

    #[test]
    fn every_setting_is_reported_with_its_source() {
        let mut told = Vec::new();
        let texts = [Some(b"zero:true".as_slice()), None, Some(b"narena:1"), None, Some(b"utrace:true")];
        parse(texts, |report| told.push((report.source, report.outcome)));
        assert_eq!(
            told,
            [
                (Source::Program, Ok(Effect::Acts)),
                (Source::Malloc, Err(Fault::UnknownKey)),
                (Source::Harder, Ok(Effect::NoCounterpart)),
            ]
        );
    }

    #[test]
    fn a_key_mistyped_is_guessed_and_a_strange_one_is_not() {
        for (typed, meant) in [
            ("narena", Some("narenas")),
            ("dirty_decay", Some("dirty_decay_ms")),
            ("background_threads", Some("background_thread")),
            ("lg_tcachemax", Some("lg_tcache_max")),
            ("Retain", Some("retain")),
            ("quux", None),
            ("", None),
            ("a_name_that_is_longer_than_any_key_that_there_is_here", None),
        ] {
            assert_eq!(nearest(typed.as_bytes()), meant, "{typed}");
        }
    }

    #[test]
    fn paths_hold_the_process_id_and_never_overflow() {
        let mut room = [0; PATH_BYTES];
        for (pattern, id, expected) in
            [("/run/ebb/%p", 4_194_304, "/run/ebb/4194304"), ("/%p-%p", 0, "/0-0"), ("/plain", 7, "/plain")]
        {
            let path = expand_path(pattern.as_bytes(), id, &mut room).unwrap();
            assert_eq!(path.to_str().unwrap(), expected);
        }
        let fits = [b'/'; PATH_BYTES - 1];
        assert!(expand_path(&fits, 1, &mut room).is_some());
        assert!(expand_path(&[b'/'; PATH_BYTES], 1, &mut room).is_none());
        assert!(expand_path(b"/a\0b", 1, &mut room).is_none());
        let mut tail = fits;
        tail[PATH_BYTES - 3..].copy_from_slice(b"%p");
        assert!(expand_path(&tail, 99, &mut room).is_some());
        assert!(expand_path(&tail, 100, &mut room).is_none());
    }
}
