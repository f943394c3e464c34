//! A shell script that starts a service, such as `docker-entrypoint.sh`: which variables it exports before it starts the
//! program, and how it starts that. Pure.
//!
//! The scripts have the last word over the environment that they are given, but only where they are used: what is
//! started without the script runs without its variables.

use std::path::Path;

use super::service::{Remark, Service, Variable};
use crate::check::finding::Id;
use crate::check::start::Start;

mod commands;
mod value;

use commands::Command;
use value::unquoted;
pub use value::{INHERITED, Set};

#[derive(Clone, Debug)]
pub struct Script {
    pub service: Service,
    /// Every assignment that is a command of its own, in order.
    pub sets: Vec<Set>,
    /// The `LD_PRELOAD` that single commands are given, by line: in front of them, or after `env`.
    pub given: Vec<(usize, String)>,
    /// Where the lines at the top end: `#!`, the comment below it, `set -e`. The start of a line, or the end of the text.
    pub top: usize,
}

/// Shells with `export NAME=VALUE`.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "ash", "ksh", "zsh"];

/// Commands of the shell itself, and such as only prepare: not what a script is there to start.
const BUILTINS: [&str; 28] = [
    ":", ".", "[", "[[", "alias", "cd", "declare", "echo", "eval", "exit", "export", "false", "hash", "kill", "local",
    "printf", "read", "readonly", "return", "set", "shift", "source", "test", "trap", "true", "ulimit", "umask",
    "wait",
];

/// Whether a file with this name and text is a script.
pub fn is_like(name: &str, text: &str) -> bool {
    let is_named =
        [".sh", ".bash"].iter().any(|it| name.ends_with(it)) || matches!(name, "entrypoint" | "docker-entrypoint");
    text.starts_with("#!") || is_named
}

impl Script {
    /// Reads a text that [`is_like`] a script, in the file `path`.
    pub fn parse(path: &Path, text: &str) -> Result<Self, String> {
        if text.starts_with('\u{feff}') {
            return Err("it begins with a byte order mark, which shells do not accept".to_owned());
        }
        if let Some(other) = other_interpreter(text) {
            return Err(format!("it is a script for {other}, not for a shell"));
        }
        let commands = commands::commands(text)?;
        let words = |it: &Command| -> Vec<&str> { it.words.iter().map(|at| &text[at.clone()]).collect() };
        let start = start(&commands, &words);
        let mut sets = Vec::new();
        let mut exported: Vec<&str> = Vec::new();
        let mut exports_all = false;
        let mut given = Vec::new();
        let mut remarks = Vec::new();
        for (number, command) in commands.iter().enumerate() {
            let is_late = start.is_some_and(|it| number > it);
            let words = words(command);
            given.extend(given_to(command, &words));
            let (is_export, skip) = match words.as_slice() {
                ["export", ..] => (true, 1),
                ["declare" | "typeset", "-x", ..] => (true, 2),
                ["set", options @ ..] => {
                    let is_a = |it: &&str| it.starts_with('-') && !it.starts_with("--") && it.contains('a');
                    exports_all |= options.contains(&"allexport") || options.iter().any(is_a);
                    continue;
                }
                ["unset", names @ ..] if !is_late && names.contains(&"LD_PRELOAD") => {
                    let what = "the script removes LD_PRELOAD from the environment here";
                    let remark = Remark::error(command.line, Id::EnvironmentDropped, what);
                    remarks.push(if command.is_plain { remark } else { remark.as_note() });
                    continue;
                }
                ["exec", _, ..] if Some(number) != start => {
                    remarks.extend(dropped_elsewhere(command, &words));
                    continue;
                }
                words if words.iter().all(|it| assigned(it).is_some()) => (exports_all, 0),
                _ => continue,
            };
            for (word, at) in words.iter().zip(&command.words).skip(skip) {
                let Some(name) = assigned(word) else {
                    exported.push(word);
                    continue;
                };
                let behind = at.start + name.len() + 1;
                let (value, inherits) = value::read(name, &text[behind..at.end]);
                sets.push(Set {
                    name: name.to_owned(),
                    value,
                    inherits,
                    from: at.start,
                    at: behind..at.end,
                    line: command.line,
                    is_plain: command.is_plain && !is_late,
                    is_exported: is_export,
                    is_alone: words.len() == skip + 1,
                    is_late,
                });
            }
        }
        for set in &mut sets {
            set.is_exported |= exported.contains(&set.name.as_str());
        }
        let name = path.file_name().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default();
        let started = start.map(|it| Start {
            words: words(&commands[it]).into_iter().map(unquoted).collect(),
            by_shell: true,
            line: commands[it].line,
        });
        remarks.extend(of_script(&name, text, &sets, started.as_ref()));
        let service = Service {
            name,
            line: started.as_ref().map_or(1, |it| it.line),
            env: variables(&sets),
            start: started,
            remarks,
            ..Service::default()
        };
        Ok(Self { service, sets, given, top: top(text) })
    }

    /// The service if everything that the script sets were exported.
    pub fn all_exported(&self) -> Service {
        let sets = self.sets.iter().map(|it| Set { is_exported: true, ..it.clone() });
        Service { env: variables(&sets.collect::<Vec<_>>()), ..self.service.clone() }
    }

    pub fn sets_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Set> {
        self.sets.iter().filter(move |it| it.name == name)
    }
}

/// The program that reads a script which is not for a shell.
fn other_interpreter(text: &str) -> Option<&str> {
    let line = text.strip_prefix("#!")?.lines().next().unwrap_or_default();
    let words: Vec<&str> = line.split_whitespace().map(|it| it.rsplit('/').next().unwrap_or(it)).collect();
    if words.iter().any(|it| SHELLS.contains(it)) {
        return None;
    }
    match *words.first().unwrap_or(&"nothing") {
        "env" => Some(words.iter().skip(1).find(|it| !it.starts_with('-')).unwrap_or(&"env")),
        first => Some(first),
    }
}

/// The command that becomes the service: the first `exec` that always runs, else the last command of such that
/// is no builtin.
fn start<'a>(commands: &'a [Command], words: &dyn Fn(&'a Command) -> Vec<&'a str>) -> Option<usize> {
    let plain = || {
        let all = commands.iter().enumerate();
        all.filter(|(_, it)| it.is_plain).map(|(number, it)| (number, words(it)))
    };
    let is_exec = |words: &[&str]| {
        let mut words = words.iter().skip_while(|it| assigned(it).is_some());
        words.next() == Some(&"exec") && words.next().is_some()
    };
    let exec = plain().find(|(_, words)| is_exec(words));
    let program = |words: &[&str]| {
        let first = words.iter().find(|it| assigned(it).is_none());
        first.is_some_and(|it| !BUILTINS.contains(it) && !matches!(*it, "exec" | "typeset" | "unset"))
    };
    let last = || plain().filter(|(_, words)| program(words)).last();
    Some(exec.or_else(last)?.0)
}

/// The name in a word `NAME=VALUE`.
pub(super) fn assigned(word: &str) -> Option<&str> {
    let name = &word[..word.find('=')?];
    let is_first = |it: char| it.is_ascii_alphabetic() || it == '_';
    let is_name = name.starts_with(is_first) && name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_');
    is_name.then_some(name)
}

/// The `LD_PRELOAD` that a command alone is given; what passes on the old value is none.
fn given_to(command: &Command, words: &[&str]) -> Option<(usize, String)> {
    let is_set = words.iter().all(|it| assigned(it).is_some());
    let is_declared = matches!(words.first(), Some(&("export" | "declare" | "typeset" | "local" | "readonly")));
    if is_set || is_declared {
        return None;
    }
    let value = words.iter().find_map(|it| it.strip_prefix("LD_PRELOAD="))?;
    let (own, _) = value::read("LD_PRELOAD", value);
    let own = own.unwrap_or_else(|| value.to_owned());
    (!own.is_empty()).then_some((command.line, own))
}

fn variables(sets: &[Set]) -> Vec<Variable> {
    let mut env: Vec<Variable> = Vec::new();
    for set in sets.iter().filter(|it| it.is_exported && !it.is_late) {
        let before = env.iter().rev().find(|it| it.name == set.name);
        let value = match (&set.value, before) {
            (Some(own), Some(before)) if set.inherits => {
                let joined = before.value.as_ref().map(|it| format!("{own}:{it}"));
                joined.map(|it| it.trim_matches(':').to_owned())
            }
            (own, _) => own.clone(),
        };
        env.push(Variable { name: set.name.clone(), value, line: set.line, at: set.at.clone() });
    }
    env
}

/// An `exec` under a condition through a program that drops the environment.
fn dropped_elsewhere(command: &Command, words: &[&str]) -> Option<Remark> {
    let words = words.iter().copied().map(unquoted).collect();
    let start = Start { words, by_shell: true, line: command.line };
    let by = start.drops_environment()?;
    let what = format!("{by} starts programs without the LD_PRELOAD of the script");
    Some(Remark::error(command.line, Id::EnvironmentDropped, what).as_note())
}

fn of_script(name: &str, text: &str, sets: &[Set], start: Option<&Start>) -> Vec<Remark> {
    let mut remarks = Vec::new();
    let preloads = || sets.iter().filter(|it| it.name == "LD_PRELOAD");
    let counts = preloads().any(|it| it.is_exported && !it.is_late);
    if let (Some(set), Some(start)) = (preloads().find(|it| it.is_late), start) {
        let what = format!("the program was already started in line {}", start.line);
        let remark = Remark::error(set.line, Id::PreloadTooLate, what);
        remarks.push(if counts { remark.as_note() } else { remark });
    } else if let Some(set) = preloads().find(|it| !it.is_exported)
        && !counts
    {
        let what = "LD_PRELOAD is set without `export`, so no program gets it";
        remarks.push(Remark::error(set.line, Id::EnvironmentDropped, what));
    }
    if counts {
        if let Some(set) = preloads().find(|it| !it.is_late)
            && !preloads().any(|it| it.is_plain)
        {
            let what = "LD_PRELOAD is set under a condition; otherwise the program runs without it";
            remarks.push(Remark::error(set.line, Id::NotAsked, what).as_note());
        }
        let what = format!(
            "LD_PRELOAD is set in {name} only: docker run --entrypoint, docker exec and a pod's command start programs without it"
        );
        let line = preloads().find(|it| !it.is_late).map_or(1, |it| it.line);
        remarks.push(Remark::error(line, Id::EntrypointBypassed, what).as_note());
    }
    if text.contains("\r\n") {
        let what =
            "the lines end with a carriage return, which the kernel and the shell treat as part of a name or value";
        remarks.push(Remark::error(1, Id::LineEnds, what).as_note());
    }
    remarks
}

fn top(text: &str) -> usize {
    let mut top = 0;
    let mut at = 0;
    // Whether only comments stand between `top` and here.
    let mut is_head = true;
    for line in text.split_inclusive('\n') {
        at += line.len();
        let code = line.trim();
        if code.starts_with('#') {
            if is_head {
                top = at;
            }
        } else if is_option(code) {
            top = at;
            is_head = false;
        } else if code.is_empty() {
            is_head = false;
        } else {
            break;
        }
    }
    top
}

/// `set -eu`, `set -o pipefail`.
fn is_option(code: &str) -> bool {
    let code = code.split(" #").next().unwrap_or_default().trim_end();
    let mut words = code.split_whitespace();
    let is_word = |it: &str| {
        it.bytes().all(|it| it.is_ascii_alphabetic() || matches!(it, b'-' | b'+')) && it != "-" && it != "--"
    };
    words.next() == Some("set")
        && words.clone().next().is_some_and(|it| it.starts_with(['-', '+']))
        && words.all(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_of_others_are_named() {
        for (line, who) in [
            ("#!/usr/bin/env python3", "python3"),
            ("#!/usr/bin/env -S node --x", "node"),
            ("#!/usr/bin/perl -w", "perl"),
            ("#!/usr/bin/fish", "fish"),
        ] {
            let why = Script::parse(Path::new("x"), &format!("{line}\n")).unwrap_err();
            assert!(why.contains(who), "{why}");
        }
        for shell in ["/bin/sh -e", " /usr/bin/env bash", "/usr/bin/with-contenv bash", "/bin/busybox sh"] {
            assert!(Script::parse(Path::new("x"), &format!("#!{shell}\n")).is_ok(), "{shell}");
        }
    }

    #[test]
    fn the_top_is_the_comment_and_the_options() {
        for (head, rest) in [
            ("#!/bin/sh\nset -e\n", "\nexec a\n"),
            ("#!/bin/sh\n# b\n#\n", "\n# c\nexec a\n"),
            ("#!/bin/sh\n\n# b\nset -eu # c\nset -o pipefail\n", "exec a"),
            ("#!/bin/sh\n", "set -- a\nexec a\n"),
            ("#!/bin/sh\n", "set -e; a\n"),
            ("", "exec a\n"),
            ("#!/bin/sh", ""),
        ] {
            assert_eq!(top(&format!("{head}{rest}")), head.len(), "{head}{rest}");
        }
    }
}
