//! `ebb fix`: shows the smallest change that puts an allocator in charge, each line with its reason, has it
//! checked as `ebb check` does, and writes it if asked. Nothing is written that the check finds
//! useless.

use crate::exit::{Exit, Failure};
use crate::terminal;
use ebb_deploy::check::Report as Check;
use ebb_deploy::fix::edit;
use ebb_deploy::fix::report::{Action, File, Report};

mod arguments;
mod change;
mod choose;
mod huge_pages;
mod policy;
mod propose;
mod rust;
mod undo;
mod write;

pub use arguments::Args;
use change::{Change, Proposal, read};

/// Does it, prints, and tells by its exit code.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    if let Some(engine) = args.policy {
        return policy::execute(args, engine);
    }
    let name = args.file().display().to_string();
    if args.undo {
        let (files, notes) = undo::undo(args.file())?;
        let mut report = Report::new(&name, "undo", Action::Undone, "asked for".to_owned());
        report.files = files;
        report.notes = notes;
        return finish(args, &report, Exit::Ok);
    }
    let desired = match choose::desired(args)? {
        choose::Chosen::Change(desired) => desired,
        choose::Chosen::Nothing(sentence) => {
            let mut report = Report::new(&name, "none", Action::Nothing, sentence.clone());
            report.notes.push(format!("the trial recommends no change: {sentence}"));
            return finish(args, &report, Exit::Ok);
        }
    };
    let text = read(args.file())?;
    let proposal = propose::propose(args, &text, &desired)?;
    let mut report = Report::new(&name, proposal.kind, Action::Nothing, desired.why.clone());
    report.allocator = Some(desired.allocator.to_string());
    report.files = proposal.changes.iter().filter(|it| it.is_change()).map(shown).collect();
    report.notes.clone_from(&proposal.notes);
    report.notes.extend(huge_pages::note(&desired, args.file(), &text));
    report.check.clone_from(&proposal.check);
    report.files.extend(proposal.library.as_deref().map(File::library));
    if report.files.is_empty() {
        return match failed(&proposal.check) {
            Some(exit) => finish(args, &report, exit),
            // Lines that the user has to add.
            None if proposal.kind == "python" && !proposal.notes.is_empty() => {
                report.action = Action::WouldChange;
                finish(args, &report, Exit::WouldChange)
            }
            None => {
                report.notes.push(format!("nothing to change: {name} puts {} in charge", desired.allocator));
                finish(args, &report, Exit::Ok)
            }
        };
    }
    report.action = Action::WouldChange;
    if let Some(exit) = failed(&proposal.check) {
        report.notes.push("this change alone would not put it in charge, so nothing was written".to_owned());
        return finish(args, &report, exit);
    }
    if !args.write {
        report.notes.push("nothing was written; use --write to write it".to_owned());
        return finish(args, &report, Exit::WouldChange);
    }
    write_all(args, &proposal)?;
    report.action = Action::Written;
    report.notes.push(format!("written; ebb fix --undo {name} undoes it"));
    finish(args, &report, Exit::Ok)
}

/// How `ebb check` would end on the result, where that is not well.
fn failed(check: &Option<Check>) -> Option<Exit> {
    check.as_ref().map(|it| Exit::from(it.answer())).filter(|exit| *exit == Exit::NotInCharge)
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
    undo::write(args.file(), &proposal.changes, library.as_ref())
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
