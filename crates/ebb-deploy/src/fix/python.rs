//! A Python program that starts others: `env=` in its calls of `subprocess` puts the allocator into the children and not
//! into the program itself. Children of `multiprocessing` get lines to add, because their environment is the program's.
//!
//! The text is scanned for calls, strings and comments, not parsed: a call that cannot be changed safely is named.

use std::ops::Range;

use super::edit::line_start;
use super::{Desired, Edit, Fixed, Refused};

/// Functions of `subprocess` that take `env`.
const CALLS: [&str; 5] = ["Popen", "run", "call", "check_call", "check_output"];
/// The same of `asyncio`.
const OF_ASYNCIO: [&str; 2] = ["create_subprocess_exec", "create_subprocess_shell"];
/// What starts Python as a child.
const OF_PYTHON: [&str; 3] = ["Process", "Pool", "ProcessPoolExecutor"];

/// What puts the allocator into the children that the program starts; with `child` only into those of this name.
pub fn fix(name: &str, text: &str, child: Option<&str>, desired: &Desired) -> Result<Fixed, Refused> {
    let entries = entries(desired)?;
    let source = Source::scan(text);
    let calls = source.calls();
    let mut fixed = Fixed::default();
    let mut found = 0;
    for call in calls.iter().filter(|call| call.is_subprocess) {
        let arguments = &text[call.arguments.clone()];
        if child.is_some_and(|child| first_word(arguments).as_deref() != Some(child)) {
            continue;
        }
        found += 1;
        let line = text[..call.arguments.start].matches('\n').count() + 1;
        match source.keyword(call, "env") {
            Some(given) => {
                let missing: Vec<&String> =
                    entries.iter().filter(|entry| !text[given.clone()].contains(*entry)).collect();
                let missing: Vec<&str> = missing.into_iter().map(String::as_str).collect();
                if !missing.is_empty() {
                    let missing = missing.join(", ");
                    fixed.notes.push(format!("{name}:{line}: add to its env: {missing}"));
                }
            }
            None if arguments.contains("**") => fixed
                .notes
                .push(format!("{name}:{line}: its arguments come from elsewhere; add env={}", dictionary(&entries))),
            None => {
                let end = source.last(&call.arguments);
                let comma = match text[..end].chars().next_back() {
                    Some(',') => " ",
                    Some('(') => "",
                    _ => ", ",
                };
                let added = format!("{comma}env={}", dictionary(&entries));
                let why = format!("this child gets {}, the program itself does not", desired.allocator);
                fixed.edits.push(Edit::replace(end..end, added, why));
            }
        }
    }
    for call in calls.iter().filter(|call| !call.is_subprocess && child.is_none()) {
        found += 1;
        let line = text[..call.arguments.start].matches('\n').count() + 1;
        fixed.notes.push(of_multiprocessing(name, line, call.function, &entries));
    }
    if found == 0 {
        let of = child.map_or_else(String::new, |child| format!(" {child}"));
        return Err(Refused::in_file(name, format!("it starts no{of} process by subprocess or multiprocessing"))
            .remedy("nothing was changed: name the file that starts it; for the program itself, use ebb run or the file that starts the service"));
    }
    if !fixed.edits.is_empty() && !source.imports_os() {
        let why = "for os.environ";
        fixed.edits.push(Edit::replace(source.imports..source.imports, "import os\n", why));
    }
    if !fixed.edits.is_empty() && desired.preloads() {
        fixed.notes.push(format!("install {} where the program runs", desired.preload_entry()));
    }
    Ok(fixed)
}

/// The variables as entries of a dictionary.
fn entries(desired: &Desired) -> Result<Vec<String>, Refused> {
    let preload = desired.preloads().then(|| ("LD_PRELOAD".to_owned(), desired.preload_entry()));
    let all = preload.into_iter().chain(desired.variables.clone());
    all.map(|(name, value)| {
        if [&name, &value].iter().any(|text| text.contains(['"', '\\', '\n'])) {
            return Err(Refused::cannot(format!("{name}={value}"), "use values without quotes and backslashes"));
        }
        Ok(format!("\"{name}\": \"{value}\""))
    })
    .collect()
}

fn dictionary(entries: &[String]) -> String {
    format!("{{**os.environ, {}}}", entries.join(", "))
}

/// The lines around the start of a child of `multiprocessing`.
fn of_multiprocessing(name: &str, line: usize, function: &str, entries: &[String]) -> String {
    let pairs = entries.join(", ");
    format!(
        "{name}:{line}: around the start of this {function}, with multiprocessing.get_context(\"spawn\"):\n\
         \x20   os.environ.update({{{pairs}}})\n\
         \x20   ...  # the start\n\
         \x20   for key in {{{pairs}}}: os.environ.pop(key)\n\
         A child of the start method \"fork\" has its parent's malloc."
    )
}

/// The program of a call, if it is written there: the last part of its path.
fn first_word(arguments: &str) -> Option<String> {
    let rest = arguments.trim_start().trim_start_matches(['[', '(']).trim_start();
    let quote = rest.chars().next().filter(|it| matches!(it, '"' | '\''))?;
    let inner = rest[1..].split(quote).next()?;
    let word = inner.split_whitespace().next()?;
    word.rsplit('/').next().map(str::to_owned)
}

/// A call that starts a child.
struct Call {
    function: &'static str,
    is_subprocess: bool,
    /// What is between its parentheses.
    arguments: Range<usize>,
}

/// A Python text with its strings and comments marked.
struct Source<'a> {
    text: &'a str,
    /// For each byte, what it is part of.
    kinds: Vec<Part>,
    imports: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Code,
    Text,
    Comment,
}

impl<'a> Source<'a> {
    fn scan(text: &'a str) -> Self {
        let bytes = text.as_bytes();
        let mut kinds = vec![Part::Code; bytes.len()];
        let mut at = 0;
        while at < bytes.len() {
            let (end, part) = match bytes[at] {
                b'#' => (text[at..].find('\n').map_or(bytes.len(), |length| at + length), Part::Comment),
                quote @ (b'"' | b'\'') => (string_end(bytes, at, quote), Part::Text),
                _ => (at + 1, Part::Code),
            };
            kinds[at..end].fill(part);
            at = end;
        }
        let mut source = Self { text, kinds, imports: 0 };
        source.imports = source.first_import();
        source
    }

    fn is_code_line(&self, at: usize) -> bool {
        self.kinds.get(at) == Some(&Part::Code)
    }

    fn top_lines(&self) -> impl Iterator<Item = (usize, &'a str)> {
        let text = self.text;
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1));
        let code = starts.filter(|at| self.is_code_line(*at));
        code.map(move |at| (at, text[at..].lines().next().unwrap_or_default()))
    }

    fn first_import(&self) -> usize {
        let is_import = |line: &str| {
            line.starts_with("import ") || line.starts_with("from ") && !line.starts_with("from __future__")
        };
        self.top_lines().find(|(_, line)| is_import(line)).map_or(0, |(at, _)| at)
    }

    fn imports_os(&self) -> bool {
        let mut lines = self.top_lines().filter_map(|(_, line)| line.strip_prefix("import "));
        lines.any(|names| {
            names.split(['#', ';']).next().is_some_and(|names| names.split(',').any(|it| it.trim() == "os"))
        })
    }

    fn calls(&self) -> Vec<Call> {
        let mut calls = Vec::new();
        for (open, _) in self.text.match_indices('(').filter(|(at, _)| self.kinds[*at] == Part::Code) {
            let before = &self.text[..open];
            let is_name = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '.';
            let path = &before[before.trim_end_matches(is_name).len()..];
            let line = before[line_start(self.text, open)..].trim_start();
            if line.starts_with("def ") || line.starts_with("class ") {
                continue;
            }
            let Some((function, is_subprocess)) = self.function(path) else { continue };
            if let Some(close) = self.close(open) {
                calls.push(Call { function, is_subprocess, arguments: open + 1..close });
            }
        }
        calls
    }

    /// Which function a name stands for, by the imports of the file.
    fn function(&self, path: &str) -> Option<(&'static str, bool)> {
        let (module, name) = path.rsplit_once('.').unwrap_or(("", path));
        if !CALLS.iter().chain(&OF_ASYNCIO).chain(&OF_PYTHON).any(|it| *it == name) {
            return None;
        }
        let known = |all: &[&'static str]| all.iter().find(|it| **it == name).copied();
        let imports = |module: &str| {
            let from = format!("from {module} import ");
            self.top_lines().any(|(_, line)| {
                line.strip_prefix(&from).is_some_and(|names| names.split([',', '(', ')']).any(|it| it.trim() == name))
            })
        };
        match module {
            "subprocess" => known(&CALLS).map(|it| (it, true)),
            "asyncio" | "asyncio.subprocess" => known(&OF_ASYNCIO).map(|it| (it, true)),
            "multiprocessing" | "concurrent.futures" | "futures" | "mp" | "context" | "ctx" => {
                known(&OF_PYTHON).map(|it| (it, false))
            }
            "" if imports("subprocess") => known(&CALLS).map(|it| (it, true)),
            "" if imports("asyncio") => known(&OF_ASYNCIO).map(|it| (it, true)),
            "" if imports("multiprocessing") || imports("concurrent.futures") => {
                known(&OF_PYTHON).map(|it| (it, false))
            }
            _ => None,
        }
    }

    fn close(&self, open: usize) -> Option<usize> {
        let mut depth = 0;
        for (at, byte) in self.text.bytes().enumerate().skip(open) {
            match byte {
                _ if self.kinds[at] != Part::Code => {}
                b'(' | b'[' | b'{' => depth += 1,
                b')' | b']' | b'}' => {
                    depth -= 1;
                    if depth == 0 {
                        return Some(at);
                    }
                }
                _ => {}
            }
        }
        None
    }

    fn keyword(&self, call: &Call, name: &str) -> Option<Range<usize>> {
        let mut depth = 0;
        let mut start = call.arguments.start;
        let mut values = Vec::new();
        for at in call.arguments.clone() {
            if self.kinds[at] != Part::Code {
                continue;
            }
            match self.text.as_bytes()[at] {
                b'(' | b'[' | b'{' => depth += 1,
                b')' | b']' | b'}' => depth -= 1,
                b',' if depth == 0 => {
                    values.push(start..at);
                    start = at + 1;
                }
                _ => {}
            }
        }
        values.push(start..call.arguments.end);
        values.into_iter().find(|value| {
            // A comment may precede the keyword.
            let code = self.text[value.clone()]
                .lines()
                .map(str::trim_start)
                .find(|line| !line.is_empty() && !line.starts_with('#'));
            let rest = code.and_then(|line| line.strip_prefix(name));
            rest.is_some_and(|rest| rest.trim_start().starts_with('=') && !rest.trim_start().starts_with("=="))
        })
    }

    /// The end of the last argument: after the last byte that is neither space nor comment.
    fn last(&self, arguments: &Range<usize>) -> usize {
        let bytes = self.text.as_bytes();
        let is_used = |at: &usize| self.kinds[*at] != Part::Comment && !bytes[*at].is_ascii_whitespace();
        arguments.clone().rev().find(is_used).map_or(arguments.start, |at| at + 1)
    }
}

fn string_end(bytes: &[u8], at: usize, quote: u8) -> usize {
    let is_long = bytes[at..].starts_with(&[quote; 3]);
    let width = if is_long { 3 } else { 1 };
    let mut end = at + width;
    while end < bytes.len() {
        match bytes[end] {
            b'\\' => end += 2,
            b'\n' if !is_long => return end,
            byte if byte == quote && (!is_long || bytes[end..].starts_with(&[quote; 3])) => {
                return end + width;
            }
            _ => end += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::fix::edit::apply;
    use ebb_allocators::Allocator;

    fn desired() -> Desired {
        Desired {
            allocator: Allocator::Ebbmalloc,
            library: Some("/l.so".to_owned()),
            release: None,
            variables: BTreeMap::new(),
            keep_existing: true,
            why: String::new(),
        }
    }

    #[test]
    fn calls_get_an_environment_where_they_have_none() {
        const ENV: &str = "env={**os.environ, \"LD_PRELOAD\": \"/l.so\"}";
        for (call, expected) in [
            ("subprocess.run(['a', b], check=True)", "subprocess.run(['a', b], check=True, ENV)"),
            ("subprocess.Popen(\n    ['a'],  # ) env=\n)", "subprocess.Popen(\n    ['a'], ENV  # ) env=\n)"),
            ("subprocess.run(f(')', env=1))", "subprocess.run(f(')', env=1), ENV)"),
            ("x = run(\"\"\"a ' \" b\"\"\")", "x = run(\"\"\"a ' \" b\"\"\", ENV)"),
            ("await asyncio.create_subprocess_exec('a')", "await asyncio.create_subprocess_exec('a', ENV)"),
            ("subprocess.run('a', env={})", "subprocess.run('a', env={})"),
            ("subprocess.run('a', **options)", "subprocess.run('a', **options)"),
            ("other.run('a'); subprocess.run('b')", "other.run('a'); subprocess.run('b', ENV)"),
            (
                "'subprocess.run(a)'  # subprocess.run(b)\nrun('é')",
                "'subprocess.run(a)'  # subprocess.run(b)\nrun('é', ENV)",
            ),
        ] {
            let text = format!("import os\nfrom subprocess import run\n{call}\n");
            let fixed = fix("app.py", &text, None, &desired()).unwrap();
            let expected = format!("import os\nfrom subprocess import run\n{expected}\n");
            assert_eq!(apply(&text, &fixed.edits), expected.replace("ENV", ENV));
            let names_line_3 = fixed.notes.iter().any(|note| note.starts_with("app.py:3: "));
            assert_eq!(names_line_3, fixed.edits.is_empty(), "{call}: {:?}", fixed.notes);
        }
    }

    #[test]
    fn a_text_that_is_no_python_does_no_harm() {
        for text in ["", "subprocess.run(", "subprocess.run('a", "run('\\", "\"\"\"", "é(", "subprocess.run())"] {
            let fixed = fix("app.py", text, None, &desired());
            assert!(fixed.is_err() || text == "subprocess.run())", "{text}: {fixed:?}");
        }
    }

    #[test]
    fn only_the_program_that_is_named() {
        for (call, starts) in [
            ("['/usr/bin/convert', a]", true),
            ("\"convert a.png\"", true),
            ("[convert]", false),
            ("['identify']", false),
        ] {
            let text = format!("import subprocess\nsubprocess.run({call})\n");
            assert_eq!(fix("a.py", &text, Some("convert"), &desired()).is_ok(), starts, "{call}");
        }
    }
}
