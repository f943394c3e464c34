//! The variables that put an allocator in charge of a program.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::allocator::{Allocator, Settings};

const LD_PRELOAD: &str = "LD_PRELOAD";

/// A shared object that fits the program it was resolved for.
#[derive(Clone, Debug)]
pub struct Library {
    /// Its absolute path, as it goes into `LD_PRELOAD`.
    pub path: PathBuf,
    /// The known allocator that it is, by its name or by the functions it defines.
    pub allocator: Option<Allocator>,
}

/// What a program is to run on.
#[derive(Clone, Debug)]
pub enum Choice {
    /// The C library's own allocator: no preload.
    System,
    /// A preloaded library.
    Library(Library),
}

impl Choice {
    /// The library, where there is one.
    pub fn library(&self) -> Option<&Library> {
        match self {
            Choice::System => None,
            Choice::Library(library) => Some(library),
        }
    }
}

/// A change of the environment. A variable that is not named stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// Variable and new value; `None` removes it.
    pub changes: BTreeMap<OsString, Option<OsString>>,
    /// Other allocators that `LD_PRELOAD` held. They are left out: two allocators in one process
    /// cost the memory of both, and only the first is ever asked.
    pub replaced: Vec<String>,
}

/// Why settings cannot be given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// The allocator takes none in this form.
    #[error("{allocator} takes no --conf: {instead}")]
    Unsupported {
        /// The allocator.
        allocator: String,
        /// The alternative.
        instead: String,
    },
    /// One of them is not `key:value`.
    #[error("setting \"{0}\" is not KEY:VALUE")]
    Malformed(String),
}

impl Environment {
    /// The change that runs a program on `choice` with the settings `conf` (`key:value,...`), where
    /// `inherited` looks up what the program would have otherwise.
    pub fn of(
        choice: &Choice,
        conf: &[String],
        inherited: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, SettingError> {
        let mut environment = Self::default();
        let preload = inherited(LD_PRELOAD);
        environment.preload(choice, preload.as_deref());
        environment.settings(choice, conf, inherited)?;
        Ok(environment)
    }

    /// Ours first, then what was there, without other allocators.
    fn preload(&mut self, choice: &Choice, inherited: Option<&OsStr>) {
        let ours = choice.library().map(|library| library.path.as_path());
        let mut entries: Vec<OsString> = ours.map(|path| path.as_os_str().to_owned()).into_iter().collect();
        for entry in preload_entries(inherited.unwrap_or_default()) {
            if ours.is_some_and(|ours| ours.as_os_str() == entry) {
                continue;
            }
            let name = Path::new(&entry).file_name().unwrap_or_default();
            if Allocator::from_file_name(&name.to_string_lossy()).is_some() {
                self.replaced.push(entry.to_string_lossy().into_owned());
            } else {
                entries.push(entry);
            }
        }
        if entries.is_empty() {
            if inherited.is_some() {
                self.changes.insert(LD_PRELOAD.into(), None);
            }
            return;
        }
        let value = entries.join(OsStr::new(":"));
        self.changes.insert(LD_PRELOAD.into(), Some(value));
    }

    fn settings(
        &mut self,
        choice: &Choice,
        conf: &[String],
        inherited: impl Fn(&str) -> Option<OsString>,
    ) -> Result<(), SettingError> {
        if conf.is_empty() {
            return Ok(());
        }
        let pairs: Vec<(&str, &str)> = conf
            .iter()
            .flat_map(|text| text.split(','))
            .map(|text| {
                text.split_once(':')
                    .filter(|(key, _)| !key.is_empty())
                    .ok_or_else(|| SettingError::Malformed(text.to_owned()))
            })
            .collect::<Result<_, _>>()?;
        let (name, settings) = match choice {
            Choice::System => (Allocator::Glibc.to_string(), Some(Allocator::Glibc.settings())),
            Choice::Library(library) => match library.allocator {
                Some(allocator) => (allocator.to_string(), Some(allocator.settings())),
                None => (library.path.display().to_string(), None),
            },
        };
        let unsupported =
            |instead: &str| SettingError::Unsupported { allocator: name.clone(), instead: instead.to_owned() };
        match settings {
            Some(Settings::Variable(variable)) => {
                // What already exists stays, and ours comes after it: the last of two wins.
                let mut value = inherited(variable).unwrap_or_default().into_vec();
                for (key, setting) in pairs {
                    if !value.is_empty() {
                        value.push(b',');
                    }
                    value.extend(format!("{key}:{setting}").into_bytes());
                }
                self.changes.insert(variable.into(), Some(OsString::from_vec(value)));
            }
            Some(Settings::Prefix(prefix)) => {
                for (key, setting) in pairs {
                    let variable = format!("{prefix}{}", key.to_uppercase());
                    self.changes.insert(variable.into(), Some(setting.into()));
                }
            }
            Some(Settings::None(instead)) => return Err(unsupported(instead)),
            None => {
                return Err(unsupported("ebb does not know its settings: use --env"));
            }
        }
        Ok(())
    }
}

/// The entries of an `LD_PRELOAD`: the loader separates them by spaces and colons.
pub fn preload_entries(value: &OsStr) -> impl Iterator<Item = OsString> {
    value
        .as_bytes()
        .split(|&byte| byte == b' ' || byte == b':')
        .filter(|entry| !entry.is_empty())
        .map(|entry| OsStr::from_bytes(entry).to_owned())
}

/// Whether the loader would take `path` in an `LD_PRELOAD` for several entries.
pub fn splits_in_preload(path: &Path) -> bool {
    path.to_string_lossy().contains([' ', ':', '\t', '\n'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(name: &str, path: &str) -> Choice {
        Choice::Library(Library { path: path.into(), allocator: Allocator::from_choice(name) })
    }

    /// The new value of a variable whose old one is `inherited`; what stays is an empty text.
    fn changed(choice: &Choice, conf: &str, variable: &str, inherited: &str) -> (String, Vec<String>) {
        let conf: Vec<String> = conf.split(' ').filter(|it| !it.is_empty()).map(str::to_owned).collect();
        let set = |name: &str| (name == variable && !inherited.is_empty()).then(|| inherited.into());
        let environment = Environment::of(choice, &conf, set).unwrap();
        let value = environment.changes.get(OsStr::new(variable)).map(|it| match it {
            Some(value) => value.to_str().unwrap(),
            None => "(removed)",
        });
        (value.unwrap_or_default().to_owned(), environment.replaced)
    }

    #[test]
    fn our_library_goes_first_and_another_allocator_goes() {
        let jemalloc = library("jemalloc", "/l/libjemalloc.so.2");
        let ebbmalloc = library("ebbmalloc", "/l/libebbmalloc.so");
        for (choice, inherited, value, replaced) in [
            (
                &jemalloc,
                "/l/libfaketime.so.1 /l/libjemalloc.so.2:/l/b.so",
                "/l/libjemalloc.so.2:/l/libfaketime.so.1:/l/b.so",
                "",
            ),
            (&ebbmalloc, "libtcmalloc_minimal.so.4", "/l/libebbmalloc.so", "libtcmalloc_minimal.so.4"),
            (&Choice::System, "/l/libmimalloc.so.2", "(removed)", "/l/libmimalloc.so.2"),
            (&Choice::System, "a.so libjemalloc.so.2", "a.so", "libjemalloc.so.2"),
            (&Choice::System, "", "", ""),
        ] {
            let (changed, others) = changed(choice, "", LD_PRELOAD, inherited);
            assert_eq!((changed.as_str(), others.join(" ").as_str()), (value, replaced));
        }
    }

    #[test]
    fn settings_follow_those_that_are_there() {
        for (allocator, conf, variable, inherited, value) in [
            (
                "jemalloc",
                "dirty_decay_ms:1000,muzzy_decay_ms:0 narenas:1",
                "MALLOC_CONF",
                "dirty_decay_ms:5",
                "dirty_decay_ms:5,dirty_decay_ms:1000,muzzy_decay_ms:0,narenas:1",
            ),
            ("ebbmalloc", "purge:off", "EBB_CONF", "", "purge:off"),
            ("mimalloc", "purge_delay:0", "MIMALLOC_PURGE_DELAY", "", "0"),
        ] {
            let choice = library(allocator, "/l/x.so");
            assert_eq!(changed(&choice, conf, variable, inherited).0, value, "{allocator}");
        }
    }

    #[test]
    fn settings_that_an_allocator_does_not_take_are_refused() {
        let conf = ["a:b".to_owned()];
        for choice in [Choice::System, library("tcmalloc", "/l/x.so"), library("nobody", "/l/x.so")] {
            let error = Environment::of(&choice, &conf, |_| None).unwrap_err();
            assert!(error.to_string().contains("--env"), "{error}");
        }
        let jemalloc = library("jemalloc", "/l/x.so");
        let error = Environment::of(&jemalloc, &["narenas".to_owned()], |_| None);
        assert_eq!(error, Err(SettingError::Malformed("narenas".to_owned())));
    }
}
