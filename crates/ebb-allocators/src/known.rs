//! The table of known allocators: names, sonames, packages, how they are configured.

use super::packages::Packages;

/// The value for no preload at all: the C library's own allocator.
pub const SYSTEM: &str = "glibc";

/// How an allocator takes `--conf key:value,...`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settings {
    /// One variable that takes the text as it is; the last of two settings of a key wins.
    Variable(&'static str),
    /// One variable a key: this prefix and the key in upper case.
    Prefix(&'static str),
    /// Not in this form; the text says what there is instead.
    None(&'static str),
}

/// The project's own allocator.
pub const EBBMALLOC: &str = "ebbmalloc";

/// One known allocator.
#[derive(Debug)]
pub struct Allocator {
    /// The name on the command line.
    pub name: &'static str,
    /// Names of its shared object, the newest interface first; none for the system's own.
    pub sonames: &'static [&'static str],
    /// The start of its file names, by which a library on a path of its own is recognised.
    pub file_prefix: &'static str,
    /// The distributions' packages.
    pub packages: Packages,
    /// How it takes settings.
    pub settings: Settings,
}

/// Every known allocator, `ebbmalloc` first, the system's own last.
pub const KNOWN: &[Allocator] = &[
    Allocator {
        name: EBBMALLOC,
        sonames: &["libebbmalloc.so"],
        file_prefix: "libebbmalloc",
        packages: Packages::NONE,
        settings: Settings::Variable("EBB_CONF"),
    },
    Allocator {
        name: "jemalloc",
        sonames: &["libjemalloc.so.2", "libjemalloc.so.1", "libjemalloc.so"],
        file_prefix: "libjemalloc",
        packages: Packages {
            debian: "libjemalloc2",
            debian_t64: "libjemalloc2",
            alpine: "jemalloc",
            fedora: "jemalloc",
            arch: "jemalloc",
        },
        settings: Settings::Variable("MALLOC_CONF"),
    },
    Allocator {
        name: "mimalloc",
        sonames: &["libmimalloc.so.3", "libmimalloc.so.2", "libmimalloc.so.2.0", "libmimalloc.so"],
        file_prefix: "libmimalloc",
        packages: Packages {
            debian: "libmimalloc2.0",
            debian_t64: "libmimalloc3",
            alpine: "mimalloc2",
            fedora: "mimalloc",
            arch: "mimalloc",
        },
        settings: Settings::Prefix("MIMALLOC_"),
    },
    Allocator {
        name: "tcmalloc",
        sonames: &[
            "libtcmalloc_minimal.so.4",
            "libtcmalloc.so.4",
            "libtcmalloc_minimal.so",
            "libtcmalloc.so",
        ],
        file_prefix: "libtcmalloc",
        packages: Packages {
            debian: "libtcmalloc-minimal4",
            debian_t64: "libtcmalloc-minimal4t64",
            alpine: "gperftools",
            fedora: "gperftools-libs",
            arch: "gperftools",
        },
        settings: Settings::None(
            "its settings are variables of their own, such as TCMALLOC_RELEASE_RATE: use --env",
        ),
    },
    Allocator {
        name: SYSTEM,
        sonames: &[],
        file_prefix: "",
        packages: Packages::NONE,
        settings: Settings::None(
            "its settings are variables of their own, such as MALLOC_ARENA_MAX: use --env",
        ),
    },
];

/// The allocator of that name. `system` is the C library's own, whichever that is.
pub fn by_name(name: &str) -> Option<&'static Allocator> {
    let name = if name == "system" { SYSTEM } else { name };
    KNOWN.iter().find(|allocator| allocator.name == name)
}

/// The known allocator whose library has that file name, as an entry of `LD_PRELOAD` may.
pub fn by_file_name(file_name: &str) -> Option<&'static Allocator> {
    KNOWN.iter().find(|allocator| {
        !allocator.file_prefix.is_empty()
            && file_name.starts_with(allocator.file_prefix)
            && file_name.contains(".so")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_recognised_by_its_file_name() {
        let name = |file| by_file_name(file).map(|allocator| allocator.name);
        assert_eq!(name("libjemalloc.so.2"), Some("jemalloc"));
        assert_eq!(name("libtcmalloc_minimal_debug.so.4"), Some("tcmalloc"));
        assert_eq!(name("libmimalloc-secure.so"), Some("mimalloc"));
        assert_eq!(name("libfaketime.so.1"), None);
        assert_eq!(name("libjemalloc.a"), None);
    }

    #[test]
    fn system_and_glibc_are_one() {
        assert_eq!(by_name("system").map(|a| a.name), Some("glibc"));
        assert!(by_name("hoard").is_none());
    }
}
