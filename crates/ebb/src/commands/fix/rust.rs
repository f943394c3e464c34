//! A Rust package: `Cargo.toml` and the root files of its programs.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use super::arguments::Args;
use super::change::{Change, Proposal, read};
use crate::exit::{Exit, Failure};
use ebb_allocators::Allocator;
use ebb_deploy::fix::manifest::{Crate, Manifest, Own};
use ebb_deploy::fix::{Desired, source};

/// What the package needs.
pub(super) fn propose(args: &Args, text: &str, desired: &Desired) -> Result<Proposal, Failure> {
    let name = args.file().display().to_string();
    let folder = args.file().parent().unwrap_or(Path::new(""));
    let manifest = Manifest::parse(&name, text)?;
    let desired_crate = Crate::of(desired)?;
    let mut changes = Vec::new();
    let mut before: Vec<Crate> = Vec::new();
    for path in chosen(args, &programs(&manifest, folder))? {
        let source = read(&path)?;
        let changed = source::fix(&path.display().to_string(), &source, desired_crate, &desired.why)?;
        before.extend(changed.before);
        changes.push(Change::of(&path, Some(source), changed.fixed.edits));
    }
    before.retain(|it| !is_used(folder, *it, &changes));
    let own = match &desired.release {
        Some(release) => Own::Version(release.version.clone()),
        None => Own::Path(crate_path(args, folder, desired_crate)?),
    };
    let fixed = manifest.fix(desired_crate, &before, &own, &desired.why)?;
    let mut notes = fixed.notes;
    changes.insert(0, Change::of(args.file(), Some(text.to_owned()), fixed.edits));
    for (variable, value) in &desired.variables {
        // tikv-jemallocator prefixes jemalloc's names, so that it reads another variable.
        let variable = if variable == "MALLOC_CONF" { "_RJEM_MALLOC_CONF" } else { variable };
        notes.push(format!("settings are read from the environment: start the program with {variable}={value}"));
    }
    let left: Vec<&str> = manifest
        .allocators()
        .iter()
        .map(|it| it.of)
        .filter(|it| *it != desired_crate && !before.contains(it))
        .map(|it| it.package)
        .collect();
    if !left.is_empty() {
        notes.push(format!("{} stays a dependency, because it is still used", left.join(", ")));
    }
    if changes.iter().any(Change::is_change) {
        notes.push("then build it, start it and run: ebb check PID".to_owned());
    }
    Ok(Proposal { kind: "cargo", changes, notes, check: None, library: None })
}

/// The programs of the package: the ones named and the ones that Cargo finds, with their root files.
fn programs(manifest: &Manifest<'_>, folder: &Path) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    let main = folder.join("src/main.rs");
    if main.is_file() {
        found.insert(manifest.package().to_owned(), main);
    }
    for entry in fs::read_dir(folder.join("src/bin")).into_iter().flatten().flatten() {
        let path = entry.path();
        let root = if path.is_dir() { path.join("main.rs") } else { path.clone() };
        let is_root = root.is_file() && root.extension().is_some_and(|it| it == "rs");
        if let Some(name) = path.file_stem().filter(|_| is_root) {
            found.insert(name.to_string_lossy().into_owned(), root);
        }
    }
    for (name, path) in manifest.programs() {
        let named = path.map(|it| folder.join(it));
        if let Some(path) = named {
            found.retain(|_, it| *it != path);
            found.insert(name, path);
        }
    }
    found
}

fn chosen(args: &Args, programs: &BTreeMap<String, PathBuf>) -> Result<Vec<PathBuf>, Failure> {
    let name = args.file().display();
    let list = || programs.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    if let Some(unknown) = args.service.iter().find(|it| !programs.contains_key(*it)) {
        return Err(Failure::usage(format!("{name} has no program {unknown}")).remedy(format!("it has {}", list())));
    }
    match programs.len() {
        0 => Err(Failure::new(
            Exit::Unsupported,
            format!("{name} has no program, and a library does not choose the allocator"),
        )
        .remedy("nothing was changed: name the Cargo.toml of the program")),
        1 => Ok(programs.values().cloned().collect()),
        _ if !args.service.is_empty() => Ok(args.service.iter().filter_map(|it| programs.get(it).cloned()).collect()),
        _ => Err(Failure::usage(format!("{name} has {} programs", programs.len()))
            .remedy(format!("name them with --service: {}", list()))),
    }
}

fn is_used(folder: &Path, of: Crate, changes: &[Change]) -> bool {
    let sources =
        ["src", "tests", "benches", "examples", "build.rs"].into_iter().flat_map(|it| WalkDir::new(folder.join(it)));
    let mut files = sources.flatten().filter(|it| it.path().extension().is_some_and(|it| it == "rs"));
    files.any(|file| match changes.iter().find(|it| it.path == file.path()) {
        Some(change) => source::uses(&change.after(), of),
        None => fs::read_to_string(file.path()).is_ok_and(|text| source::uses(&text, of)),
    })
}

/// The path of the crate in a checkout, as the manifest is to name it.
fn crate_path(args: &Args, folder: &Path, desired_crate: Crate) -> Result<String, Failure> {
    if desired_crate.package != Allocator::Ebbmalloc.name() {
        return Ok(String::new());
    }
    if let Some(path) = &args.crate_path {
        if !folder.join(path).join("Cargo.toml").is_file() {
            return Err(Failure::usage(format!("--crate-path {path}: there is no Cargo.toml"))
                .remedy("name crates/ebbmalloc of a checkout, relative to this Cargo.toml"));
        }
        return Ok(path.clone());
    }
    // target/release/ebb of a checkout.
    let checkout = env::current_exe().ok().and_then(|it| Some(it.ancestors().nth(3)?.join("crates/ebbmalloc")));
    match checkout.filter(|it| it.join("Cargo.toml").is_file()) {
        Some(path) => Ok(path.display().to_string()),
        None => Err(Failure::new(Exit::Missing, "the crate ebbmalloc is not published, and no checkout is known")
            .remedy("name its folder with --crate-path")),
    }
}
