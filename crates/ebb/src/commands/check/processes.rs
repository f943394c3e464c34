//! The facts of running processes.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ebb_stats::mechanism;
use procfs::process::Process as Entry;

use ebb_allocators::Allocator;
use ebb_deploy::check::dockerfile::set_by_script;
use ebb_deploy::check::library::{self, Target};
use ebb_deploy::check::process::{self, Ancestor, Malloc, Process, Wanted};
use ebb_deploy::check::report::{ProcessLine, Report, Subject};
use ebb_deploy::check::settings::{self, Given, InForce};
use ebb_deploy::check::{Finding, Id};
use ebb_process::elf::{Elf, Libc};
use ebb_process::environ;
use ebb_process::inside::inside;
use ebb_process::library::recognise;
use ebb_process::machine::page_bytes;
use ebb_process::root::Root;
use ebb_process::{Counters, MallocSource, identity, started_malloc_source};

use super::entry::Loader;

/// No process has more ancestors; a longer chain is one that changed while it was followed.
const MOST_ANCESTORS: usize = 64;
/// Loaders take milliseconds, on a busy machine.
const STARTS_WITHIN: Duration = Duration::from_secs(1);
pub(super) fn check(target: &str, pids: &[i32], wanted: Option<Wanted>) -> Report {
    let facts: Vec<Process> = pids.iter().filter_map(|&pid| read(pid)).collect();
    let wanted = wanted.or_else(|| facts.iter().find_map(|it| Wanted::from_preload(&it.preloaded)));
    // A process below may have lost what only one above was asked for.
    let Some(wanted) = wanted.or_else(|| facts.iter().find_map(requested_by_ancestor)) else {
        return nothing_requested(target, &facts);
    };
    let mut findings = Vec::new();
    for process in &facts {
        findings.extend(process::judge(process, &wanted, &ancestors(process.parent)));
        findings.extend(wrong_settings(process));
    }
    findings.extend(late_loading(&facts, &wanted));
    let in_charge = |process: &Process| process::in_charge(process, &wanted);
    let lines = lines(&facts, in_charge);
    Report::new(target, Subject::Processes, Some(wanted.name.clone()), lines, findings)
}

/// The report if no environment asks for an allocator: an allocator that the program brings itself is named and passes.
fn nothing_requested(target: &str, facts: &[Process]) -> Report {
    if let Some(own) = facts.iter().find_map(brought) {
        let findings = facts.iter().flat_map(wrong_settings).collect();
        let lines = lines(facts, |process| process.malloc.is_ok().then(|| brought(process) == Some(own)));
        let name = Some(own.to_string());
        return Report::new(target, Subject::Processes, name, lines, findings).brought_by_program();
    }
    let closed = facts.iter().find_map(|it| it.at_start.as_ref().err());
    let finding = match (facts.is_empty(), closed) {
        (true, _) => Finding::new(Id::Unreadable, "all processes have ended"),
        (false, Some(why)) => Finding::new(
            Id::Closed,
            format!("the environment cannot be read: {why}; name the expected allocator with --allocator"),
        ),
        (false, None) => {
            Finding::new(Id::NotAsked, "no environment names an allocator; name the expected one with --allocator")
        }
    };
    let mut findings = vec![finding];
    findings.extend(facts.iter().filter_map(huge_pages));
    Report::new(target, Subject::Processes, None, lines(facts, |_| None), findings)
}

fn lines(facts: &[Process], in_charge: impl Fn(&Process) -> Option<bool>) -> Vec<ProcessLine> {
    facts.iter().map(|process| line(process, in_charge(process))).collect()
}

fn wrong_settings(process: &Process) -> Vec<Finding> {
    let wrong = given(process).map(|it| settings::judge(&it)).unwrap_or_default();
    let wrong = wrong.into_iter().map(|finding| finding.of_process(process.pid));
    wrong.chain(huge_pages(process)).collect()
}

/// What the huge pages cost that its glibc's malloc asks for.
fn huge_pages(process: &Process) -> Option<Finding> {
    use ebb_inspect::glibc;
    if in_force(process) != Some(Allocator::Glibc) {
        return None;
    }
    let target = ebb_inspect::Target::open(process.pid).ok()?;
    if !glibc::asks_for_huge_pages(&target).ok()? {
        return None;
    }
    let heap = glibc::read(&target).ok()?;
    let (found, mb) = (heap.huge_pages?, |bytes: u64| bytes as f64 / 1e6);
    let what = format!(
        "the malloc of {} ({}) asks for huge pages: {:.1} MB of its arenas are in such pages, at most {:.1} MB of these are free",
        process.program,
        heap.reader,
        mb(found.resident),
        mb(found.free)
    );
    Some(Finding::new(Id::HugePages, what).of_process(process.pid))
}

/// The allocator that a process has without being asked: compiled in, or a library that the program needs.
fn brought(process: &Process) -> Option<Allocator> {
    match process.inside {
        Some(inside) => inside.allocator(),
        None => match process.malloc.as_ref().ok()? {
            Malloc::Library(_, allocator) => *allocator,
            _ => None,
        },
    }
}

/// A program that wants it and cannot preload it cannot load it later either.
fn late_loading(facts: &[Process], wanted: &Wanted) -> Option<Finding> {
    let lacks =
        |it: &&Process| process::in_charge(it, wanted) == Some(false) && !it.preloaded.iter().any(|it| wanted.is(it));
    let process = facts.iter().find(lacks)?;
    let file = wanted.file.as_ref()?;
    let own = Elf::read(Path::new(&format!("/proc/{}/exe", process.pid))).ok()?;
    let root = Root::of(process.pid);
    library::static_tls(&Loader::of(&root, &own).entry(&file.to_string_lossy()))
}

fn read(pid: i32) -> Option<Process> {
    let (_, program) = identity(pid)?;
    let parent = Entry::new(pid).ok()?.stat().ok()?.ppid;
    let executable = PathBuf::from(format!("/proc/{pid}/exe"));
    let elf = Elf::read(&executable).ok();
    let root = Root::of(pid);
    let at_start = environ::at_start(pid);
    let folder = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_else(|_| "/".into());
    let preloaded = elf.as_ref().map(|elf| {
        let variable = |name: &str| at_start.as_ref().ok()?.get(OsStr::new(name));
        let loader = Loader {
            root: &root,
            program: elf,
            library_path: variable("LD_LIBRARY_PATH").map(|it| it.as_os_str()),
            folder: &folder,
        };
        let preload = variable("LD_PRELOAD").map(|it| loader.preload(it));
        let mut entries = preload.unwrap_or_default();
        entries.extend(loader.system_preload());
        entries
    });
    let malloc = started_malloc_source(pid, STARTS_WITHIN).map(|source| malloc(&source, &executable, &root));
    Some(Process {
        pid,
        parent,
        program: program.display().to_string(),
        target: elf.as_ref().map(|elf| Target::of(elf, Some(page_bytes()))),
        secure: is_secure(pid),
        malloc,
        now: environ::now(pid).ok(),
        at_start,
        preloaded: preloaded.unwrap_or_default(),
        inside: inside(&executable),
        in_force: settings_in_force(pid),
        entrypoints: entrypoints(&root),
    })
}

fn malloc(source: &MallocSource, executable: &Path, root: &Root) -> Malloc {
    match source {
        MallocSource::Static => Malloc::Static,
        MallocSource::Nobody => Malloc::Nobody,
        MallocSource::File(path) if source.is_libc() => Malloc::Libc(root.inside(path)),
        MallocSource::File(_) if source.is(executable) => Malloc::Program,
        MallocSource::File(path) => {
            let known = Elf::read(path).ok().and_then(|elf| recognise(path, &elf));
            Malloc::Library(root.inside(path), known)
        }
    }
}

/// Those of a jemalloc: from its variables where these have names, else from its arenas. Its own words for the values.
fn settings_in_force(pid: i32) -> InForce {
    let read = ebb_inspect::Target::open(pid).and_then(|target| ebb_inspect::jemalloc::settings(&target));
    // With two of them it is not known whose settings the variable is for.
    let Ok([jemalloc]) = read.as_deref() else {
        return InForce::new();
    };
    let settings = [
        ("dirty_decay_ms", Some(jemalloc.dirty_decay_ms.to_string())),
        ("muzzy_decay_ms", jemalloc.muzzy_decay_ms.map(|it| it.to_string())),
        ("background_thread", jemalloc.background_thread.map(|it| it.to_string())),
    ];
    let known = settings.into_iter();
    known.filter_map(|(key, value)| Some((key, value?))).collect()
}

/// AT_SECURE of the auxiliary vector.
fn is_secure(pid: i32) -> bool {
    Entry::new(pid)
        .and_then(|process| process.auxv())
        .is_ok_and(|auxv| auxv.get(&libc::AT_SECURE).is_some_and(|&value| value != 0))
}

/// Scripts called like entrypoints that set the variable.
fn entrypoints(root: &Root) -> Vec<String> {
    // Ours is no image: a script somewhere on a host says nothing about a process.
    if *root == Root::own() {
        return Vec::new();
    }
    let scripts = super::root::entrypoints(root).into_iter();
    let set = scripts.filter(|(_, text)| set_by_script(text).is_some());
    set.map(|(path, _)| path.display().to_string()).collect()
}

/// The ancestors, the nearest first.
fn ancestors(parent: i32) -> Vec<Ancestor> {
    let mut ancestors = Vec::new();
    let mut pid = parent;
    while pid > 0 && ancestors.len() < MOST_ANCESTORS {
        let Ok(process) = Entry::new(pid).and_then(|process| process.stat()) else {
            break;
        };
        let preload = environ::at_start(pid).ok();
        let now = environ::now(pid).ok();
        ancestors.push(Ancestor {
            pid,
            program: identity(pid).map_or(process.comm, |(_, it)| it.display().to_string()),
            preload: [now, preload].iter().flatten().find_map(process::preload_of),
        });
        pid = process.ppid;
    }
    ancestors
}

fn requested_by_ancestor(process: &Process) -> Option<Wanted> {
    let elf = Elf::read(Path::new(&format!("/proc/{}/exe", process.pid))).ok()?;
    let root = Root::of(process.pid);
    let above = ancestors(process.parent);
    let preload = above.iter().find_map(|it| it.preload.as_deref())?;
    Wanted::from_preload(&Loader::of(&root, &elf).preload(OsStr::new(preload)))
}

/// The allocator whose settings count.
fn in_force(process: &Process) -> Option<Allocator> {
    if let Some(inside) = process.inside {
        return inside.allocator();
    }
    match process.malloc.as_ref().ok()? {
        Malloc::Library(_, allocator) => *allocator,
        Malloc::Libc(_) => Some(match process.target.as_ref()?.libc {
            Libc::Glibc => Allocator::Glibc,
            _ => Allocator::Musl,
        }),
        _ => None,
    }
}

fn given(process: &Process) -> Option<Given<'_>> {
    Some(Given {
        in_charge: in_force(process)?,
        inside: process.inside,
        secure: process.secure,
        at_start: process.at_start.as_ref().ok()?,
        now: process.now.as_ref(),
        in_force: &process.in_force,
    })
}

fn line(process: &Process, in_charge: Option<bool>) -> ProcessLine {
    let (file, allocator) = match &process.malloc {
        Ok(Malloc::Library(path, allocator)) => (Some(path.display().to_string()), *allocator),
        Ok(Malloc::Libc(path)) => (Some(path.display().to_string()), None),
        Ok(Malloc::Program) => (Some(process.program.clone()), None),
        _ => (None, None),
    };
    let inside = process.inside.and_then(|it| it.allocator());
    let read: BTreeMap<_, _> = given(process).map(|it| settings::read(&it)).unwrap_or_default();
    let place = Counters::default();
    let counters = place.read(process.pid, Duration::MAX);
    let allocator = inside.or(allocator);
    let version = place.version(process.pid).filter(|_| allocator == Some(Allocator::Ebbmalloc));
    ProcessLine {
        pid: process.pid,
        program: process.program.clone(),
        in_charge,
        malloc: file,
        allocator: allocator.map(|it| it.to_string()),
        version: version.map(|it| it.text().to_owned()),
        settings: read.iter().map(|(name, value)| format!("{name}={value}")).collect(),
        idle_time_ms: counters.map(|it| it.idle_time_ms),
        serves_cpython: counters.map(|it| it.mechanisms & mechanism::CPYTHON != 0),
    }
}
