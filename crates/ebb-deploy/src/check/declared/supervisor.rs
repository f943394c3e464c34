//! supervisor's configuration: the programs that supervisord starts, and their `environment`. Pure.
//!
//! Read as Python's `configparser` reads it with supervisor's options: a line that is indented further goes on with
//! the option above, ` ;` and ` #` begin a comment even inside quotes, the last of two options or sections of one name
//! wins, `%` is a sign of expansions. No library for INI files (rust-ini, configparser) knows these rules and keeps the
//! places.

use std::ops::Range;

use super::service::{Service, Variable};
use crate::check::start::{Start, words};

mod environment;

pub use environment::{Environment, Pair, quoted};

/// A section `[program:NAME]` or `[fcgi-program:NAME]`.
#[derive(Clone, Debug)]
pub struct Program {
    /// As every service is seen; the variables of `[supervisord]` come first.
    pub service: Service,
    /// The `environment` of the section itself.
    pub own: Option<Environment>,
    /// A place in the last line of the section.
    pub last: usize,
    /// What an option of the section begins with: the indentation.
    pub indent: String,
    /// How its options are written: `=` or ` = `.
    pub delimiter: &'static str,
}

/// A section, with the options of all sections of that name.
#[derive(Debug)]
struct Section {
    header: String,
    line: usize,
    last: usize,
    indent: String,
    options: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    /// In lower case, as supervisor compares them.
    key: String,
    line: usize,
    /// Right after the delimiter.
    start: usize,
    is_spaced: bool,
    /// Of each line, without comments and the space around.
    pieces: Vec<Range<usize>>,
}

impl Section {
    fn option(&self, key: &str) -> Option<&Entry> {
        self.options.iter().rev().find(|it| it.key == key)
    }

    fn environment(&self, text: &str) -> Result<Option<Environment>, String> {
        let Some(entry) = self.option("environment") else {
            return Ok(None);
        };
        let read = Environment::parse(text, entry.start, &entry.pieces);
        read.map(Some).map_err(|why| format!("line {}: environment: {why}", entry.line))
    }
}

/// Whether a text has a section that only supervisor's files have.
pub fn is_like(text: &str) -> bool {
    const SECTIONS: [&str; 3] = ["[supervisord]", "[program:", "[fcgi-program:"];
    let mut lines = text.lines().map(str::trim_start);
    lines.any(|line| SECTIONS.iter().any(|it| line.starts_with(it)))
}

/// The programs, in order.
pub fn programs(text: &str) -> Result<Vec<Program>, String> {
    let sections = sections(text)?;
    let named = |name: &str| sections.iter().find(|it| it.header == name);
    if let Some(entry) = named("DEFAULT").and_then(|it| it.option("environment")) {
        return Err(format!(
            "line {}: environment in [DEFAULT] cannot be parsed: write it into the sections",
            entry.line
        ));
    }
    let shared = named("supervisord").map(|it| it.environment(text)).transpose()?.flatten();
    let mut found = Vec::new();
    for section in &sections {
        let Some((kind, name)) = section.header.split_once(':') else {
            continue;
        };
        if matches!(kind, "program" | "fcgi-program") {
            found.push(program(text, section, name.trim(), shared.as_ref())?);
        }
    }
    if !found.is_empty() {
        return Ok(found);
    }
    let elsewhere = named("include").and_then(|it| it.option("files"));
    let files = elsewhere.map(|it| format!(": name the file of the program, one of {}", value(text, it)));
    Err(format!("it has no [program:NAME]{}", files.unwrap_or_default()))
}

fn program(text: &str, section: &Section, name: &str, shared: Option<&Environment>) -> Result<Program, String> {
    let own = section.environment(text)?;
    let pairs = shared.into_iter().chain(&own).flat_map(|it| &it.pairs);
    let env = pairs.map(|pair| Variable {
        name: pair.name.clone(),
        value: pair.value.clone(),
        line: pair.line,
        at: pair.at.clone(),
    });
    let start = section.option("command").map(|entry| {
        let command = value(text, entry).replace("%%", "%");
        Start { words: words(&command), by_shell: false, line: entry.line }
    });
    let is_spaced = section.options.last().is_some_and(|it| it.is_spaced);
    Ok(Program {
        service: Service { name: name.to_owned(), line: section.line, env: env.collect(), start, ..Service::default() },
        own,
        last: section.last,
        indent: section.indent.clone(),
        delimiter: if is_spaced { " = " } else { "=" },
    })
}

/// The whole value, its lines joined.
fn value(text: &str, entry: &Entry) -> String {
    let lines: Vec<&str> = entry.pieces.iter().map(|it| &text[it.clone()]).collect();
    lines.join("\n").trim().to_owned()
}

fn sections(text: &str) -> Result<Vec<Section>, String> {
    let mut sections: Vec<Section> = Vec::new();
    // The section that is open, whether an option in it is, and how far that is indented.
    let mut open: Option<usize> = None;
    let mut in_option = false;
    let mut indent = 0;
    let mut start = 0;
    for (number, whole) in text.split_inclusive('\n').enumerate() {
        let from = start;
        start += whole.len();
        let line = whole.strip_suffix('\n').unwrap_or(whole);
        let line = line.strip_suffix('\r').unwrap_or(line);
        let wrong = |what: &str| Err(format!("line {}: {what}", number + 1));
        if line.contains(['\r', '\0']) {
            return wrong("it contains a control character");
        }
        let code = &line[..comment(line).unwrap_or(line.len())];
        let code = code.trim();
        if code.is_empty() {
            continue;
        }
        let lead = line.len() - line.trim_start().len();
        let at = from + lead;
        let own_indent = line[..lead].chars().count();
        let current = open.and_then(|it| sections.get_mut(it));
        if let Some(section) = current
            && in_option
            && own_indent > indent
            && let Some(entry) = section.options.last_mut()
        {
            entry.pieces.push(at..at + code.len());
            section.last = at;
            continue;
        }
        indent = own_indent;
        let header =
            code.strip_prefix('[').and_then(|it| it.rsplit_once(']')).map(|it| it.0).filter(|it| !it.is_empty());
        if let Some(header) = header {
            in_option = false;
            let known = sections.iter().position(|it| it.header == header);
            let index = known.unwrap_or_else(|| {
                sections.push(Section {
                    header: header.to_owned(),
                    line: number + 1,
                    last: at,
                    indent: line[..lead].to_owned(),
                    options: Vec::new(),
                });
                sections.len() - 1
            });
            sections[index].last = at;
            open = Some(index);
            continue;
        }
        let Some(section) = open.and_then(|it| sections.get_mut(it)) else {
            return wrong("it is before the first section");
        };
        let Some(delimiter) = code.find(['=', ':']).filter(|it| *it > 0) else {
            return wrong("it is neither a section nor NAME=VALUE");
        };
        let key = code[..delimiter].trim_end();
        let rest = &code[delimiter + 1..];
        let behind = at + delimiter + 1;
        let value = behind + rest.len() - rest.trim_start().len();
        section.options.push(Entry {
            key: key.to_lowercase(),
            line: number + 1,
            start: behind,
            is_spaced: key.len() < delimiter,
            pieces: std::iter::once(value..at + code.len()).collect(),
        });
        section.last = at;
        line[..lead].clone_into(&mut section.indent);
        in_option = true;
    }
    Ok(sections)
}

/// Where a comment begins: at a sign at the start of the line, or after a space.
///
/// configparser looks for the next `;` and the next `#` in turns and stops at the first turn that finds a comment.
fn comment(line: &str) -> Option<usize> {
    if line.trim_start().starts_with(['#', ';']) {
        return Some(0);
    }
    let mut places = [(';', Some(0)), ('#', Some(0))];
    loop {
        let mut found: Option<usize> = None;
        for (sign, place) in &mut places {
            let Some(from) = *place else { continue };
            *place = line[from..].find(*sign).map(|it| from + it + 1);
            if let Some(end) = *place
                && line[..end - 1].ends_with(char::is_whitespace)
            {
                found = Some(found.map_or(end - 1, |it| it.min(end - 1)));
            }
        }
        if found.is_some() || places.iter().all(|it| it.1.is_none()) {
            return found;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_begin_behind_a_space_only() {
        assert!(programs("\u{feff}[program:a]\n").unwrap_err().contains("line 1"));
        for (line, at) in [
            ("a=b;c", None),
            ("a=b ;c", Some(4)),
            ("a=\"b #c\"", Some(5)),
            ("  ; x", Some(0)),
            // A quirk of configparser: the first turn that finds one ends the search.
            ("a;b ;c #d", Some(7)),
        ] {
            assert_eq!(comment(line), at, "{line}");
        }
    }
}
