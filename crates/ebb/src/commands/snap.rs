//! `ebb snap`: one look at a process in a file, for `ebb diff` and for an issue tracker. Counts only.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::cli;
use crate::commands::why::{Depth, Observer, find};
use crate::exit::{Exit, Failure};
use crate::facts::snapshot::Snapshot;

/// The arguments of `ebb snap`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A pid, a process name, a unit, a container's id, or the path of a cgroup
    #[arg(value_name = "TARGET")]
    target: String,

    /// Only the process itself, without its descendants
    #[arg(long)]
    no_children: bool,

    /// Where to write it; stdout without this
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs the command.
pub fn execute(args: &Args) -> Result<ExitCode, Failure> {
    let found = find(std::slice::from_ref(&args.target))?;
    let resolved = found
        .first()
        .ok_or_else(|| Failure::new(Exit::Usage, "no target"))?;
    let snapshot = Observer::default().look(resolved, !args.no_children, Depth::Objects);
    if snapshot.processes.is_empty() {
        return Err(Failure::new(
            Exit::NotEnoughEvidence,
            format!("{} ended before it was read", args.target),
        ));
    }
    let text = serde_json::to_string_pretty(&snapshot)
        .map_err(|error| Failure::new(Exit::Internal, error.to_string()))?
        + "\n";
    match &args.output {
        Some(path) => std::fs::write(path, text).map_err(|error| at(path, &error))?,
        None => cli::print(&text)?,
    }
    Ok(Exit::Ok.into())
}

/// Reads what [`execute`] wrote.
pub fn read(path: &Path) -> Result<Snapshot, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| at(path, &error))?;
    serde_json::from_str(&text)
        .map_err(|error| at(path, &error).remedy("it must be a file of ebb snap"))
}

fn at(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Exit::Usage, format!("{}: {error}", path.display()))
}
