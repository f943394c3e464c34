//! What a file needs, by its kind: the readers of `check`, the edits of `fix`, and the check of the result.

use std::path::{Path, PathBuf};

use super::arguments::Args;
use super::change::{Change, Proposal};
use super::rust;
use crate::commands::check::files::{self, BuildContext};
use crate::exit::{Exit, Failure};
use ebb_allocators::{Allocator, Choice};
use ebb_deploy::check::Id;
use ebb_deploy::check::Report as Check;
use ebb_deploy::check::declared::{self, Kind, Service};
use ebb_deploy::check::dockerfile::Stages;
use ebb_deploy::check::process::Wanted;
use ebb_deploy::fix::unit::{self, Files};
use ebb_deploy::fix::{self, Desired, Edit, Fixed, Refused};
use ebb_process::elf::Elf;

const LIBRARY_FILE: &str = "libebbmalloc.so";

/// What the file that was named needs.
pub(super) fn propose(args: &Args, text: &str, desired: &Desired) -> Result<Proposal, Failure> {
    let path = args.file();
    let file_name = path.file_name().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default();
    let wanted = Wanted { name: desired.allocator.to_string(), allocator: Some(desired.allocator), file: None };
    if file_name == "Cargo.toml" {
        return rust::propose(args, text, desired);
    }
    if path.extension().is_some_and(|it| it == "py") {
        return python(args, text, desired);
    }
    if args.child.is_some() {
        return Err(
            Failure::usage("--child is for Python files").remedy("for other programs, use ebb run --child NAME -- CMD")
        );
    }
    match declared::kind(path, text) {
        Some(Kind::Unit) => service_unit(args, text, desired, &wanted),
        Some(kind) => services(args, kind, text, desired, &wanted),
        None if is_dockerfile(&file_name) || Stages::parse(text).is_ok() => dockerfile(args, text, desired, &wanted),
        None => Err(Failure::usage(format!("{}: not a kind of file that ebb fix knows", path.display())).remedy(
            "nothing was changed; it knows Dockerfiles, compose files, Kubernetes manifests, systemd services, Procfiles, supervisor's \
             configuration, entrypoint scripts, Cargo.toml and Python files",
        )),
    }
}

/// The calls of a Python program that start others. There is no service in it to check.
fn python(args: &Args, text: &str, desired: &Desired) -> Result<Proposal, Failure> {
    let name = args.file().display().to_string();
    let child = args.child.as_deref();
    let Fixed { edits, notes } = fix::python::fix(&name, text, child, desired)?;
    let change = Change::of(args.file(), Some(text.to_owned()), edits);
    is_settled(&name, fix::python::fix(&name, &change.after(), child, desired))?;
    Ok(Proposal { kind: "python", changes: vec![change], notes, check: None, library: None })
}

/// A second look at the result has to find nothing to do.
fn is_settled(name: &str, again: Result<Fixed, Refused>) -> Result<(), Failure> {
    match again {
        Ok(again) if again.edits.is_empty() => Ok(()),
        Ok(_) => Err(Failure::usage(format!("{name}: the file would need another change after this one"))
            .remedy("nothing was changed")),
        Err(refused) => Err(refused.into()),
    }
}

fn is_dockerfile(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["dockerfile", "containerfile"].iter().any(|it| {
        name == *it
            || name.strip_prefix(it).is_some_and(|rest| rest.starts_with('.'))
            || name.strip_suffix(it).is_some_and(|rest| rest.ends_with('.'))
    })
}

fn folder(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

fn dockerfile(args: &Args, text: &str, desired: &Desired, wanted: &Wanted) -> Result<Proposal, Failure> {
    let name = args.file().display().to_string();
    let mut context = BuildContext::of(args.file());
    let stage = args.stage.as_deref();
    let Fixed { edits, mut notes } = fix::dockerfile::fix(&name, text, stage, &context, desired)?;
    let mut changes = vec![Change::of(args.file(), Some(text.to_owned()), edits)];
    let after = changes[0].after();
    is_settled(&name, fix::dockerfile::fix(&name, &after, stage, &context, desired))?;
    let stages = Stages::parse(&after).map_err(|error| Failure::new(Exit::Internal, format!("{name}: {error}")))?;
    let check = |context: &BuildContext| files::of_dockerfile(&name, &stages, stage, context, Some(wanted));
    let lacks = |check: &Option<Check>| {
        let mut findings = check.iter().flat_map(Check::findings);
        findings.any(|it| it.id == Id::CopyMissing && it.what.contains(LIBRARY_FILE))
    };
    let mut checked = check(&context);
    let mut library = None;
    if lacks(&checked) {
        let place = folder(args.file()).join(LIBRARY_FILE);
        if !place.exists() {
            notes.push(placing(args, &place, "in the build context"));
            context.placed = Some(LIBRARY_FILE);
            library = Some(place);
        }
        if context.ignores(LIBRARY_FILE) {
            let change = not_ignored(folder(args.file()), &context)?;
            context.ignore = Some(change.after());
            changes.push(change);
        }
        checked = check(&context);
    }
    if changes[0].edits.iter().any(|it| it.text.contains("COPY libebbmalloc.so")) {
        let platforms = ["TARGETARCH", "TARGETPLATFORM", "BUILDPLATFORM", "--platform"];
        if platforms.iter().any(|it| text.contains(it)) {
            notes.push(
                "the image is built for several platforms: libebbmalloc.so is for one, so each build needs its own"
                    .to_owned(),
            );
        }
    }
    Ok(Proposal { kind: "dockerfile", changes, notes, check: checked, library })
}

/// The note about the library that has to lie next to the file.
fn placing(args: &Args, place: &Path, what: &str) -> String {
    let place = place.display();
    match args.write {
        true => format!("{LIBRARY_FILE} is copied to {place}, {what}; --undo removes it"),
        false => {
            format!("--write also copies the library to {place}, {what}")
        }
    }
}

/// A line for the `.dockerignore` that keeps the library out of the build.
fn not_ignored(folder: &Path, context: &BuildContext) -> Result<Change, Failure> {
    let text = context.ignore.clone().unwrap_or_default();
    let line = [format!("!{LIBRARY_FILE}")];
    let edit = Edit::below(&text, text.len(), &line, "lets the builder read the library");
    Ok(Change::of(&folder.join(".dockerignore"), Some(text), vec![edit]))
}

fn services(args: &Args, kind: Kind, text: &str, desired: &Desired, wanted: &Wanted) -> Result<Proposal, Failure> {
    let name = args.file().display().to_string();
    let unusable = |why: String| Failure::usage(format!("{name}: {why}")).remedy("nothing was changed");
    let all = declared::services(kind, args.file(), text).map_err(unusable)?;
    let names = chosen(args, &all)?;
    let is_chosen = |service: &Service| names.contains(&service.name);
    let fix = |text: &str| match kind {
        Kind::Compose => fix::compose::fix(&name, text, &is_chosen, desired),
        Kind::Procfile => fix::procfile::fix(&name, text, &is_chosen, desired),
        Kind::Supervisor => fix::supervisor::fix(&name, text, &is_chosen, desired),
        Kind::Script => fix::script::fix(&name, text, desired),
        _ => fix::kubernetes::fix(&name, text, &is_chosen, args.library_image.as_deref(), desired),
    };
    let Fixed { edits, mut notes } = fix(text)?;
    let change = Change::of(args.file(), Some(text.to_owned()), edits);
    is_settled(&name, fix(&change.after()))?;
    let after = declared::services(kind, args.file(), &change.after())
        .map_err(|why| Failure::new(Exit::Internal, format!("{name}: {why}")))?;
    let mounts = kind == Kind::Compose
        && desired.allocator == Allocator::Ebbmalloc
        && change.after().contains("./libebbmalloc.so:");
    let place = folder(args.file()).join(LIBRARY_FILE);
    let library = (mounts && !place.exists()).then_some(place);
    if let Some(place) = &library {
        notes.push(placing(args, place, "the path that the service mounts"));
    }
    let placed = library.as_deref();
    let check = files::of_services(&name, kind, &after, Some(&is_chosen), Some(wanted), placed);
    Ok(Proposal { kind: kind.name(), changes: vec![change], notes, check: Some(check), library })
}

/// The names of the services that are meant. Where the file leaves a choice, it is the user's.
fn chosen(args: &Args, all: &[Service]) -> Result<Vec<String>, Failure> {
    let name = args.file().display();
    let list = || all.iter().map(|it| it.name.as_str()).collect::<Vec<_>>().join(", ");
    if let Some(unknown) = args.service.iter().find(|name| !all.iter().any(|it| it.is_called(name))) {
        return Err(Failure::usage(format!("{name} has no service {unknown}")).remedy(format!("it has {}", list())));
    }
    if !args.service.is_empty() {
        let meant = all.iter().filter(|it| args.service.iter().any(|name| it.is_called(name)));
        return Ok(meant.map(|it| it.name.clone()).collect());
    }
    let built: Vec<&Service> = all.iter().filter(|it| it.is_built).collect();
    match (all, built.as_slice()) {
        ([], _) => {
            Err(Failure::usage(format!("{name} has no service that starts a program")).remedy("nothing was changed"))
        }
        ([one], _) => Ok(vec![one.name.clone()]),
        // The others come from registries: databases and proxies.
        (_, [one]) => Ok(vec![one.name.clone()]),
        _ => Err(Failure::usage(format!("{name} has {} services", all.len()))
            .remedy(format!("name them with --service: {}", list()))),
    }
}

fn service_unit(args: &Args, text: &str, desired: &Desired, wanted: &Wanted) -> Result<Proposal, Failure> {
    let name = args.file().display().to_string();
    let file_name = args.file().file_name().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default();
    // A package's unit is overridden in /etc, where an update does not come.
    let is_packaged = ["/usr/lib/systemd/system", "/lib/systemd/system"].iter().any(|it| args.file().starts_with(it));
    let mut drop_ins = files::drop_ins(args.file())?;
    let mut place = folder(args.file()).join(format!("{file_name}.d"));
    if is_packaged {
        let own = Path::new("/etc/systemd/system").join(&file_name);
        place = Path::new("/etc/systemd/system").join(format!("{file_name}.d"));
        drop_ins.extend(files::drop_ins(&own)?);
        drop_ins.sort();
    }
    let Fixed { edits, notes } = fix::unit::fix(&Files { name: &name, text, drop_ins: &drop_ins }, desired)?;
    let drop_in = unit::drop_in(desired);
    let own = drop_ins.iter().find(|(name, _)| *name == drop_in).map(|(_, text)| text.clone());
    let change = Change::of(&place.join(&drop_in), own, edits);
    drop_ins.retain(|(name, _)| *name != drop_in);
    drop_ins.push((drop_in, change.after()));
    drop_ins.sort();
    let service = files::unit(args.file(), text, &drop_ins)
        .map_err(|why| Failure::new(Exit::Internal, format!("{name}: {why}")))?;
    let service = [service];
    let check = files::of_services(&name, Kind::Unit, &service, Some(&|_| true), Some(wanted), None);
    Ok(Proposal { kind: Kind::Unit.name(), changes: vec![change], notes, check: Some(check), library: None })
}

pub(super) fn own_library() -> Result<PathBuf, Failure> {
    let own =
        Elf::read(Path::new("/proc/self/exe")).map_err(|error| Failure::new(Exit::Internal, error.to_string()))?;
    match ebb_process::library::resolve(Allocator::Ebbmalloc.name(), &own)? {
        Choice::Library(library) => Ok(library.path),
        Choice::System => {
            Err(Failure::new(Exit::Missing, "there is no libebbmalloc.so").remedy("build it, or set EBB_LIB"))
        }
    }
}
