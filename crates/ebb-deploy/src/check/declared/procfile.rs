//! A Procfile: a type of process and its command a line. Pure.
//!
//! All that start such files give the command to a shell (foreman, honcho, Heroku), so assignments in
//! front of the program are read by it.

use std::ops::Range;

use super::script::assigned;
use super::service::{Service, Variable};
use crate::check::start::Start;

#[derive(Clone, Debug)]
pub struct Process {
    /// As every service is seen; the variables are the assignments in front of the program.
    pub service: Service,
    pub command: Range<usize>,
    /// Whether a variable in front of the command reaches all of it.
    pub is_simple: bool,
}

pub fn processes(text: &str) -> Result<Vec<Process>, String> {
    let mut found = Vec::new();
    let mut at = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let start = at;
        at += line.len();
        let line = line.trim_end();
        if line.trim_start().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        let is_name = |it: &str| !it.is_empty() && it.chars().all(|it| it.is_alphanumeric() || "-_".contains(it));
        let parts = line.split_once(':');
        let parts = parts.filter(|(name, command)| is_name(name) && !command.trim().is_empty());
        let Some((name, command)) = parts else {
            return Err(format!("line {} is not TYPE: COMMAND", number + 1));
        };
        let from = start + line.len() - command.trim_start().len();
        found.push(process(name, number + 1, command.trim_start(), from));
    }
    if found.is_empty() {
        return Err("it has no line TYPE: COMMAND".to_owned());
    }
    Ok(found)
}

fn process(name: &str, line: usize, command: &str, from: usize) -> Process {
    let mut env = Vec::new();
    let mut rest = command.strip_prefix("export ").unwrap_or(command);
    let exports = rest.len() != command.len();
    while let Some((name, length)) = assignment(rest) {
        let word = &rest[..length];
        let value = &word[name.len() + 1..];
        let start = from + (command.len() - rest.len()) + name.len() + 1;
        let literal = shlex::split(value).filter(|_| !value.contains(['$', '`']));
        env.push(Variable {
            name: name.to_owned(),
            value: literal.map(|it| it.concat()),
            line,
            at: start..start + value.len(),
        });
        let after = &rest[length..];
        if exports && after.trim_start().starts_with([';', '&']) {
            break;
        }
        rest = after.trim_start();
    }
    let is_simple = !command.contains([';', '&', '|', '(', ')', '<', '>', '\n', '`']) && !command.contains("$(");
    Process {
        service: Service {
            name: name.to_owned(),
            line,
            env,
            start: shlex::split(command).map(|words| Start { words, by_shell: true, line }),
            ..Service::default()
        },
        command: from..from + command.len(),
        is_simple,
    }
}

/// An assignment at the start: its name and the length of the whole word.
fn assignment(text: &str) -> Option<(&str, usize)> {
    let name = assigned(text)?;
    let mut quote = None;
    let mut letters = text[name.len() + 1..].char_indices();
    while let Some((at, letter)) = letters.next() {
        match (quote, letter) {
            (None, '\'' | '"') => quote = Some(letter),
            (Some(open), _) if open == letter => quote = None,
            (None | Some('"'), '\\') => {
                letters.next();
            }
            (None, ' ' | '\t' | ';' | '&' | '|') => return Some((name, name.len() + 1 + at)),
            _ => {}
        }
    }
    Some((name, text.len()))
}
