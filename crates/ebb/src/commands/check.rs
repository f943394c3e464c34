//! `ebb check`: is the allocator that somebody believes in really in charge? Gathers the facts about
//! running processes, an unpacked root file system or a file that starts a service, and has them judged.

use std::fs;
use std::path::{Path, PathBuf};

use crate::exit::{Exit, Failure, unknown_allocator};
use crate::paint;
use crate::terminal;
use ebb_allocators::Allocator;
use ebb_deploy::check::Report;
use ebb_deploy::check::declared;
use ebb_deploy::check::dockerfile::Stages;
use ebb_deploy::check::process::Wanted;
use ebb_process::patience::{ANSWERS_WITHIN, unless_stuck};
use ebb_process::target;

mod entry;
pub(in crate::commands) mod files;
mod host;
mod processes;
mod root;

/// The arguments of `ebb check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ebb check 4711                  the process and its descendants\n  \
                  ebb check -a jemalloc nginx     by name\n  \
                  ebb check Dockerfile            before the image is built\n  \
                  ebb check app.service")]
pub struct Args {
    /// A process (number, name, cgroup, unit, container); a Dockerfile, a compose file, a Kubernetes manifest, a
    /// systemd unit, a Procfile, supervisor's configuration, an entrypoint script; or the folder of an unpacked root
    /// file system
    #[arg(value_name = "TARGET|FILE|ROOT")]
    target: String,

    /// The expected allocator: ebbmalloc, jemalloc, mimalloc, tcmalloc, glibc, or the path of a library [default:
    /// the one named by the environment]
    #[arg(long, short, value_name = "NAME|PATH")]
    allocator: Option<String>,

    /// Only the process itself, without its descendants
    #[arg(long)]
    no_children: bool,

    /// In a root file system: the path inside it of a program that must run on the allocator; may be repeated
    /// [default: all programs; one that cannot is a note]
    #[arg(long, value_name = "PATH")]
    program: Vec<PathBuf>,

    /// In a Dockerfile: the stage to build [default: the last one]
    #[arg(long, value_name = "NAME")]
    stage: Option<String>,

    /// In a file with several services: the service to check; may be repeated [default: services that set an
    /// allocator]
    #[arg(long, value_name = "NAME")]
    service: Vec<String>,

    /// In a root file system: the page size of the target kernel [default: this machine's, for programs of its
    /// architecture]
    #[arg(long, value_name = "BYTES")]
    page_size: Option<u64>,

    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

/// Checks, prints, and tells by its exit code.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    let wanted = args.allocator.as_deref().map(wanted).transpose()?;
    let path = Path::new(&args.target);
    let report = if args.target.parse::<i32>().is_ok() || is_cgroup(path) {
        of_processes(args, wanted)?
    } else if path.is_dir() {
        root::check(&args.target, &args.program, args.page_size, wanted)?
    } else if path.is_file() {
        of_file(args, path, wanted.as_ref())?
    } else {
        of_processes(args, wanted)?
    };
    let text = if args.json {
        report.json() + "\n"
    } else if terminal::has_colours() {
        paint::check(&report.text(), &args.target, report.answer())
    } else {
        report.text()
    };
    terminal::print(&text)?;
    Ok(report.answer().into())
}

/// A folder of the cgroup file system means the processes in it.
fn is_cgroup(path: &Path) -> bool {
    path.join("cgroup.procs").is_file()
}

/// What was named on the command line.
pub(in crate::commands) fn wanted(name: &str) -> Result<Wanted, Failure> {
    if name.contains('/') {
        let file = std::path::absolute(name)?;
        let known = file.file_name().and_then(|name| Allocator::from_file_name(name.to_str()?));
        return Ok(Wanted { name: name.to_owned(), allocator: known, file: Some(file) });
    }
    let known =
        Allocator::from_choice(name).ok_or_else(|| unknown_allocator(name, ", or the path of a shared object"))?;
    Ok(Wanted { name: known.to_string(), allocator: Some(known), file: None })
}

fn of_processes(args: &Args, wanted: Option<Wanted>) -> Result<Report, Failure> {
    let resolved = target::resolve(&args.target).map_err(|error| {
        let looks_like_a_file = args.target.contains(['/', '.']);
        if looks_like_a_file && !Path::new(&args.target).exists() {
            return Failure::usage(format!("{}: no such file", args.target)).remedy(format!("{FILES}, or a process"));
        }
        error.into()
    })?;
    let pids = target::processes(&resolved, !args.no_children);
    let target = args.target.clone();
    unless_stuck(ANSWERS_WITHIN, move || processes::check(&target, &pids, wanted)).ok_or_else(|| {
        let limit = ANSWERS_WITHIN.as_secs();
        let what = format!("a page or a file of {} did not answer within {limit} s", args.target);
        Failure::new(Exit::NotEnoughEvidence, what)
    })
}

fn of_file(args: &Args, path: &Path, wanted: Option<&Wanted>) -> Result<Report, Failure> {
    let unusable = |why: &dyn std::fmt::Display| {
        Failure::at(Exit::Usage, path, why)
            .remedy("to check a running program, name its process or use `ebb run --verify`")
    };
    let text = text_of(path)?;
    if let Some(kind) = declared::kind(path, &text) {
        let services = match kind {
            declared::Kind::Unit => files::unit(path, &text, &files::drop_ins(path)?).map(|it| vec![it]),
            kind => declared::services(kind, path, &text),
        };
        let services = services.map_err(|why| unusable(&why))?;
        let called = |service: &declared::Service| args.service.iter().any(|it| service.is_called(it));
        if let Some(name) = args.service.iter().find(|name| !services.iter().any(|it| it.is_called(name))) {
            return Err(unusable(&format!("there is no service {name}")));
        }
        let chosen = (!args.service.is_empty()).then_some(&called as &dyn Fn(&declared::Service) -> bool);
        return Ok(files::of_services(&args.target, kind, &services, chosen, wanted, None));
    }
    let stages = Stages::parse(&text).map_err(|error| unusable(&error))?;
    let context = files::BuildContext::of(path);
    let stage = args.stage.as_deref();
    files::of_dockerfile(&args.target, &stages, stage, &context, wanted).ok_or_else(|| {
        let what = format!("{} has no stage {}", path.display(), stage.unwrap_or_default());
        Failure::usage(what).remedy(stages.names())
    })
}

fn text_of(path: &Path) -> Result<String, Failure> {
    let bytes = fs::read(path).map_err(|error| {
        let exit = match error.kind() {
            std::io::ErrorKind::PermissionDenied => Exit::Permission,
            _ => Exit::Usage,
        };
        Failure::at(exit, path, error)
    })?;
    let wrong = |what: &str, remedy: &str| Err(Failure::usage(format!("{} {what}", path.display())).remedy(remedy));
    if bytes.starts_with(b"\x7fELF") {
        return wrong(
            "is a program or library, not a file that starts a service",
            "check its process (`ebb check PID`), or start it with `ebb run --verify`",
        );
    }
    match String::from_utf8(bytes) {
        Ok(text) if text.trim().is_empty() => wrong("is empty", FILES),
        Ok(text) => Ok(text),
        Err(_) => wrong("is not text", FILES),
    }
}

/// What can be checked.
const FILES: &str = "name a Dockerfile, a compose file, a Kubernetes manifest, a systemd unit, a Procfile, supervisor's configuration or \
     an entrypoint script";
