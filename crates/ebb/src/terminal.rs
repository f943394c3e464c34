//! The terminal: what `ebb` writes to stdout and stderr, in which colours and how wide.
//!
//! Data goes to stdout, everything else to stderr. Nothing panics because a reader went away: the runtime
//! ignores SIGPIPE, so a write fails with an error that ends the program quietly.

use std::borrow::Cow;
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
    out.write_all(plain(text).as_bytes()).and_then(|()| out.flush()).map_err(not_written)
}

fn not_written(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => error.into(),
        _ => Failure::new(Exit::NotWritten, format!("stdout was not written: {error}")),
    }
}

/// Control sequences that are written as they are: the colours of `paint`, and the line end of a file from
/// Windows, which a patch keeps.
const KEPT: [&str; 5] = ["\u{1b}[0m", "\u{1b}[31m", "\u{1b}[32m", "\u{1b}[33m", "\r\n"];

/// Without what a terminal would obey: a process and a file may have any name.
pub fn plain(text: &str) -> Cow<'_, str> {
    let obeyed = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(obeyed) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(obeyed) {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        if let Some(kept) = KEPT.iter().find(|kept| after.starts_with(**kept)) {
            out.push_str(kept);
            rest = &after[kept.len()..];
        } else {
            out.push('\u{fffd}');
            let mut chars = after.chars();
            chars.next();
            rest = chars.as_str();
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Writes a value as JSON to stdout while it is made: one line, or indented.
pub fn print_json(value: &(impl Serialize + ?Sized), indented: bool) -> Result<(), Failure> {
    let mut out = Plain(io::BufWriter::new(io::stdout().lock()));
    let made = match indented {
        true => serde_json::to_writer_pretty(&mut out, value),
        false => serde_json::to_writer(&mut out, value),
    };
    let written = made.map_err(|error| if error.is_io() { not_written(error.into()) } else { error.into() });
    written.and_then(|()| out.write_all(b"\n").and_then(|()| out.flush()).map_err(not_written))
}

/// Writes texts without what a terminal would obey; each write is a whole text.
struct Plain<W>(W);

impl<W: Write> Write for Plain<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_all(plain(&String::from_utf8_lossy(bytes)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Writes one line for the user to stderr. Where stderr is closed, the line is lost.
pub fn warn(line: &str) {
    let _ = writeln!(io::stderr().lock(), "ebb: {}", plain(line));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_obeys_no_name() {
        assert_eq!(plain("a\u{1b}]0;b\u{7}\rc\r\n\td\u{9b}1m"), "a\u{fffd}]0;b\u{fffd}\u{fffd}c\r\n\td\u{fffd}1m");
        let painted = "\u{1b}[31mBad:\u{1b}[0m a\u{1b}[5mb";
        assert_eq!(plain(painted), "\u{1b}[31mBad:\u{1b}[0m a\u{fffd}[5mb");
    }
}
