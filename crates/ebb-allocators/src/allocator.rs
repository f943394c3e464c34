//! The known allocators: names, sonames, packages, how they are configured. No other file names one by a literal.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::packages::Packages;

/// An allocator that serves a program's `malloc`. Its JSON is its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Allocator {
    /// The project's own.
    Ebbmalloc,
    /// jemalloc.
    Jemalloc,
    /// mimalloc.
    Mimalloc,
    /// gperftools' or Google's tcmalloc.
    Tcmalloc,
    /// The C library's own, glibc's where nothing else is known.
    Glibc,
    /// musl's.
    Musl,
}

/// How an allocator takes `--conf key:value,...`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settings {
    /// One variable that takes the text as it is; the last of two settings of a key wins.
    Variable(&'static str),
    /// One variable a key: this prefix and the key in upper case.
    Prefix(&'static str),
    /// Not in this form; the text names the alternative.
    None(&'static str),
}

struct Row {
    name: &'static str,
    sonames: &'static [&'static str],
    file_prefix: &'static str,
    packages: Packages,
    settings: Settings,
}

/// In the order of the variants.
static TABLE: [Row; 6] = [
    Row {
        name: "ebbmalloc",
        sonames: &["libebbmalloc.so", "libebbmalloc.so.0"],
        file_prefix: "libebbmalloc",
        packages: Packages {
            debian: "libebbmalloc0",
            debian_t64: "libebbmalloc0",
            others: &["libebbmalloc-dev"],
            ..Packages::NONE
        },
        settings: Settings::Variable("EBB_CONF"),
    },
    Row {
        name: "jemalloc",
        sonames: &["libjemalloc.so.2", "libjemalloc.so.1", "libjemalloc.so"],
        file_prefix: "libjemalloc",
        packages: Packages {
            debian: "libjemalloc2",
            debian_t64: "libjemalloc2",
            alpine: "jemalloc",
            fedora: "jemalloc",
            arch: "jemalloc",
            others: &["libjemalloc-dev", "libjemalloc1", "jemalloc-dev", "jemalloc-devel"],
        },
        settings: Settings::Variable("MALLOC_CONF"),
    },
    Row {
        name: "mimalloc",
        sonames: &["libmimalloc.so.3", "libmimalloc.so.2", "libmimalloc.so.2.0", "libmimalloc.so"],
        file_prefix: "libmimalloc",
        packages: Packages {
            debian: "libmimalloc2.0",
            debian_t64: "libmimalloc3",
            alpine: "mimalloc2",
            fedora: "mimalloc",
            arch: "mimalloc",
            others: &["libmimalloc-dev", "mimalloc", "mimalloc-dev"],
        },
        settings: Settings::Prefix("MIMALLOC_"),
    },
    Row {
        name: "tcmalloc",
        sonames: &["libtcmalloc_minimal.so.4", "libtcmalloc.so.4", "libtcmalloc_minimal.so", "libtcmalloc.so"],
        file_prefix: "libtcmalloc",
        packages: Packages {
            debian: "libtcmalloc-minimal4",
            debian_t64: "libtcmalloc-minimal4t64",
            alpine: "gperftools",
            fedora: "gperftools-libs",
            arch: "gperftools",
            others: &["libgoogle-perftools-dev", "google-perftools", "gperftools", "libgoogle-perftools4"],
        },
        settings: Settings::None("its settings are variables of their own, such as TCMALLOC_RELEASE_RATE: use --env"),
    },
    Row {
        name: "glibc",
        sonames: &[],
        file_prefix: "",
        packages: Packages::NONE,
        settings: Settings::None("its settings are variables of their own, such as MALLOC_ARENA_MAX: use --env"),
    },
    Row {
        name: "musl",
        sonames: &[],
        file_prefix: "",
        packages: Packages::NONE,
        settings: Settings::None("it has no settings"),
    },
];

impl Allocator {
    /// The allocators that a user can choose for a program, in the order of messages.
    pub const CHOICES: [Allocator; 5] =
        [Allocator::Ebbmalloc, Allocator::Jemalloc, Allocator::Mimalloc, Allocator::Tcmalloc, Allocator::Glibc];

    /// All of them.
    pub const ALL: [Allocator; 6] = [
        Allocator::Ebbmalloc,
        Allocator::Jemalloc,
        Allocator::Mimalloc,
        Allocator::Tcmalloc,
        Allocator::Glibc,
        Allocator::Musl,
    ];

    const fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// Its name, as on the command line.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The names of [`CHOICES`](Self::CHOICES), separated by `, `.
    pub fn known_names() -> String {
        Self::CHOICES.map(Self::name).join(", ")
    }

    /// The allocator with exactly that [`name`](Self::name).
    pub fn from_name(name: &str) -> Option<Allocator> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    /// The choice with that name. `system` is the C library's own, whichever that is.
    pub fn from_choice(name: &str) -> Option<Allocator> {
        if name == "system" {
            return Some(Allocator::Glibc);
        }
        Self::CHOICES.into_iter().find(|it| it.name() == name)
    }

    /// The allocator whose library has that file name, as an entry of `LD_PRELOAD` may.
    pub fn from_file_name(file_name: &str) -> Option<Allocator> {
        Self::CHOICES.into_iter().find(|it| {
            let prefix = it.row().file_prefix;
            !prefix.is_empty() && file_name.starts_with(prefix) && file_name.contains(".so")
        })
    }

    /// The allocator that a reader names: `jemalloc 5.3.1`, `glibc 2.36`.
    pub fn from_reader(reader: &str) -> Option<Allocator> {
        Self::from_name(reader.split(' ').next().unwrap_or_default())
    }

    /// Names of its shared object, the newest interface first; none for a C library's own.
    pub const fn sonames(self) -> &'static [&'static str] {
        self.row().sonames
    }

    /// Whether it belongs to a C library, so that nothing is preloaded.
    pub const fn is_of_libc(self) -> bool {
        self.row().sonames.is_empty()
    }

    /// The distributions' packages.
    pub const fn packages(self) -> &'static Packages {
        &self.row().packages
    }

    /// How it takes settings.
    pub const fn settings(self) -> Settings {
        self.row().settings
    }
}

impl fmt::Display for Allocator {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_is_the_variants_own() {
        for allocator in Allocator::ALL {
            assert_eq!(format!("{allocator:?}").to_lowercase(), allocator.name());
            assert_eq!(Allocator::from_name(allocator.name()), Some(allocator));
        }
    }

    #[test]
    fn a_library_is_recognised_by_its_file_name() {
        for (file, allocator) in [
            ("libjemalloc.so.2", Some(Allocator::Jemalloc)),
            ("libtcmalloc_minimal_debug.so.4", Some(Allocator::Tcmalloc)),
            ("libmimalloc-secure.so", Some(Allocator::Mimalloc)),
            ("libfaketime.so.1", None),
            ("libjemalloc.a", None),
        ] {
            assert_eq!(Allocator::from_file_name(file), allocator, "{file}");
        }
    }

    #[test]
    fn system_and_glibc_are_one_choice_and_musl_is_none() {
        assert_eq!(Allocator::from_choice("system"), Some(Allocator::Glibc));
        assert_eq!(Allocator::from_name("system"), None);
        assert_eq!(Allocator::from_choice("musl"), None);
        assert_eq!(Allocator::from_choice("hoard"), None);
    }

    #[test]
    fn a_reader_is_its_allocators() {
        assert_eq!(Allocator::from_reader("glibc 2.36"), Some(Allocator::Glibc));
        assert_eq!(Allocator::from_reader("ebbmalloc"), Some(Allocator::Ebbmalloc));
        assert_eq!(Allocator::from_reader(""), None);
    }
}
