//! The terminal: what `ebb` writes to stdout and stderr, in which colours and how wide.
//!
//! Data goes to stdout, everything else to stderr. Nothing panics because a reader went away: the runtime
//! ignores SIGPIPE, so a write fails with an error that ends the program quietly.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anstream::{AutoStream, ColorChoice};
use serde::Serialize;

use crate::exit::{Exit, Failure};

/// A line is broken here where stdout is no terminal, and nowhere before.
const LEAST_COLUMNS: usize = 80;
/// Longer lines are harder to read, not easier.
const MOST_COLUMNS: usize = 100;

/// Writes to stdout; a reader that went away is [`Exit::BrokenPipe`], a full disk [`Exit::NotWritten`].
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => error.into(),
        _ => Failure::new(Exit::NotWritten, format!("stdout was not written: {error}")),
    })
}

/// Writes a value as JSON to stdout: one line, or indented.
pub fn print_json(value: &(impl Serialize + ?Sized), indented: bool) -> Result<(), Failure> {
    let text =
        if indented { serde_json::to_string_pretty(value)? } else { serde_json::to_string(value)? };
    print(&(text + "\n"))
}

/// Writes one line for the user to stderr. Where stderr is closed, the line is lost.
pub fn warn(line: &str) {
    let _ = writeln!(io::stderr().lock(), "ebb: {line}");
}

/// Says where the library at `path` is from, if it is the one that `ebb` carries.
pub fn note_carried(path: &Path) {
    if let Some(placed) = ebb_process::carried::placed_at(path) {
        warn(&format!("note: ebbmalloc is the one that ebb carries: {placed}"));
    }
}

/// Whether stdout takes colours: on a terminal, unless `NO_COLOR` is set or TERM is `dumb`; elsewhere with
/// `CLICOLOR_FORCE`. clap's help follows the same rule.
pub fn has_colours() -> bool {
    AutoStream::choice(&io::stdout()) != ColorChoice::Never
}

/// Columns of a text on stdout: the terminal's within reason; 80 where stdout is no terminal.
pub fn columns() -> usize {
    if !io::stdout().is_terminal() {
        return LEAST_COLUMNS;
    }
    let width = comfy_table::Table::new().width().map_or(0, usize::from);
    width.clamp(LEAST_COLUMNS, MOST_COLUMNS)
}
