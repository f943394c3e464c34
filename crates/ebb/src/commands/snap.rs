//! `ebb snap`: one look at a process in a file, for `ebb diff` and for an issue tracker. Counts only.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::exit::{Exit, Failure};
use crate::look::Observer;
use crate::terminal;
use ebb_process::look::Depth;
use ebb_process::snapshot::Snapshot;
use ebb_process::target;

const EXAMPLES: &str = "Example:
  ebb snap 4711 -o before.json  then later: ebb snap 4711 -o after.json; ebb diff before.json after.json";

/// The arguments of `ebb snap`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A pid, a process name, a unit, a container's id, or the path of a cgroup
    #[arg(value_name = "TARGET", required_unless_present = "pid", conflicts_with = "pid")]
    target: Option<String>,

    /// The target's pid
    #[arg(short, long, value_name = "PID")]
    pid: Option<u32>,

    /// Only the process itself, without its descendants
    #[arg(long)]
    no_children: bool,

    /// Output file [default: stdout]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs the command.
pub fn execute(args: &Args) -> Result<ExitCode, Failure> {
    let target = target(args.target.as_ref(), args.pid);
    let resolved = target::resolve_in_one_cgroup(&target)?;
    let snapshot = Observer::default().look(&resolved, !args.no_children, Depth::Objects);
    if snapshot.processes.is_empty() {
        return Err(Failure::new(
            Exit::NotEnoughEvidence,
            format!("{target} ended before it was read"),
        ));
    }
    let text = serde_json::to_string_pretty(&snapshot)
        .map_err(|error| Failure::new(Exit::Internal, error.to_string()))?
        + "\n";
    match &args.output {
        Some(path) => write(path, &text, None)?,
        None => terminal::print(&text)?,
    }
    Ok(Exit::Ok.into())
}

/// The target, which clap has made sure is one of both.
pub(super) fn target(named: Option<&String>, pid: Option<u32>) -> String {
    match (named, pid) {
        (Some(named), _) => named.clone(),
        (None, Some(pid)) => pid.to_string(),
        (None, None) => String::new(),
    }
}

/// Writes a file whole or not at all: readers see the old one or the new one, never a part. `mode` is what others may do
/// with it; without it the user's mask says that.
pub(super) fn write(path: &Path, text: &str, mode: Option<u32>) -> Result<(), Failure> {
    let failed = |error: &std::io::Error| {
        Failure::new(Exit::NotWritten, format!("{} was not written: {error}", path.display()))
    };
    // A link keeps its place; a device or a pipe takes what is written to it.
    let path_of = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if std::fs::metadata(&path_of).is_ok_and(|it| !it.is_file()) {
        return std::fs::write(&path_of, text).map_err(|error| failed(&error));
    }
    let folder = match path_of.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let permissions = Permissions::from_mode(mode.unwrap_or(0o666));
    let mut file = tempfile::Builder::new()
        .prefix(".ebb-")
        .permissions(permissions.clone())
        .tempfile_in(folder)
        .map_err(|error| failed(&error))?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.as_file().sync_data())
        .map_err(|error| failed(&error))?;
    if mode.is_some() {
        let file = file.as_file();
        file.set_permissions(permissions).map_err(|error| failed(&error))?;
    }
    file.persist(&path_of).map_err(|error| failed(&error.error))?;
    Ok(())
}

/// Reads what [`execute`] wrote.
pub fn read(path: &Path) -> Result<Snapshot, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| at(path, &error))?;
    serde_json::from_str(&text)
        .map_err(|error| at(path, &error).remedy("it must be a file of `ebb snap`"))
}

fn at(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Exit::Usage, format!("{}: {error}", path.display()))
}
