//! `ebb snap`: one look at a process in a file, for `ebb diff` and for an issue tracker. Counts only.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::arguments;
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
    #[command(flatten)]
    target: arguments::Target,

    /// Output file [default: stdout]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs the command.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    let target = args.target.name();
    let resolved = target::resolve_in_one_cgroup(&target)?;
    let snapshot = Observer::default().look(&resolved, !args.target.no_children, Depth::Objects);
    if snapshot.processes.is_empty() {
        return Err(Failure::ended(&target));
    }
    match &args.output {
        Some(path) => write(path, &(serde_json::to_string_pretty(&snapshot)? + "\n"), None)?,
        None => terminal::print_json(&snapshot, true)?,
    }
    Ok(Exit::Ok)
}

/// Writes a file whole or not at all: readers see the old one or the new one, never a part. `mode` is what others may do
/// with it; without it the user's mask says that.
pub(super) fn write(path: &Path, text: &str, mode: Option<u32>) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        let what = format!("{} was not written: {error}", path.display());
        Failure::new(Exit::NotWritten, what)
    };
    // A link keeps its place; a device or a pipe takes what is written to it.
    let path_of = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if std::fs::metadata(&path_of).is_ok_and(|it| !it.is_file()) {
        return std::fs::write(&path_of, text).map_err(failed);
    }
    let replace = || {
        let folder = path_of.parent().filter(|folder| !folder.as_os_str().is_empty());
        let permissions = Permissions::from_mode(mode.unwrap_or(0o666));
        let mut file = tempfile::Builder::new()
            .prefix(".ebb-")
            .permissions(permissions.clone())
            .tempfile_in(folder.unwrap_or(Path::new(".")))?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_data()?;
        if mode.is_some() {
            file.as_file().set_permissions(permissions)?;
        }
        file.persist(&path_of)?;
        Ok(())
    };
    replace().map_err(failed)
}

/// Reads what [`execute`] wrote.
pub fn read(path: &Path) -> Result<Snapshot, Failure> {
    let text =
        std::fs::read_to_string(path).map_err(|error| Failure::at(Exit::Usage, path, error))?;
    serde_json::from_str(&text).map_err(|error| {
        Failure::at(Exit::Usage, path, error).remedy("it must be a file of `ebb snap`")
    })
}
