//! `ebb snap`: one look at a process in a file, or a record every minute in a folder, for `ebb diff` and for an issue
//! tracker. Counts only.

mod record;

use std::path::{Path, PathBuf};

use crate::arguments;
use crate::commands::life;
use crate::exit::{Exit, Failure};
use crate::terminal;
use ebb_node::look::Observer;
use ebb_process::look::Depth;
use ebb_process::snapshot::Snapshot;
use ebb_process::target::Resolved;
use ebb_process::{target, whole_file};

const EXAMPLES: &str = "Examples:
  ebb snap 4711 -o before.json       then later: ebb snap 4711 -o after.json; ebb diff before.json after.json
  ebb snap gunicorn --to recording   a record every minute, until Ctrl-C; then ebb diff recording --after 14:00
  ebb snap 4711 --label imported -o life.json   then later with other labels; ebb diff life.json";

/// A longer label makes a table unreadable.
const MOST_LETTERS: usize = 40;

/// The arguments of `ebb snap`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    target: arguments::Target,

    /// Output file [default: stdout]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Mark this point of the program's life, such as imported, connected or idle, and append it to the file
    #[arg(long, value_name = "NAME", requires = "output", value_parser = label)]
    label: Option<String>,

    #[command(flatten)]
    record: record::Args,
}

impl Args {
    /// Whether it ends after one look.
    pub fn looks_once(&self) -> bool {
        self.record.folder().is_none()
    }
}

/// A label is a row's name.
fn label(text: &str) -> Result<String, String> {
    let length = text.chars().count();
    if text.trim().is_empty() || length > MOST_LETTERS || text.contains(char::is_control) {
        return Err(format!("write 1 to {MOST_LETTERS} letters on one line"));
    }
    Ok(text.to_owned())
}

/// Runs the command.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    let target = args.target.name();
    if let Some(folder) = args.record.folder() {
        return args.record.record(&target, !args.target.no_children, folder);
    }
    let resolved = target::resolve_in_one_cgroup(&target)?;
    let mut snapshot = Observer::default().look(&resolved, !args.target.no_children, Depth::Objects);
    if snapshot.processes.is_empty() {
        return Err(Failure::ended(&target));
    }
    snapshot.label.clone_from(&args.label);
    match &args.output {
        Some(path) if args.label.is_some() => write(path, &life::with(path, &snapshot)?, None)?,
        Some(path) => write(path, &(serde_json::to_string_pretty(&snapshot)? + "\n"), None)?,
        None => terminal::print_json(&snapshot, true)?,
    }
    Ok(Exit::Ok)
}

/// Writes one look to a file in this folder that has a new name, with the process's name and the time in it.
pub(super) fn take_into_new_file(resolved: &Resolved, observer: &Observer) -> Result<PathBuf, Failure> {
    let snapshot = observer.look(resolved, false, Depth::Objects);
    let Some(first) = snapshot.processes.first() else {
        return Err(Failure::ended(&resolved.target.asked));
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name: String = first.name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    let time = snapshot.taken.replace([':', '-'], "");
    let path = PathBuf::from(format!("ebb-{name}-{}-{time}.json", first.pid));
    write(&path, &(serde_json::to_string_pretty(&snapshot)? + "\n"), None)?;
    Ok(path)
}

/// Writes a file whole or not at all: readers see the old one or the new one, never a part. `mode` is what others may do
/// with it; without it the user's mask says that.
pub(super) fn write(path: &Path, text: &str, mode: Option<u32>) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        let what = format!("{} was not written: {error}", path.display());
        Failure::new(Exit::NotWritten, what)
    };
    whole_file::write(path, text.as_bytes(), mode).map_err(failed)
}

/// Reads what [`execute`] wrote.
pub fn read(path: &Path) -> Result<Snapshot, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::at(Exit::Usage, path, error))?;
    Snapshot::from_json(&text)
        .map_err(|error| Failure::at(Exit::Usage, path, error).remedy("it must be a file of `ebb snap`"))
}
