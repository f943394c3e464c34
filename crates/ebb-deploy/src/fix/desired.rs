//! The allocator that the user wants, and which variables have to change for it. Pure.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use ebb_allocators::{Allocator, Choice, Environment, Library, Settings, preload_entries};

use crate::check::library::file_name;

/// Where our library goes: a folder of no distribution's package, and the same for every architecture.
pub const LIBRARY: &str = "/usr/local/lib/libebbmalloc.so";

/// The library of our Debian package, which the loader finds by its name.
pub const SONAME: &str = "libebbmalloc.so.0";

/// Our published image, which has [`LIBRARY`] and `ebb`; packages/images.py makes it.
pub const IMAGE: &str = "ghcr.io/ebbmalloc/ebb";

/// A published version of ebbmalloc.
#[derive(Clone, Debug)]
pub struct Release {
    /// Its number.
    pub version: String,
    /// The image that the user named, by its digest.
    pub image: Option<String>,
}

/// The allocator that the user wants, its settings, and the reason.
#[derive(Clone, Debug)]
pub struct Desired {
    /// The allocator; the system's own means that nothing is preloaded.
    pub allocator: Allocator,
    /// Where its library is when the service runs, if the user said so.
    pub library: Option<String>,
    /// The release that ebbmalloc is taken from; none for the library and the crate of this `ebb`.
    pub release: Option<Release>,
    /// Its settings as variables, without `LD_PRELOAD`.
    pub variables: BTreeMap<String, String>,
    /// Whether variables that are already set stay: true if these values are only our suggestion.
    pub keep_existing: bool,
    /// The reason, to follow "because".
    pub why: String,
}

/// One variable that has to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// Its new value.
    pub value: String,
    /// The reason.
    pub why: String,
}

/// What has to change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The variables, `LD_PRELOAD` first.
    pub settings: Vec<Setting>,
    /// Notes about what stays although it differs, and what was removed.
    pub notes: Vec<String>,
}

impl Desired {
    /// Whether a library has to be there.
    pub fn preloads(&self) -> bool {
        !self.allocator.is_of_libc()
    }

    /// The entry for `LD_PRELOAD` where `ebb` does not install the library: a path for ebbmalloc, else a name, which the
    /// loader looks up on every architecture.
    pub fn preload_entry(&self) -> String {
        self.library.clone().unwrap_or_else(|| match self.allocator {
            Allocator::Ebbmalloc => LIBRARY.to_owned(),
            _ => self.allocator.sonames().first().copied().unwrap_or_default().to_owned(),
        })
    }

    /// The same on a host, where a release's package puts the library into the system's folder.
    pub fn preload_entry_of_host(&self) -> String {
        match (&self.library, &self.release) {
            (None, Some(_)) => SONAME.to_owned(),
            _ => self.preload_entry(),
        }
    }

    /// Every variable that it may change.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once("LD_PRELOAD").chain(self.variables.keys().map(String::as_str))
    }

    /// What has to change. `present` returns the value of a variable; `library` is the entry for `LD_PRELOAD`.
    pub fn changes(&self, library: &str, present: &dyn Fn(&str) -> Option<String>) -> Changes {
        let mut changes = Changes::default();
        self.preload(library, present("LD_PRELOAD").as_deref(), &mut changes);
        for (name, value) in &self.variables {
            self.variable(name, value, present(name), &mut changes);
        }
        changes
    }

    fn preload(&self, library: &str, present: Option<&str>, changes: &mut Changes) {
        let present = present.unwrap_or_default();
        let known = |entry: OsString| Allocator::from_file_name(file_name(&entry.to_string_lossy()));
        let first = preload_entries(OsStr::new(present)).find_map(known);
        // What already exists, at whatever path, is the user's.
        let is_there = first == Some(self.allocator) && self.library.is_none()
            || preload_entries(OsStr::new(present)).next().is_some_and(|it| it == library);
        if self.preloads() && is_there || !self.preloads() && first.is_none() {
            return;
        }
        let own = Library { path: library.into(), allocator: Some(self.allocator) };
        let choice = if self.preloads() { Choice::Library(own) } else { Choice::System };
        let inherited = |name: &str| (name == "LD_PRELOAD" && !present.is_empty()).then(|| present.into());
        // Only settings can be refused, and there are none.
        let Ok(change) = Environment::of(&choice, &[], inherited) else { return };
        let value = change.changes.get(OsStr::new("LD_PRELOAD")).cloned().flatten().unwrap_or_default();
        let mut why = if self.preloads() {
            format!("the loader uses {} instead of libc's malloc: {}", self.allocator, self.why)
        } else {
            format!("the program uses libc's own malloc: {}", self.why)
        };
        if !change.replaced.is_empty() {
            let replaced = change.replaced.join(", ");
            why += &format!("; {replaced} is removed, because only the first allocator is used");
        }
        let value = value.to_string_lossy().into_owned();
        changes.settings.push(Setting { name: "LD_PRELOAD".to_owned(), value, why });
    }

    fn variable(&self, name: &str, value: &str, present: Option<String>, changes: &mut Changes) {
        let present = present.filter(|it| !it.is_empty());
        let set = |value: String, why: String| Setting { name: name.to_owned(), value, why };
        let Some(present) = present else {
            let why = format!("its setting: {}", self.why);
            changes.settings.push(set(value.to_owned(), why));
            return;
        };
        let list = match self.allocator.settings() {
            Settings::Variable(own) if own == name => Some((',', ':')),
            // Whatever is in charge of malloc.
            _ if name == "GLIBC_TUNABLES" => Some((':', '=')),
            _ => None,
        };
        let has = |pair: &&str| match list {
            Some(signs) => in_force(&present, pair, signs),
            None => present == value,
        };
        let between = list.map_or(',', |(between, _)| between);
        let missing: Vec<&str> = value.split(between).filter(|pair| !has(pair)).collect();
        if missing.is_empty() {
            return;
        }
        if self.keep_existing {
            changes.notes.push(format!("{name}={present} is kept; ebb fix would set {value}"));
            return;
        }
        if list.is_some() {
            let why = format!("added after the existing settings, so that it wins: {}", self.why);
            let added = missing.join(&between.to_string());
            changes.settings.push(set(format!("{present}{between}{added}"), why));
        } else {
            let why = format!("replaces {present}: {}", self.why);
            changes.settings.push(set(value.to_owned(), why));
        }
    }
}

/// Whether a pair is in force in a list: the last value of a key wins. The signs stand between two pairs and within one.
fn in_force(list: &str, pair: &str, (between, within): (char, char)) -> bool {
    let Some((key, _)) = pair.split_once(within) else {
        return list.split(between).any(|it| it == pair);
    };
    let of_key = |it: &&str| it.split_once(within).is_some_and(|(own, _)| own == key);
    list.split(between).rfind(of_key) == Some(pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Desired {
        /// One for tests.
        pub fn example(name: &str, variables: &[(&str, &str)]) -> Self {
            let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            Self {
                allocator: Allocator::from_choice(name).unwrap(),
                library: None,
                release: None,
                variables: variables.iter().map(owned).collect(),
                keep_existing: false,
                why: "so it was asked".to_owned(),
            }
        }
    }

    fn changes(desired: &Desired, library: &str, present: &[(&str, &str)]) -> Vec<(String, String)> {
        let present = |name: &str| {
            let found = present.iter().find(|(own, _)| *own == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let settings = desired.changes(library, &present).settings;
        settings.into_iter().map(|it| (it.name, it.value)).collect()
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn other_libraries_stay_and_other_allocators_go() {
        let ebbmalloc = Desired::example("ebbmalloc", &[]);
        for (present, expected) in [
            ("", vec![pair("LD_PRELOAD", "/l/libebbmalloc.so")]),
            ("/x/libfaketime.so.1", vec![pair("LD_PRELOAD", "/l/libebbmalloc.so:/x/libfaketime.so.1")]),
            ("libjemalloc.so.2 a.so", vec![pair("LD_PRELOAD", "/l/libebbmalloc.so:a.so")]),
            ("/elsewhere/libebbmalloc.so", vec![]),
        ] {
            let present = [("LD_PRELOAD", present)];
            assert_eq!(changes(&ebbmalloc, "/l/libebbmalloc.so", &present), expected);
        }
        let system = Desired::example("glibc", &[]);
        assert_eq!(changes(&system, "", &[("LD_PRELOAD", "libjemalloc.so.2")]), [pair("LD_PRELOAD", "")]);
        assert_eq!(changes(&system, "", &[("LD_PRELOAD", "a.so")]), []);
    }

    #[test]
    fn settings_are_added_once() {
        let jemalloc = Desired::example("jemalloc", &[("MALLOC_CONF", "background_thread:true,dirty_decay_ms:1000")]);
        let with = |present: &str| {
            let present = [("LD_PRELOAD", "libjemalloc.so.2"), ("MALLOC_CONF", present)];
            changes(&jemalloc, "libjemalloc.so.2", &present)
        };
        assert_eq!(
            with("dirty_decay_ms:5000"),
            [pair("MALLOC_CONF", "dirty_decay_ms:5000,background_thread:true,dirty_decay_ms:1000")]
        );
        assert_eq!(with("dirty_decay_ms:5000,background_thread:true,dirty_decay_ms:1000"), []);
        let suggested = Desired { keep_existing: true, ..jemalloc };
        let changes = suggested.changes("libjemalloc.so.2", &|_| Some("libjemalloc.so.2".to_owned()));
        assert!(changes.settings.is_empty());
        assert!(changes.notes[0].contains("is kept"));
    }

    #[test]
    fn tunables_of_glibc_are_added_to_those_that_are_there() {
        let no_huge_pages = "glibc.malloc.hugetlb=0";
        let glibc = Desired::example("glibc", &[("GLIBC_TUNABLES", no_huge_pages)]);
        let with = |present: &str| changes(&glibc, "", &[("GLIBC_TUNABLES", present)]);
        let settled = |value: &str| vec![pair("GLIBC_TUNABLES", value)];
        assert_eq!(with(""), settled(no_huge_pages));
        let other = "glibc.malloc.hugetlb=1:glibc.pthread.rseq=0";
        assert_eq!(with(other), settled(&format!("{other}:{no_huge_pages}")));
        assert_eq!(with(&format!("glibc.pthread.rseq=0:{no_huge_pages}")), []);
    }

    #[test]
    fn a_variable_of_its_own_is_replaced_where_the_trial_says_so() {
        let glibc = Desired::example("glibc", &[("MALLOC_ARENA_MAX", "2")]);
        for (present, settles) in [(None, true), (Some("2"), false), (Some("8"), true)] {
            let present: Vec<_> = present.map(|it| ("MALLOC_ARENA_MAX", it)).into_iter().collect();
            let expected = settles.then(|| pair("MALLOC_ARENA_MAX", "2"));
            assert_eq!(changes(&glibc, "", &present), Vec::from_iter(expected), "{present:?}");
        }
    }
}
