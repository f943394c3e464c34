//! Files that say how a service is started, as reports: used by `ebb check`, and by `ebb fix` on what it
//! would write.

use std::fs;
use std::path::{Path, PathBuf};

use globset::GlobBuilder;

use crate::exit::{Exit, Failure};
use ebb_allocators::Allocator;
use ebb_deploy::check::Judged;
use ebb_deploy::check::declared::unit::Unit;
use ebb_deploy::check::declared::{self, Kind, Service};
use ebb_deploy::check::dockerfile::{self, Context, Stages};
use ebb_deploy::check::process::Wanted;
use ebb_deploy::check::report::{Report, Subject};
use ebb_deploy::check::{Finding, Id, Severity};

use super::host::ThisMachine;

/// What the image of a Dockerfile comes to; none where there is no such stage.
pub(in crate::commands) fn of_dockerfile(
    name: &str,
    stages: &Stages,
    stage: Option<&str>,
    context: &BuildContext,
    wanted: Option<&Wanted>,
) -> Option<Report> {
    let mut judged = dockerfile::judge(name, stages, stage, context)?;
    settle(name, &mut judged, wanted);
    let allocator = wanted.map(|it| it.name.clone()).or(judged.allocator);
    Some(Report::new(name, Subject::Dockerfile, allocator, Vec::new(), judged.findings))
}

/// The build context: the Dockerfile's folder. A file that is not there but in the folder above, or where `ebb` was
/// started, may still reach a builder that is given another context.
#[derive(Debug)]
pub(in crate::commands) struct BuildContext {
    folder: PathBuf,
    /// The text of `.dockerignore`.
    pub ignore: Option<String>,
    /// A file that will be there.
    pub placed: Option<&'static str>,
}

impl BuildContext {
    pub(in crate::commands) fn of(dockerfile: &Path) -> Self {
        let folder = dockerfile.parent().unwrap_or(Path::new("")).to_owned();
        Self { ignore: fs::read_to_string(folder.join(".dockerignore")).ok(), folder, placed: None }
    }

    /// Whether `.dockerignore` keeps a file of the folder from the builder: the last pattern that fits decides.
    pub(in crate::commands) fn ignores(&self, file: &str) -> bool {
        let mut ignored = false;
        let lines = self.ignore.as_deref().unwrap_or_default().lines();
        for line in lines.map(str::trim).filter(|it| !it.is_empty() && !it.starts_with('#')) {
            let taken_back = line.strip_prefix('!');
            let pattern = taken_back.unwrap_or(line).trim_start_matches("./").trim_start_matches('/');
            let glob = GlobBuilder::new(pattern).literal_separator(true).build();
            if glob.is_ok_and(|it| it.compile_matcher().is_match(file)) {
                ignored = taken_back.is_none();
            }
        }
        ignored
    }
}

impl Context for BuildContext {
    /// `..` leads out of it, as for the builder.
    fn read(&self, name: &str) -> Option<String> {
        let inside = !name.split('/').any(|part| part == "..");
        let file = self.folder.join(name.trim_start_matches('/'));
        (inside && file.is_file()).then(|| fs::read_to_string(file).ok())?
    }

    fn lacks(&self, name: &str) -> Option<String> {
        let name = name.trim_start_matches("./").trim_start_matches('/');
        if self.placed == Some(name) || self.folder.join(name).exists() {
            let why = format!(".dockerignore keeps {name} from the builder");
            return self.ignores(name).then_some(why);
        }
        let mut elsewhere = [self.folder.join("..").join(name), PathBuf::from(name)].into_iter();
        let here = self.folder.display().to_string();
        let folder = if here.is_empty() { "this folder" } else { &here };
        (!elsewhere.any(|it| it.exists())).then(|| format!("there is no {name} in {folder}, the build context"))
    }
}

/// The drop-ins of a unit that are next to it, by their names in order.
pub(in crate::commands) fn drop_ins(unit: &Path) -> Result<Vec<(String, String)>, Failure> {
    let mut folder = unit.as_os_str().to_owned();
    folder.push(".d");
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".conf") {
            let path = entry.path();
            let text = fs::read_to_string(&path).map_err(|error| Failure::at(Exit::Permission, &path, error))?;
            found.push((name, text));
        }
    }
    found.sort();
    Ok(found)
}

/// The service of a unit with these drop-ins.
pub(in crate::commands) fn unit(path: &Path, text: &str, drop_ins: &[(String, String)]) -> Result<Service, String> {
    let mut unit = Unit::parse(text)?;
    for (name, text) in drop_ins.iter().filter(|it| !it.1.trim().is_empty()) {
        unit.extend(Unit::parse(text).map_err(|why| format!("{name}: {why}"))?);
    }
    Ok(unit.service(path))
}

/// The result for services of a file: the `chosen` ones, else the ones that ask for an allocator. `placed` is a file
/// that will be there.
pub(in crate::commands) fn of_services(
    name: &str,
    kind: Kind,
    services: &[Service],
    chosen: Option<&dyn Fn(&Service) -> bool>,
    wanted: Option<&Wanted>,
    placed: Option<&Path>,
) -> Report {
    let host = ThisMachine { placed };
    let judge = |service: &Service| declared::judge(name, kind, service, &host);
    let judged: Vec<Judged> = match chosen {
        Some(chosen) => services.iter().filter(|it| chosen(it)).map(judge).collect(),
        None => requesting(kind, services.iter().map(judge)),
    };
    let mut whole = Judged { allocator: None, findings: Vec::new() };
    for mut one in judged {
        settle(name, &mut one, wanted);
        whole.allocator = whole.allocator.or(one.allocator);
        whole.findings.extend(one.findings);
    }
    if whole.allocator.is_none()
        && whole.findings.is_empty()
        && wanted.is_none_or(|it| it.allocator != Some(Allocator::Glibc))
    {
        let what = "no service in it sets LD_PRELOAD";
        whole.findings.push(Finding::new(Id::NotAsked, what).in_file(name));
    }
    let allocator = wanted.map(|it| it.name.clone()).or(whole.allocator);
    Report::new(name, Subject::File(kind), allocator, Vec::new(), whole.findings)
}

/// The services that request an allocator. One supervisord starts all programs of its file, so its other programs are
/// listed too, as notes.
fn requesting(kind: Kind, all: impl Iterator<Item = Judged>) -> Vec<Judged> {
    let is_silent = |it: &Judged| {
        let mut findings = it.findings.iter();
        findings.any(|it| it.id == Id::NotAsked && it.severity == Severity::Error)
    };
    let (silent, mut requesting): (Vec<Judged>, Vec<Judged>) = all.partition(is_silent);
    if kind == Kind::Supervisor && !requesting.is_empty() {
        requesting.extend(
            silent.into_iter().map(|it| Judged {
                allocator: None,
                findings: it.findings.into_iter().map(Finding::as_note).collect(),
            }),
        );
    }
    requesting
}

/// Compares the requested allocator with the one named on the command line.
fn settle(name: &str, judged: &mut Judged, wanted: Option<&Wanted>) {
    let Some(wanted) = wanted else { return };
    match judged.allocator.as_deref() {
        // The system's own is there by itself.
        None if wanted.allocator == Some(Allocator::Glibc) => {
            judged.findings.retain(|it| it.severity == Severity::Unknown);
        }
        Some(asked) if !is_same(wanted, asked) => judged
            .findings
            .push(Finding::new(Id::OtherFirst, format!("{asked} is configured, not {}", wanted.name)).in_file(name)),
        _ => {}
    }
}

/// Whether what a file asks for, a known name or a path, is what is wanted.
fn is_same(wanted: &Wanted, asked: &str) -> bool {
    let name = |path: &Path| path.file_name().map(std::ffi::OsStr::to_owned);
    wanted.allocator.is_some_and(|it| it.name() == asked)
        || wanted.file.as_deref().is_some_and(|file| name(file) == name(Path::new(asked)))
}
