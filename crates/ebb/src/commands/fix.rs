//! `ebb fix`: shows the smallest change that puts an allocator in charge, each line with its reason, has it
//! checked as `ebb check` does, and writes it if asked. Nothing is written that the check finds
//! useless.

use std::fs;
use std::path::{Path, PathBuf};

use crate::exit::{Exit, Failure};
use crate::terminal;
use ebb_deploy::check::Report as Check;
use ebb_deploy::fix::edit;
use ebb_deploy::fix::report::{Action, File, Report};

mod choose;
mod propose;
mod rust;
mod undo;
mod write;

use propose::{Change, Proposal};

/// The arguments of `ebb fix`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ebb fix Dockerfile                            show the change\n  \
                  ebb fix --write Dockerfile                    write it; ebb fix --undo Dockerfile takes it back\n  \
                  ebb fix --from results/results.json Dockerfile\n  \
                  ebb fix -a jemalloc compose.yaml --service web"
)]
pub struct Args {
    /// A Dockerfile, a compose file, a Kubernetes manifest, a systemd service, a Procfile, supervisor's configuration,
    /// an entrypoint script, or a Cargo.toml
    file: PathBuf,

    /// ebbmalloc, jemalloc, mimalloc, tcmalloc, or glibc (no preload) [default: ebbmalloc]
    #[arg(long, short, value_name = "NAME", conflicts_with = "from")]
    allocator: Option<String>,

    /// The results.json of a trial: takes the allocator and the settings that it recommends, or none
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,

    /// Settings of the allocator, in its own words
    #[arg(long, value_name = "KEY:VALUE,...", conflicts_with = "from")]
    conf: Vec<String>,

    /// A variable for the service
    #[arg(long, value_name = "KEY=VALUE", value_parser = super::run::parse_variable)]
    env: Vec<(String, String)>,

    /// Write it; without this it is only shown
    #[arg(long)]
    write: bool,

    /// Take back what the last `ebb fix --write` wrote
    #[arg(long, conflicts_with_all = ["write", "allocator", "from", "conf", "env"])]
    undo: bool,

    /// The service of a compose file, the container of a manifest, the process type of a Procfile, the program
    /// of supervisor's configuration or of a Rust package; may be given more than once
    #[arg(long, value_name = "NAME")]
    service: Vec<String>,

    /// The stage of a Dockerfile to build [default: the last one]
    #[arg(long, value_name = "NAME")]
    stage: Option<String>,

    /// Where the allocator's library is when the service runs [default: /usr/local/lib/libebbmalloc.so for
    /// ebbmalloc, the library's name for the others, which the loader looks up]
    #[arg(long, value_name = "PATH")]
    library: Option<String>,

    /// For a manifest: an image that has /usr/local/lib/libebbmalloc.so, which an init container copies
    #[arg(long, value_name = "IMAGE")]
    library_image: Option<String>,

    /// For a Cargo.toml: the path of the crate ebbmalloc [default: that of the checkout that ebb was built in]
    #[arg(long, value_name = "PATH")]
    crate_path: Option<String>,

    /// One line of JSON
    #[arg(long)]
    json: bool,
}

/// Does it, prints, and tells by its exit code.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    let name = args.file.display().to_string();
    if args.undo {
        let (files, notes) = undo::undo(&args.file)?;
        let mut report = Report::new(&name, "undo", Action::Undone, "asked for".to_owned());
        report.files = files;
        report.notes = notes;
        return finish(args, &report, Exit::Ok);
    }
    let wish = match choose::wish(args)? {
        choose::Chosen::Wish(wish) => wish,
        choose::Chosen::Nothing(sentence) => {
            let mut report = Report::new(&name, "none", Action::Nothing, sentence.clone());
            report
                .notes
                .push(format!("nothing to change, says the trial: {sentence}"));
            return finish(args, &report, Exit::Ok);
        }
    };
    let text = read(&args.file)?;
    let proposal = propose::propose(args, &text, &wish)?;
    let mut report = Report::new(&name, proposal.kind, Action::Nothing, wish.why.clone());
    report.allocator = Some(wish.allocator.name.to_owned());
    report.files = proposal
        .changes
        .iter()
        .filter(|it| it.is_change())
        .map(shown)
        .collect();
    report.notes.clone_from(&proposal.notes);
    report.check.clone_from(&proposal.check);
    report
        .files
        .extend(proposal.library.as_deref().map(File::library));
    if report.files.is_empty() {
        return match failed(&proposal.check) {
            Some(exit) => finish(args, &report, exit),
            None => {
                report.notes.push(format!(
                    "nothing to change: {name} puts {} in charge",
                    wish.allocator.name
                ));
                finish(args, &report, Exit::Ok)
            }
        };
    }
    report.action = Action::WouldChange;
    if let Some(exit) = failed(&proposal.check) {
        report
            .notes
            .push("this alone would not put it in charge, so nothing is written".to_owned());
        return finish(args, &report, exit);
    }
    if !args.write {
        report
            .notes
            .push("nothing is written; --write does it".to_owned());
        return finish(args, &report, Exit::WouldChange);
    }
    write_all(args, &proposal)?;
    report.action = Action::Written;
    report
        .notes
        .push(format!("written; ebb fix --undo {name} takes it back"));
    finish(args, &report, Exit::Ok)
}

/// How `ebb check` would end on the result, where that is not well.
fn failed(check: &Option<Check>) -> Option<Exit> {
    check
        .as_ref()
        .map(|it| Exit::from(it.answer()))
        .filter(|exit| *exit == Exit::NotInCharge)
}

/// A text that is worth a look: files that start services are short.
fn read(path: &Path) -> Result<String, Failure> {
    const MOST_BYTES: u64 = 1 << 20;
    let unusable = |why: String| Failure::new(Exit::Usage, format!("{}: {why}", path.display()));
    let meta = fs::metadata(path).map_err(|error| unusable(error.to_string()))?;
    if !meta.is_file() {
        return Err(
            unusable("it is no file".to_owned()).remedy("name the file that starts the service")
        );
    }
    if meta.len() > MOST_BYTES {
        return Err(unusable(format!(
            "it has {} bytes, more than such files have",
            meta.len()
        ))
        .remedy("left alone"));
    }
    let text = fs::read_to_string(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            Failure::new(Exit::Permission, format!("{}: {error}", path.display()))
        }
        std::io::ErrorKind::InvalidData => {
            unusable("it is not a text".to_owned()).remedy("left alone")
        }
        _ => unusable(error.to_string()).remedy("left alone"),
    })?;
    if text.trim().is_empty() {
        return Err(unusable("it is empty".to_owned()).remedy("left alone"));
    }
    Ok(text)
}

fn shown(change: &Change) -> File {
    let after = change.after();
    File {
        path: change.name.clone(),
        created: change.before.is_none(),
        diff: edit::diff(&change.name, change.before.as_deref(), &after),
        lines: edit::lines(change.before.as_deref().unwrap_or_default(), &change.edits),
    }
}

fn write_all(args: &Args, proposal: &Proposal) -> Result<(), Failure> {
    let library = match &proposal.library {
        Some(to) => Some((propose::own_library()?, to.clone())),
        None => None,
    };
    undo::write(&args.file, &proposal.changes, library.as_ref())
}

/// Data to stdout, everything else to stderr.
fn finish(args: &Args, report: &Report, exit: Exit) -> Result<Exit, Failure> {
    if args.json {
        terminal::print(&(report.json() + "\n"))?;
        return Ok(exit);
    }
    terminal::print(&report.text())?;
    for note in &report.notes {
        terminal::warn(note);
    }
    if let Some(check) = &report.check {
        for line in check.text().lines().filter(|it| !it.is_empty()) {
            terminal::warn(&format!("check: {line}"));
        }
    }
    Ok(exit)
}
