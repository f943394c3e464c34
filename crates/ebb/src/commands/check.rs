//! `ebb check`: is the allocator that somebody believes in really in charge? Gathers the facts about
//! running processes, an unpacked root file system or a Dockerfile, and has them judged.

use std::fs;
use std::path::{Path, PathBuf};

use crate::allocators;
use crate::check::dockerfile::{self, Stages};
use crate::check::process::Wanted;
use crate::check::report::{Report, Subject};
use crate::check::{Finding, Id};
use crate::cli;
use crate::exit::{Exit, Failure};
use crate::proc::target;

mod entry;
mod processes;
mod root;

/// The arguments of `ebb check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A process (number, name, cgroup, unit, container), a Dockerfile, or the folder of an unpacked root
    /// file system
    #[arg(value_name = "TARGET|DOCKERFILE|ROOT")]
    target: String,

    /// The allocator that should be in charge: ebbmalloc, jemalloc, mimalloc, tcmalloc, glibc, or the path of
    /// a library [default: the one that the environment asks for]
    #[arg(long, short, value_name = "NAME|PATH")]
    allocator: Option<String>,

    /// Only the process itself, without its descendants
    #[arg(long)]
    no_children: bool,

    /// In a root file system: the program that has to run on the allocator, as it is called inside; may be
    /// given more than once [default: every program, and what cannot is a note]
    #[arg(long, value_name = "PATH")]
    program: Vec<PathBuf>,

    /// In a Dockerfile: the stage to build [default: the last one]
    #[arg(long, value_name = "NAME")]
    stage: Option<String>,

    /// In a root file system: the page size of the kernel it will run on [default: this machine's, for
    /// programs of this machine's architecture]
    #[arg(long, value_name = "BYTES")]
    page_size: Option<u64>,

    /// One line of JSON
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
        root::check(args, wanted)?
    } else if path.is_file() {
        of_dockerfile(args, path, wanted)?
    } else {
        of_processes(args, wanted)?
    };
    let text = if args.json {
        report.json() + "\n"
    } else {
        report.text()
    };
    cli::print(&text)?;
    Ok(report.exit())
}

/// A folder of the cgroup file system means the processes in it.
fn is_cgroup(path: &Path) -> bool {
    path.join("cgroup.procs").is_file()
}

/// What was named on the command line.
fn wanted(name: &str) -> Result<Wanted, Failure> {
    if name.contains('/') {
        let file = std::path::absolute(name)?;
        let known = file
            .file_name()
            .and_then(|name| allocators::by_file_name(name.to_str()?));
        return Ok(Wanted {
            name: name.to_owned(),
            allocator: known.map(|it| it.name),
            file: Some(file),
        });
    }
    let Some(known) = allocators::by_name(name) else {
        let known: Vec<&str> = allocators::KNOWN.iter().map(|it| it.name).collect();
        return Err(Failure::new(
            Exit::Usage,
            format!(
                "allocator \"{name}\" is not known; known are {}, or the path of a shared object",
                known.join(", ")
            ),
        ));
    };
    Ok(Wanted {
        name: known.name.to_owned(),
        allocator: Some(known.name),
        file: None,
    })
}

fn of_processes(args: &Args, wanted: Option<Wanted>) -> Result<Report, Failure> {
    let resolved = target::resolve(&args.target)
        .map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
    let pids = target::processes(&resolved, !args.no_children);
    Ok(processes::check(&args.target, &pids, wanted))
}

/// Whether what an image asks for, a known name or a path, is what is wanted.
fn is_same(wanted: &Wanted, asked: &str) -> bool {
    let name = |path: &Path| path.file_name().map(std::ffi::OsStr::to_owned);
    wanted.allocator == Some(asked)
        || wanted
            .file
            .as_deref()
            .is_some_and(|file| name(file) == name(Path::new(asked)))
}

fn of_dockerfile(args: &Args, path: &Path, wanted: Option<Wanted>) -> Result<Report, Failure> {
    let unusable = |why: &dyn std::fmt::Display| {
        Failure::new(Exit::Usage, format!("{}: {why}", path.display()))
            .remedy("a running program is checked by its process, or by `ebb run --verify`")
    };
    let text = fs::read_to_string(path).map_err(|error| unusable(&error))?;
    let stages = Stages::parse(&text).map_err(|error| unusable(&error))?;
    let folder = path.parent().unwrap_or(Path::new("")).to_owned();
    // Files of the build context lie below the Dockerfile; `..` leads out of it, as for the builder.
    let context = |name: &str| {
        let inside = !name.split('/').any(|part| part == "..");
        let file = folder.join(name.trim_start_matches('/'));
        (inside && file.is_file()).then(|| fs::read_to_string(file).ok())?
    };
    let mut judged = dockerfile::judge(&args.target, &stages, args.stage.as_deref(), &context)
        .ok_or_else(|| unusable(&"there is no such stage"))?;
    if let Some(wanted) = wanted {
        let asked = judged.allocator.as_deref();
        match asked {
            // The system's own is there by itself.
            None if wanted.allocator == Some(allocators::SYSTEM) => judged.findings.clear(),
            Some(asked) if !is_same(&wanted, asked) => judged.findings.push(
                Finding::new(
                    Id::OtherFirst,
                    format!("the image asks for {asked}, not for {}", wanted.name),
                )
                .in_file(&args.target),
            ),
            _ => {}
        }
        judged.allocator = Some(wanted.name);
    }
    Ok(Report::new(
        &args.target,
        Subject::Dockerfile,
        judged.allocator,
        Vec::new(),
        judged.findings,
    ))
}
