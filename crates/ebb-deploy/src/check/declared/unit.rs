//! A systemd service: the entries of its sections, as far as the start of a process needs them. Pure.
//!
//! Read here and not by a library: of systemd's syntax only sections, continued lines, comments and quoted words matter.
//! systemd-unit-edit 0.1 refuses a comment between continued lines, rust-ini and configparser tell no lines, and
//! systemd-parser 0.1 is not maintained.

use std::path::Path;

use super::service::{Service, Variable};
use crate::check::start::{Start, words};

/// A unit, or a drop-in of one.
#[derive(Clone, Debug, Default)]
pub struct Unit {
    entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    section: String,
    key: String,
    value: String,
    line: usize,
}

impl Unit {
    /// Reads the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut unit = Self::default();
        let mut section = String::new();
        let mut lines = text.lines().enumerate();
        while let Some((number, line)) = lines.next() {
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
                name.clone_into(&mut section);
                continue;
            }
            let mut whole = line.to_owned();
            while whole.ends_with('\\') {
                whole.pop();
                whole.push(' ');
                match lines.by_ref().map(|(_, it)| it.trim()).find(|it| !it.starts_with(['#', ';'])) {
                    Some(next) => whole.push_str(next),
                    None => break,
                }
            }
            let Some((key, value)) = whole.split_once('=') else {
                return Err(format!("line {} is neither a section nor NAME=VALUE", number + 1));
            };
            unit.entries.push(Entry {
                section: section.clone(),
                key: key.trim().to_owned(),
                value: value.trim().to_owned(),
                line: number + 1,
            });
        }
        if unit.entries.is_empty() {
            return Err("it has no entry".to_owned());
        }
        Ok(unit)
    }

    /// The entries of a drop-in, after the existing entries.
    pub fn extend(&mut self, other: Unit) {
        self.entries.extend(other.entries);
    }

    /// The values of a key in `[Service]`, in order; an empty one takes back those before it.
    pub fn values(&self, key: &str) -> Vec<(&str, usize)> {
        let mut found = Vec::new();
        for entry in self.entries.iter().filter(|it| it.section == "Service" && it.key == key) {
            if entry.value.is_empty() {
                found.clear();
            } else {
                found.push((entry.value.as_str(), entry.line));
            }
        }
        found
    }

    /// The last section that is named.
    pub fn last_section(&self) -> Option<&str> {
        self.entries.last().map(|it| it.section.as_str())
    }

    /// The common view of a service.
    pub fn service(&self, path: &Path) -> Service {
        let name = path.file_name().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default();
        let mut env = Vec::new();
        for (value, line) in self.values("Environment") {
            for word in words(value) {
                let Some((name, value)) = word.split_once('=') else {
                    continue;
                };
                // Specifiers such as %h; %% is a percent sign.
                let plain = value.replace("%%", "\0");
                let value = (!plain.contains('%')).then(|| plain.replace('\0', "%"));
                env.push(Variable { name: name.to_owned(), value, line, at: 0..0 });
            }
        }
        let start = self.values("ExecStart").first().map(|(value, line)| Start {
            words: words(value.trim_start_matches(['-', '@', ':', '+', '!', '|'])),
            by_shell: false,
            line: *line,
        });
        let line = start.as_ref().map_or(1, |it| it.line);
        Service { name, line, env, start, ..Service::default() }
    }
}
