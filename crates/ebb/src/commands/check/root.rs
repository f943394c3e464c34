//! The facts of an unpacked root file system: what its loader would be asked, and every program in it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use crate::exit::{Exit, Failure};
use ebb_allocators::Allocator;
use ebb_deploy::check::dockerfile::{is_entrypoint_name, set_by_script};
use ebb_deploy::check::library::{self, Entry, EntryFile, Target};
use ebb_deploy::check::process::Wanted;
use ebb_deploy::check::report::{Report, Subject};
use ebb_deploy::check::{Finding, Id, Severity};
use ebb_inspect::file::NamedFile;
use ebb_process::elf::Elf;
use ebb_process::inside::inside;
use ebb_process::root::Root;

use super::entry::Loader;
use ebb_process::machine::page_bytes;

/// Folders of the kernel's, which an image has empty or not at all.
const SKIPPED: [&str; 3] = ["proc", "sys", "dev"];
/// Of a longer list of programs only the first are named.
const MOST_NAMES: usize = 4;
const ELF_MAGIC: [u8; 4] = *b"\x7fELF";

pub(super) struct Program {
    /// Its name inside.
    pub(super) name: String,
    /// Where it lies for us.
    pub(super) path: PathBuf,
    pub(super) elf: Elf,
}

/// What names the library.
pub(super) enum Source {
    /// `/etc/ld.so.preload`, which applies to every program, also to programs that gain rights.
    System,
    /// A variable: by a script in the image, or supposed because of `--allocator`.
    Variable,
}

/// Checks the file system in the folder that was named.
///
/// `asked` names the programs that have to run on the allocator; `page_size` is the kernel's it will run on.
pub(super) fn check(
    target: &str,
    asked: &[PathBuf],
    page_size: Option<u64>,
    wanted: Option<Wanted>,
) -> Result<Report, Failure> {
    let root = Root::at(&fs::canonicalize(target)?);
    let (programs, named) = programs(&root, asked)?;
    let Some(first) = programs.iter().find(|it| !it.elf.is_static()).or(programs.first()) else {
        return Err(Failure::usage(format!("{target} contains no program"))
            .remedy("name the folder of an unpacked image (docker export, skopeo and umoci, a chroot)"));
    };
    let mut findings = Vec::new();
    let Some((text, source, wanted)) = preloaded(&root, first, wanted, &mut findings) else {
        return Ok(nothing(target, programs.len()));
    };
    let pages = |program: &Program| page_size.or_else(|| is_of_this_machine(&program.elf).then(page_bytes));
    let mut groups: BTreeMap<(Id, String), BTreeSet<String>> = BTreeMap::new();
    for program in &programs {
        let entry = Loader::of(&root, &program.elf).entry(&text);
        let loader_target = Target::of(&program.elf, pages(program));
        if let Some(fault) = refusal(program, &entry, &loader_target, &source, &wanted) {
            groups.entry(fault).or_default().insert(program.name.clone());
        }
    }
    findings.extend(library::notes(&Loader::of(&root, &first.elf).entry(&text)));
    for ((id, what), names) in groups {
        findings.push(grouped(id, what, &names, named, programs.len()));
    }
    Ok(Report::new(target, Subject::Root, Some(wanted.name), Vec::new(), findings).with_programs(programs.len()))
}

/// How the loader would come to the library, and which allocator is expected of it; nothing where none is asked for.
fn preloaded(
    root: &Root,
    first: &Program,
    wanted: Option<Wanted>,
    findings: &mut Vec<Finding>,
) -> Option<(String, Source, Wanted)> {
    let system = Loader::of(root, &first.elf).system_preload();
    match (wanted, system.first()) {
        (Some(wanted), _) if !system.iter().any(|it| wanted.is(it)) => {
            Some((spelling(root, first, &wanted), Source::Variable, wanted))
        }
        (wanted, Some(entry)) => {
            let asked = wanted.or_else(|| Wanted::from_preload(&system))?;
            let text = system.iter().find(|it| asked.is(it)).unwrap_or(entry);
            Some((text.text.clone(), Source::System, asked))
        }
        (Some(_), None) => None,
        (None, None) => {
            let scripts = entrypoints(root).into_iter();
            let mut set = scripts.filter_map(|(path, text)| Some((path, set_by_script(&text)?.value)));
            let (script, text) = set.next()?;
            let script = script.display().to_string();
            let entry = Loader::of(root, &first.elf).entry(&text);
            let what = format!(
                "LD_PRELOAD is set in {script} only: programs that are started without the script do not have it"
            );
            let finding = Finding::new(Id::EntrypointBypassed, what);
            findings.push(finding.in_file(script).as_note());
            Some((text, Source::Variable, Wanted::from_preload(&[entry])?))
        }
    }
}

fn nothing(target: &str, programs: usize) -> Report {
    let what = "neither /etc/ld.so.preload nor an entrypoint script names an allocator; if LD_PRELOAD is set outside \
                the image, name the allocator with --allocator";
    let finding = Finding::new(Id::NotAsked, what);
    Report::new(target, Subject::Root, None, Vec::new(), vec![finding]).with_programs(programs)
}

/// How `LD_PRELOAD` would name the library: the path that was given, else the first known name that is
/// there.
fn spelling(root: &Root, program: &Program, wanted: &Wanted) -> String {
    if let Some(file) = &wanted.file {
        return file.display().to_string();
    }
    let sonames = wanted.allocator.map_or(&[][..], Allocator::sonames);
    let loader = Loader::of(root, &program.elf);
    let found = sonames.iter().find(|name| loader.entry(name).file != EntryFile::Missing);
    (*found.or(sonames.first()).unwrap_or(&wanted.name.as_str())).to_owned()
}

/// The scripts called like entrypoints, by their names inside, as far as they are not too long.
pub(super) fn entrypoints(root: &Root) -> Vec<(PathBuf, String)> {
    // Folders in which images keep them.
    const FOLDERS: [&str; 5] = ["/", "/usr/local/bin", "/usr/bin", "/app", "/docker"];
    const MOST_BYTES: u64 = 256 << 10;
    let folders = FOLDERS.iter().filter_map(|folder| root.resolve(Path::new(folder)).ok());
    let files = folders.flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    let is_script =
        |file: &fs::DirEntry| is_entrypoint_name(&file.path()) && file.file_type().is_ok_and(|it| it.is_file());
    let read = |file: fs::DirEntry| {
        let text = NamedFile::read_text(&file.path(), MOST_BYTES).ok()?;
        Some((root.inside(&file.path()), text))
    };
    let mut found: Vec<(PathBuf, String)> = files.filter(is_script).filter_map(read).collect();
    found.sort();
    found
}

/// The programs to judge, and whether they were named.
fn programs(root: &Root, named: &[PathBuf]) -> Result<(Vec<Program>, bool), Failure> {
    if named.is_empty() {
        return Ok((all_programs(root), false));
    }
    let read = |name: &PathBuf| {
        let path = root.resolve(name).map_err(|error| Failure::at(Exit::Usage, name, error))?;
        let elf = Elf::read(&path).map_err(|error| Failure::at(Exit::Usage, name, error))?;
        let name = root.inside(&path).display().to_string();
        Ok(Program { name, path, elf })
    };
    let programs: Result<_, Failure> = named.iter().map(read).collect();
    Ok((programs?, true))
}

fn all_programs(root: &Root) -> Vec<Program> {
    let walk = WalkDir::new(root.folder())
        .sort_by_file_name()
        .into_iter()
        .filter_entry(|entry| entry.depth() != 1 || !SKIPPED.contains(&&*entry.file_name().to_string_lossy()));
    let is_executable = |entry: &walkdir::DirEntry| {
        entry.file_type().is_file() && entry.metadata().is_ok_and(|it| it.mode() & 0o111 != 0) && is_elf(entry.path())
    };
    let programs = walk.flatten().filter(is_executable).filter_map(|entry| {
        let path = entry.into_path();
        let elf = Elf::read(&path).ok()?;
        let name = root.inside(&path).display().to_string();
        is_program(&elf, &path).then_some(Program { name, path, elf })
    });
    programs.collect()
}

fn is_elf(path: &Path) -> bool {
    let mut magic = [0; ELF_MAGIC.len()];
    NamedFile::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == ELF_MAGIC
}

/// Shared objects often carry the bit of programs.
fn is_program(elf: &Elf, path: &Path) -> bool {
    let is_object = path.file_name().is_some_and(|name| {
        let name = name.to_string_lossy();
        name.ends_with(".so") || name.contains(".so.") || name.ends_with(".ko")
    });
    elf.loadable && (elf.interpreter.is_some() || elf.soname.is_none()) && !is_object
}

fn is_of_this_machine(elf: &Elf) -> bool {
    Elf::read(Path::new("/proc/self/exe")).is_ok_and(|own| own.machine == elf.machine)
}

/// Why the library would not be in charge of the program, without its name.
pub(super) fn refusal(
    program: &Program,
    entry: &Entry,
    target: &Target,
    source: &Source,
    wanted: &Wanted,
) -> Option<(Id, String)> {
    if let Some(inside) = inside(&program.path) {
        if inside.allocator().is_some() && inside.allocator() == wanted.allocator {
            return None;
        }
        return Some((Id::AllocatorInside, format!("has {inside}")));
    }
    if program.elf.is_static() {
        return Some((Id::StaticProgram, "is statically linked".to_owned()));
    }
    if program.elf.defines.malloc {
        return Some((Id::MallocInside, "defines malloc itself".to_owned()));
    }
    if let (Source::Variable, Some(how)) = (source, gains_rights(&program.path)) {
        return Some((Id::SecureMode, format!("is {how}: LD_PRELOAD is ignored")));
    }
    let finding = library::refusal(entry, target)?;
    Some((finding.id, finding.what))
}

/// Who will start it is not known; so every bit counts that gives rights to somebody.
fn gains_rights(path: &Path) -> Option<&'static str> {
    let mode = fs::metadata(path).ok()?.mode();
    const SET_GROUP: u32 = libc::S_ISGID | libc::S_IXGRP;
    if mode & libc::S_ISUID != 0 {
        return Some("set-uid");
    }
    if mode & SET_GROUP == SET_GROUP {
        return Some("set-gid");
    }
    match xattr::get(path, OsStr::new("security.capability")) {
        Ok(Some(_)) => Some("given capabilities (setcap)"),
        _ => None,
    }
}

/// Whether a fault is of the program, and not of the library.
pub(super) fn is_of_program(id: Id) -> bool {
    matches!(id, Id::AllocatorInside | Id::StaticProgram | Id::MallocInside | Id::SecureMode)
}

/// One finding for all programs with the same fault. Where no program was named, a fault of single ones
/// is a note: every system has set-uid programs. A fault of most is one of the library.
fn grouped(id: Id, what: String, names: &BTreeSet<String>, named: bool, programs: usize) -> Finding {
    let shown: Vec<&str> = names.iter().map(String::as_str).take(MOST_NAMES).collect();
    let mut list = shown.join(", ");
    if names.len() > shown.len() {
        list += &format!(" and {} more", names.len() - shown.len());
    }
    let what = if is_of_program(id) { format!("{list}: {what}") } else { format!("{what} ({list})") };
    let finding = Finding::new(id, what);
    if named || names.len() * 2 > programs || finding.severity == Severity::Note { finding } else { finding.as_note() }
}
