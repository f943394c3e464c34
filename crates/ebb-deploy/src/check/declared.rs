//! Files that say how a service is started, without building anything: compose files, Kubernetes
//! manifests, systemd units, Procfiles, supervisor's configuration, shell scripts. What each service is given, and
//! whether that puts the allocator in charge of it. Pure; files that they name are asked for.
//!
//! The readers leave the places of what they found in the text, because the rewriting changes it there.

use std::path::Path;

use ebb_allocators::Allocator;
use ebb_process::elf::Libc;
use serde::Serialize;

use super::base::Base;
use super::finding::{Finding, Id, Judged};
use super::library::{allocator_of, file_name, is_pattern, path_architecture};
use super::settings;
use super::start::Start;

pub(crate) mod compose;
pub(crate) mod kubernetes;
pub(crate) mod procfile;
pub(crate) mod script;
mod service;
pub mod supervisor;
pub mod unit;
pub(crate) mod yaml;

pub use service::{Mount, Remark, Service, Variable};

/// A file of services. Its JSON is its [`name`](Self::name).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// `compose.yaml`.
    Compose,
    /// Objects of Kubernetes with pods in them.
    Kubernetes,
    /// A systemd service.
    Unit,
    /// A Procfile.
    Procfile,
    /// supervisor's configuration.
    Supervisor,
    /// A shell script that starts a program.
    Script,
}

impl Kind {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Compose => "compose",
            Kind::Kubernetes => "kubernetes",
            Kind::Unit => "unit",
            Kind::Procfile => "procfile",
            Kind::Supervisor => "supervisor",
            Kind::Script => "script",
        }
    }
}

/// The machine that a file is read on, for services that no image holds.
pub trait Host {
    /// Whether it has a file of this path.
    fn has(&self, path: &str) -> bool;

    /// Why the loader would not put the library `entry` in charge of the service, if both are here.
    fn refuses(&self, _service: &Service, _entry: &str) -> Option<Finding> {
        None
    }
}

impl<F: Fn(&str) -> bool> Host for F {
    fn has(&self, path: &str) -> bool {
        self(path)
    }
}

/// What kind of file it is, by its name, and where that says nothing, by its content.
pub fn kind(path: &Path, text: &str) -> Option<Kind> {
    let name = path.file_name()?.to_str()?;
    let lower = name.to_ascii_lowercase();
    if lower.ends_with(".service") {
        return Some(Kind::Unit);
    }
    if lower == "procfile" || lower.starts_with("procfile.") {
        return Some(Kind::Procfile);
    }
    if script::is_like(&lower, text) {
        return Some(Kind::Script);
    }
    if [".conf", ".ini"].iter().any(|end| lower.ends_with(end)) {
        let is_named = matches!(&*lower, "supervisord.conf" | "supervisor.conf");
        return (is_named || supervisor::is_like(text)).then_some(Kind::Supervisor);
    }
    if ![".yml", ".yaml", ".json"].iter().any(|end| lower.ends_with(end)) {
        return None;
    }
    let documents = yaml::parse(text).ok();
    let roots = documents.map(|it| it.roots).unwrap_or_default();
    if roots.iter().any(|root| root.get("kind").is_some() && root.get("apiVersion").is_some()) {
        return Some(Kind::Kubernetes);
    }
    if roots.len() == 1 && roots[0].get("services").is_some() || lower.contains("compose") {
        return Some(Kind::Compose);
    }
    None
}

/// The services of a file, or why it cannot be read.
pub fn services(kind: Kind, path: &Path, text: &str) -> Result<Vec<Service>, String> {
    match kind {
        Kind::Compose => compose::services(text),
        Kind::Kubernetes => kubernetes::services(text),
        Kind::Unit => Ok(vec![unit::Unit::parse(text)?.service(path)]),
        Kind::Procfile => Ok(procfile::processes(text)?.into_iter().map(|it| it.service).collect()),
        Kind::Supervisor => Ok(supervisor::programs(text)?.into_iter().map(|it| it.service).collect()),
        Kind::Script => Ok(vec![script::Script::parse(path, text)?.service]),
    }
}

/// Judges one service of the file called `name`. `host` looks up files of services that no image contains.
pub fn judge(name: &str, kind: Kind, service: &Service, host: &dyn Host) -> Judged {
    let at = |line: usize, id: Id, what: String| {
        Finding::new(id, format!("{}: {what}", service.name)).in_file(format!("{name}:{line}"))
    };
    let remarks = service.remarks.iter().map(|it| {
        let finding = at(it.line, it.id, it.what.clone());
        if it.is_note { finding.as_note() } else { finding }
    });
    let start = service.start.as_ref();
    if let Some(allocator) = start.and_then(Start::through_ebb) {
        return Judged { allocator: Some(allocator.to_owned()), findings: Vec::new() };
    }
    let set = service.variable("LD_PRELOAD").map(|it| (it.value.as_deref(), it.line));
    let assigned = || Some((Some(start?.assigned("LD_PRELOAD")?), service.line));
    let nothing = |line, id, what: &str| Judged { allocator: None, findings: vec![at(line, id, what.to_owned())] };
    let (text, line) = match set.or_else(assigned) {
        Some((Some(""), line)) if set.is_some() => {
            return nothing(line, Id::NotAsked, "LD_PRELOAD is empty");
        }
        Some((Some(text), line)) => (text, line),
        Some((None, line)) => {
            return nothing(line, Id::Unreadable, "LD_PRELOAD is set outside this file");
        }
        None if service.remarks.iter().any(|it| !it.is_note) => {
            return Judged { allocator: None, findings: remarks.collect() };
        }
        // Its environment is not in the file.
        None if kind == Kind::Supervisor => {
            let what =
                "nothing in this file sets LD_PRELOAD; the program inherits the LD_PRELOAD of supervisord, if any";
            return nothing(service.line, Id::NotAsked, what);
        }
        None => return nothing(service.line, Id::NotAsked, "nothing sets LD_PRELOAD"),
    };
    let entries = || text.split([' ', ':']).filter(|it| !it.is_empty());
    let entry = entries().find(|it| allocator_of(it).is_some()).or(entries().next()).unwrap_or(text);
    let allocator = allocator_of(entry);
    let mut findings: Vec<Finding> = remarks.collect();
    if let Some(by) = start.and_then(Start::drops_environment) {
        let what = format!("{by} starts the service without the LD_PRELOAD that is set here");
        findings.push(at(line, Id::EnvironmentDropped, what));
    }
    if is_pattern(text) {
        let what = format!("LD_PRELOAD is \"{text}\", which the loader takes literally");
        findings.push(at(line, Id::NotExpanded, what));
    } else {
        if let Some(architecture) = path_architecture(entry) {
            let what = format!("{entry} exists on {architecture} only");
            findings.push(at(line, Id::ArchitectureBound, what));
        }
        let there = match kind {
            Kind::Compose | Kind::Kubernetes => in_image(name, service, entry, allocator, host),
            Kind::Unit | Kind::Procfile | Kind::Supervisor | Kind::Script => {
                let refusal = host.refuses(service, entry);
                findings.extend(refusal.map(|it| at(line, it.id, it.what)));
                on_host(kind, name, entry, host)
            }
        };
        findings.extend(there.map(|(finding, what)| {
            let placed = at(line, finding, what);
            let is_certain = kind != Kind::Procfile && is_installed(name);
            if finding == Id::LibraryMissing && !is_certain { placed.as_note() } else { placed }
        }));
    }
    if let Some(in_charge) = allocator {
        let set = service.env.iter().filter_map(|it| Some((it.name.clone(), it.value.clone()?)));
        let wrong = settings::judge_declared(in_charge, set).into_iter();
        findings.extend(wrong.map(|it| it.in_file(name)));
    }
    Judged { allocator: Some(allocator.map_or(entry, |it| it.name()).to_owned()), findings }
}

/// Whether the library is in the image, as far as its name tells, or where it is mounted from.
fn in_image(
    name: &str,
    service: &Service,
    entry: &str,
    allocator: Option<Allocator>,
    host: &dyn Host,
) -> Option<(Id, String)> {
    let base = service.image.as_deref().map(Base::parse);
    if base.is_some_and(|it| it.libc() == Some(Libc::Musl)) && entry.contains("-linux-gnu") {
        let what = format!("{entry} is a path for glibc, but the image has musl");
        return Some((Id::WrongLibc, what));
    }
    if let Some(mount) = service.mounts.iter().find(|it| it.covers(entry)) {
        return on_mount(name, mount, entry, host);
    }
    if allocator.is_none() && !entry.contains('/') {
        return None;
    }
    let image = service.image.as_deref().unwrap_or("the image");
    if base.is_some_and(|it| it.has_no_loader()) {
        let what = format!("{image} has no loader: nothing can be preloaded into its programs");
        return Some((Id::StaticProgram, what));
    }
    if base.is_some_and(|it| it.is_without_allocator()) && !service.is_built {
        let what = format!("{image} does not have {entry}, and nothing mounts it");
        return Some((Id::PackageMissing, what));
    }
    Some((Id::BaseUnknown, format!("it is not known whether {image} has {entry}")))
}

/// Whether the library is where the service mounts it from: next to the file called `name`, or in the current folder,
/// which may be the project's.
fn on_mount(name: &str, mount: &Mount, entry: &str, host: &dyn Host) -> Option<(Id, String)> {
    let from = mount.from.as_deref()?.trim_end_matches('/');
    let file = format!("{from}{}", mount.rest(entry)?);
    let folder = Path::new(name).parent().unwrap_or(Path::new(""));
    if host.has(&folder.join(&file).to_string_lossy()) || host.has(&file) {
        return None;
    }
    let folder = folder.display().to_string();
    let folder = if folder.is_empty() { "this folder" } else { &folder };
    let what = format!("{entry} is mounted from {file}, and {folder} has no such file");
    Some((Id::MountMissing, what))
}

/// Whether the library is on this machine. A name alone is looked up by the loader of the service.
fn on_host(kind: Kind, name: &str, entry: &str, host: &dyn Host) -> Option<(Id, String)> {
    if !entry.starts_with('/') || host.has(entry) {
        return None;
    }
    let what = if kind != Kind::Procfile && is_installed(name) {
        format!("{entry} does not exist")
    } else {
        format!("{entry} is not on this machine; the service needs it where it runs")
    };
    Some((Id::LibraryMissing, what))
}

/// Whether a file is one of this machine, not of a repository.
fn is_installed(name: &str) -> bool {
    const FOLDERS: &str = "/etc/supervisor /usr/local/bin/ /usr/local/sbin/ /usr/bin/ /etc/systemd/ /usr/lib/systemd/ \
                           /lib/systemd/ /run/systemd/";
    FOLDERS.split(' ').any(|folder| name.starts_with(folder))
}

/// Whether a word names a library that is known to be an allocator's: for readers of single lines.
pub fn is_allocator(word: &str) -> bool {
    Allocator::from_file_name(file_name(word)).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A service on a few lines: name and variables, what starts, what its reader has to say.
    fn shown(service: &Service) -> String {
        let value = |it: &Variable| it.value.clone().unwrap_or("?".to_owned());
        let env = service.env.iter().map(|it| format!(" {}={}@{}", it.name, value(it), it.line));
        let mut text = format!("{}:{}:{}\n", service.name, service.line, env.collect::<String>());
        if let Some(start) = &service.start {
            text += &format!("  starts {}\n", start.words.join("|"));
        }
        if let Some(image) = &service.image {
            text += &format!("  in {image}\n");
        }
        for mount in &service.mounts {
            text += &format!("  mounts {} at {}\n", mount.from.as_deref().unwrap_or("?"), mount.to);
        }
        for remark in &service.remarks {
            let weight = if remark.is_note { "note" } else { "error" };
            text += &format!("  {weight} {}:{}\n", remark.id.name(), remark.line);
        }
        text
    }

    /// Each case of `tests.cases`: `== NAME: FILE ==`, a text, and the services that it declares.
    #[test]
    fn each_file_declares_the_services_in_its_case() {
        for case in include_str!("declared/tests.cases").split("\n== ") {
            let (heading, text) = case.split_once(" ==\n").unwrap();
            let (text, expected) = text.split_once("-- declares --\n").unwrap();
            let path = Path::new(heading.rsplit(' ').next().unwrap());
            let said = match services(kind(path, text).unwrap(), path, text) {
                Ok(services) => services.iter().map(shown).collect(),
                Err(why) => format!("refused: {why}\n"),
            };
            assert_eq!(said.trim_end(), expected.trim_end(), "{heading}");
        }
    }
}
