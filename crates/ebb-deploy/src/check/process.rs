//! What keeps the allocator out of a process: environment against files against the owner of
//! `malloc`. Pure; one cause a process, the first in the order in which a start meets them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use ebb_allocators::Allocator;
use ebb_process::Unreadable;
use ebb_process::environ::Variables;
use ebb_process::inside::Inside;

use super::finding::{Finding, Id};
use super::library::{self, Entry, EntryFile, Target};
use super::settings::InForce;

/// The allocator that should be in charge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The name as the user gave it.
    pub name: String,
    /// The known allocator that it is.
    pub allocator: Option<Allocator>,
    /// Its file, where a path was given.
    pub file: Option<PathBuf>,
}

/// Where a process takes its `malloc` from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Malloc {
    /// The program itself defines it.
    Program,
    /// The C library.
    Libc(PathBuf),
    /// Another library, and the known allocator that it is.
    Library(PathBuf, Option<Allocator>),
    /// It is statically linked.
    Static,
    /// Nothing defines it.
    Nobody,
}

/// The facts of one process.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// Pid of its parent.
    pub parent: i32,
    /// The program that runs in it, as it is named inside its own root.
    pub program: String,
    /// What that program asks of a library; none where the program cannot be read.
    pub target: Option<Target>,
    /// Whether it gained rights when it started (AT_SECURE).
    pub secure: bool,
    /// Where its `malloc` comes from.
    pub malloc: Result<Malloc, Unreadable>,
    /// The environment that it was started with.
    pub at_start: Result<Variables, Unreadable>,
    /// The environment that it has now, where it can be read.
    pub now: Option<Variables>,
    /// What the loader was asked to preload, `/etc/ld.so.preload` last.
    pub preloaded: Vec<Entry>,
    /// The allocator compiled into the program.
    pub inside: Option<Inside>,
    /// Settings that its allocator really has, where that can be read.
    pub in_force: InForce,
    /// Scripts in its root, named like entrypoints, that set `LD_PRELOAD`.
    pub entrypoints: Vec<String>,
}

/// A process further up, for the question where the environment was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ancestor {
    /// Its number.
    pub pid: i32,
    /// Its program.
    pub program: String,
    /// Its `LD_PRELOAD`.
    pub preload: Option<String>,
}

impl Wanted {
    /// The allocator that the text of an `LD_PRELOAD` asks for, if any.
    pub fn from_preload(entries: &[Entry]) -> Option<Self> {
        let is_allocator = |entry: &&Entry| match &entry.file {
            EntryFile::Object(object) => object.elf.defines.malloc || known(entry).is_some(),
            EntryFile::Missing | EntryFile::Unusable(_) => true,
        };
        let entry = entries.iter().find(is_allocator)?;
        Some(Self {
            name: known(entry).map_or(&*entry.text, |it| it.name()).to_owned(),
            allocator: known(entry),
            file: Some(PathBuf::from(&entry.text)),
        })
    }

    /// Whether this entry asks for it.
    pub fn is(&self, entry: &Entry) -> bool {
        match (self.allocator, known(entry)) {
            (Some(wanted), Some(own)) => wanted == own,
            _ => self.is_called_as(Path::new(&entry.text)),
        }
    }

    fn is_called_as(&self, path: &Path) -> bool {
        self.file.as_deref().is_some_and(|file| file.file_name() == path.file_name())
    }

    /// Whether the text of a variable names it. By file name only: the files are somebody else's.
    fn is_named_in(&self, preload: &str) -> bool {
        preload.split([' ', ':']).any(|text| self.is(&Entry { text: text.to_owned(), file: EntryFile::Missing }))
    }

    fn owns(&self, malloc: &Malloc) -> bool {
        match malloc {
            Malloc::Library(path, allocator) => match self.allocator {
                Some(wanted) => *allocator == Some(wanted),
                None => self.is_called_as(path),
            },
            Malloc::Libc(_) | Malloc::Static => self.is_system(),
            Malloc::Program | Malloc::Nobody => false,
        }
    }

    /// Whether it is the C library's own: nothing needs to be preloaded.
    fn is_system(&self) -> bool {
        self.allocator == Some(Allocator::Glibc)
    }
}

/// The known allocator of an entry, by its file or by its name.
fn known(entry: &Entry) -> Option<Allocator> {
    if let EntryFile::Object(object) = &entry.file {
        return object.allocator;
    }
    let name = Path::new(&entry.text).file_name()?.to_str()?;
    Allocator::from_file_name(name)
}

/// Whether `wanted` is in charge of the process: `None` where that is not known.
pub fn in_charge(process: &Process, wanted: &Wanted) -> Option<bool> {
    let malloc = process.malloc.as_ref().ok()?;
    Some(match process.inside {
        // What is compiled in may be the very allocator that is wanted.
        Some(inside) => inside.allocator().is_some() && inside.allocator() == wanted.allocator,
        None => wanted.owns(malloc),
    })
}

/// What is wrong with a process, given its ancestors, the nearest first.
pub fn judge(process: &Process, wanted: &Wanted, ancestors: &[Ancestor]) -> Vec<Finding> {
    let mut findings = match (in_charge(process, wanted), &process.malloc) {
        (Some(true), _) => Vec::new(),
        (_, Err(why)) => unreadable(&process.program, why),
        _ => cause(process, wanted, ancestors),
    };
    for entry in process.preloaded.iter().filter(|entry| wanted.is(entry)) {
        findings.extend(library::notes(entry));
    }
    findings.into_iter().map(|finding| finding.of_process(process.pid)).collect()
}

fn unreadable(what: &str, why: &Unreadable) -> Vec<Finding> {
    let id = match why {
        Unreadable::Permission => Id::Closed,
        _ => Id::Unreadable,
    };
    vec![Finding::new(id, format!("{what}: {why}"))]
}

fn cause(process: &Process, wanted: &Wanted, ancestors: &[Ancestor]) -> Vec<Finding> {
    let program = &process.program;
    let one = |id, what: String| vec![Finding::new(id, what)];
    if let (Ok(Malloc::Static), None) = (&process.malloc, process.inside) {
        let what = format!("{program} is statically linked: no library can be preloaded into it");
        return one(Id::StaticProgram, what);
    }
    if let Some(inside) = process.inside {
        return one(Id::AllocatorInside, format!("{program} has {inside}"));
    }
    if wanted.is_system() {
        // Nothing has to be asked for; so something else was.
        return other_owner(process, wanted);
    }
    let Some(entry) = process.preloaded.iter().find(|entry| wanted.is(entry)) else {
        return not_requested(process, wanted, ancestors);
    };
    if process.secure {
        let what = format!("{program} gained rights when it started, so its loader ignored LD_PRELOAD");
        return one(Id::SecureMode, what);
    }
    let refused = process.target.as_ref().and_then(|target| library::refusal(entry, target));
    match refused {
        Some(refusal) => vec![refusal],
        None => other_owner(process, wanted),
    }
}

/// The library could have been loaded, and something else owns `malloc`.
fn other_owner(process: &Process, wanted: &Wanted) -> Vec<Finding> {
    let program = &process.program;
    let (id, what) = match &process.malloc {
        Ok(Malloc::Program) => {
            let what = format!("{program} defines malloc itself, before every preloaded library");
            (Id::MallocInside, what)
        }
        Ok(Malloc::Library(path, _)) => (Id::OtherFirst, format!("{program} uses malloc from {}", path.display())),
        _ => {
            let name = &wanted.name;
            let what = format!("LD_PRELOAD of {program} names {name}, but the loader has not loaded it");
            (Id::LoaderRefused, what)
        }
    };
    vec![Finding::new(id, what)]
}

/// Nothing at this process named the library: where was it lost?
fn not_requested(process: &Process, wanted: &Wanted, ancestors: &[Ancestor]) -> Vec<Finding> {
    let program = &process.program;
    let name = &wanted.name;
    if let Err(why) = &process.at_start {
        return unreadable(&format!("the environment of {program}"), why);
    }
    let names_it = |text: Option<&str>| text.is_some_and(|it| wanted.is_named_in(it));
    if names_it(process.now.as_ref().and_then(preload_of).as_deref()) {
        let what = format!("{program} put {name} into LD_PRELOAD itself, after its loader had read it");
        return vec![Finding::new(Id::PreloadTooLate, what)];
    }
    let carrier = ancestors.iter().position(|it| names_it(it.preload.as_deref()));
    if let Some(place) = carrier {
        // The one below it, on the way to this process, has lost it.
        let loser = match place.checked_sub(1).and_then(|below| ancestors.get(below)) {
            Some(below) => format!("{} (process {})", below.program, below.pid),
            None => "this process".to_owned(),
        };
        let what = format!(
            "{program} has no LD_PRELOAD for {name}, but its ancestor {} (process {}) has: {loser} was started without it",
            ancestors[place].program, ancestors[place].pid
        );
        return vec![Finding::new(Id::EnvironmentDropped, what)];
    }
    if let Some(script) = process.entrypoints.first() {
        let what = format!("{program} was not started through {script}, which sets LD_PRELOAD");
        return vec![Finding::new(Id::EntrypointBypassed, what)];
    }
    let what = format!("{program} was started without an LD_PRELOAD that names {name}");
    vec![Finding::new(Id::NotAsked, what)]
}

/// The text of `LD_PRELOAD`.
pub fn preload_of(variables: &Variables) -> Option<String> {
    let text = variables.get(OsStr::new("LD_PRELOAD"))?;
    Some(text.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use ebb_allocators::Allocator;

    use super::*;
    use ebb_process::elf::{Libc, Machine};

    const JEMALLOC: &str = "/l/libjemalloc.so.2";

    fn wanted() -> Wanted {
        Wanted::from_preload(&[missing(JEMALLOC)]).unwrap()
    }

    fn missing(text: &str) -> Entry {
        Entry { text: text.to_owned(), file: EntryFile::Missing }
    }

    fn variables(preload: &str) -> Variables {
        Variables::from([("LD_PRELOAD".into(), preload.into())])
    }

    fn process(malloc: Malloc) -> Process {
        Process {
            pid: 7,
            parent: 6,
            program: "/bin/p".to_owned(),
            target: Some(Target {
                machine: Machine { machine: 62, bits: 64, little_endian: true },
                libc: Libc::Glibc,
                page_bytes: None,
            }),
            secure: false,
            malloc: Ok(malloc),
            at_start: Ok(Variables::new()),
            now: None,
            preloaded: Vec::new(),
            inside: None,
            in_force: InForce::new(),
            entrypoints: Vec::new(),
        }
    }

    fn on_libc() -> Process {
        process(Malloc::Libc("/l/libc.so.6".into()))
    }

    #[track_caller]
    fn assert_only(process: &Process, ancestors: &[Ancestor], id: Id) {
        let found = judge(process, &wanted(), ancestors);
        assert_eq!(found.iter().map(|it| it.id).collect::<Vec<_>>(), [id], "{found:?}");
        assert_eq!(found[0].pid, Some(7));
    }

    #[test]
    fn the_library_in_charge_is_no_finding() {
        let fine = process(Malloc::Library(JEMALLOC.into(), Some(Allocator::Jemalloc)));
        assert_eq!(in_charge(&fine, &wanted()), Some(true));
        assert_eq!(judge(&fine, &wanted(), &[]), []);
        // By the functions it has, whatever the file is called.
        let renamed = process(Malloc::Library("/opt/a.so".into(), Some(Allocator::Jemalloc)));
        assert_eq!(in_charge(&renamed, &wanted()), Some(true));
    }

    #[test]
    fn where_the_variable_was_lost_is_told() {
        assert_only(&on_libc(), &[], Id::NotAsked);
        let scripted = Process { entrypoints: vec!["/entrypoint.sh".to_owned()], ..on_libc() };
        assert_only(&scripted, &[], Id::EntrypointBypassed);
        let late = Process { now: Some(variables("x.so:/l/libjemalloc.so.2")), ..on_libc() };
        assert_only(&late, &[], Id::PreloadTooLate);

        let ancestor = |pid, preload: Option<&str>| Ancestor {
            pid,
            program: format!("/bin/a{pid}"),
            preload: preload.map(str::to_owned),
        };
        let ancestors = [ancestor(6, None), ancestor(5, Some(JEMALLOC))];
        assert_only(&on_libc(), &ancestors, Id::EnvironmentDropped);
        let found = judge(&on_libc(), &wanted(), &ancestors);
        assert!(found[0].what.contains("/bin/a6 (process 6) was started without it"), "{found:?}");
    }

    #[test]
    fn what_keeps_an_asked_library_out_is_told() {
        let asked = |process: Process| Process {
            preloaded: vec![missing(JEMALLOC)],
            at_start: Ok(variables(JEMALLOC)),
            ..process
        };
        assert_only(&asked(on_libc()), &[], Id::LibraryMissing);
        let secure = Process { secure: true, ..asked(on_libc()) };
        assert_only(&secure, &[], Id::SecureMode);
        assert_only(&asked(process(Malloc::Static)), &[], Id::StaticProgram);
        let go = Process { inside: Some(Inside::Go), ..asked(process(Malloc::Static)) };
        assert_only(&go, &[], Id::AllocatorInside);
        let jemalloc = || asked(process(Malloc::Library(JEMALLOC.into(), Some(Allocator::Jemalloc))));
        let with = |inside| Process { inside: Some(inside), ..jemalloc() };
        let mimalloc = with(Inside::Mimalloc);
        assert_eq!(in_charge(&mimalloc, &wanted()), Some(false));
        assert_only(&mimalloc, &[], Id::AllocatorInside);
        // What is inside is what is wanted.
        let jemalloc = with(Inside::PrefixedJemalloc);
        assert_eq!(in_charge(&jemalloc, &wanted()), Some(true));
    }

    #[test]
    fn what_cannot_be_read_is_neither_yes_nor_no() {
        let closed = Process { malloc: Err(Unreadable::Permission), ..on_libc() };
        assert_eq!(in_charge(&closed, &wanted()), None);
        assert_only(&closed, &[], Id::Closed);
        let half = Process { at_start: Err(Unreadable::Permission), ..on_libc() };
        assert_only(&half, &[], Id::Closed);
    }

    #[test]
    fn the_systems_own_is_wanted_too() {
        let system = Wanted { name: "glibc".to_owned(), allocator: Some(Allocator::Glibc), file: None };
        assert_eq!(judge(&on_libc(), &system, &[]), []);
        let other = process(Malloc::Library(JEMALLOC.into(), Some(Allocator::Jemalloc)));
        assert_eq!(judge(&other, &system, &[])[0].id, Id::OtherFirst);
    }
}
