//! Profilers and checks that are switched on in a process and change its memory or its speed.
//!
//! Used by trials, which warn of them. They are seen by the command line, the environment that the
//! process was started with, and the files that it maps; what a program switches on by itself, without
//! a file, is not seen.

use std::path::Path;

use procfs::process::{MMapPath, Process};
use serde::{Deserialize, Serialize};

use super::{elf, environ, runtime};
use crate::snapshot::Runtime;

/// What only a CPython with checks has: to 3.11, and since.
const REFERENCE_TOTALS: [&str; 2] = ["_Py_RefTotal", "_Py_INCREF_IncRefTotal"];

/// A thing that was seen in a process of the service and changes its memory or its speed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instrument {
    /// Kind of instrument.
    pub kind: InstrumentKind,
    /// Where it was seen: the process, and by what.
    pub seen: String,
}

/// What may be switched on in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstrumentKind {
    /// CPython's own tracing of allocations.
    Tracemalloc,
    /// The memory profiler memray.
    Memray,
    /// An interpreter built for debugging.
    DebugBuild,
    /// CPython's checks around every block.
    DebugAllocator,
}

/// Those of a process; none where it cannot be read.
pub fn of(pid: i32) -> Vec<Instrument> {
    let Ok(process) = Process::new(pid) else {
        return Vec::new();
    };
    let words = environ::command_line(process.pid);
    let variables = environ::at_start(pid).unwrap_or_default();
    let variable = |name: &str| {
        let value = variables.get(std::ffi::OsStr::new(name))?;
        Some(value.to_string_lossy().into_owned())
    };
    let mut files: Vec<String> = process
        .maps()
        .into_iter()
        .flatten()
        .filter_map(|map| match map.pathname {
            MMapPath::Path(path) => Some(path.display().to_string()),
            _ => None,
        })
        .collect();
    files.dedup();
    let counts_references = |file: &str| elf::exports(Path::new(file), &REFERENCE_TOTALS);
    seen(&words, variable, &files, counts_references)
        .into_iter()
        .map(|(kind, by)| Instrument { kind, seen: format!("process {pid}, {by}") })
        .collect()
}

/// What these show, one of each kind.
fn seen(
    words: &[String],
    variable: impl Fn(&str) -> Option<String>,
    files: &[String],
    counts_references: impl Fn(&str) -> bool,
) -> Vec<(InstrumentKind, String)> {
    let mut found: Vec<(InstrumentKind, String)> = Vec::new();
    let mut add = |kind, by: String| {
        if !found.iter().any(|(known, _)| *known == kind) {
            found.push((kind, by));
        }
    };
    let is_on = |value: &String| !matches!(value.as_str(), "" | "0");
    for name in ["PYTHONTRACEMALLOC", "PYTHONDEVMODE"] {
        if let Some(value) = variable(name).filter(is_on) {
            let kind = match name {
                "PYTHONTRACEMALLOC" => InstrumentKind::Tracemalloc,
                _ => InstrumentKind::DebugAllocator,
            };
            add(kind, format!("{name}={value}"));
        }
    }
    if let Some(value) = variable("PYTHONMALLOC").filter(|value| value.ends_with("debug")) {
        add(InstrumentKind::DebugAllocator, format!("PYTHONMALLOC={value}"));
    }
    for option in interpreter_options(words) {
        match option.split('=').next() {
            Some("tracemalloc") => add(InstrumentKind::Tracemalloc, format!("-X {option}")),
            Some("dev") => add(InstrumentKind::DebugAllocator, format!("-X {option}")),
            _ => {}
        }
    }
    let program = words.iter().take(3).find(|word| file_name(word) == "memray");
    if let Some(word) = program {
        add(InstrumentKind::Memray, format!("\"{word}\" in its command"));
    }
    for file in files {
        let name = file_name(file);
        if name.starts_with("_memray.") {
            add(InstrumentKind::Memray, format!("{file} is loaded"));
        }
        // Its name may be that of any other build.
        if is_debug_build(name) || (runtime::of_name(name) == Some(Runtime::Cpython) && counts_references(file)) {
            add(InstrumentKind::DebugBuild, format!("it runs {file}"));
        }
    }
    found
}

/// The values of `-X` before the script's name.
fn interpreter_options(words: &[String]) -> Vec<&str> {
    let mut options = Vec::new();
    let mut rest = words.iter().skip(1).map(String::as_str);
    while let Some(word) = rest.next() {
        match word.strip_prefix("-X") {
            Some("") => options.extend(rest.next()),
            Some(option) => options.push(option),
            // What follows belongs to the program.
            None if !word.starts_with('-') || word == "-m" || word == "-c" => break,
            None => {}
        }
    }
    options
}

/// `python3.11d`, `python3.11-dbg`, `libpython3.11d.so.1.0`: the letter that a build with checks has.
fn is_debug_build(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("libpython").or_else(|| name.strip_prefix("python")) else {
        return false;
    };
    let suffix = rest.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    let flags = suffix.split(".so").next().unwrap_or(suffix);
    let is_flags = |flags: &str| flags.chars().all(|letter| matches!(letter, 'd' | 'm' | 't'));
    rest.starts_with(|letter: char| letter.is_ascii_digit())
        && (flags == "-dbg" || (is_flags(flags) && flags.contains('d')))
}

fn file_name(path: &str) -> &str {
    Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(words: &[&str], variables: &[(&str, &str)], files: &[&str]) -> Vec<InstrumentKind> {
        let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let variable = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let found = seen(&own(words), variable, &own(files), |file| file.contains("/checked/"));
        found.into_iter().map(|(kind, _)| kind).collect()
    }

    #[test]
    fn tracemalloc_is_seen_by_its_variable_and_its_option() {
        use InstrumentKind::Tracemalloc;
        assert_eq!(kinds(&["python3"], &[("PYTHONTRACEMALLOC", "1")], &[]), [Tracemalloc]);
        assert_eq!(kinds(&["python3", "-X", "tracemalloc=25", "a.py"], &[], &[]), [Tracemalloc]);
        assert_eq!(kinds(&["python3", "-Xtracemalloc", "a.py"], &[], &[]), [Tracemalloc]);
        assert!(kinds(&["python3"], &[("PYTHONTRACEMALLOC", "0")], &[]).is_empty());
        assert!(kinds(&["python3", "a.py", "-X", "tracemalloc"], &[], &[]).is_empty(), "the program's own option");
    }

    #[test]
    fn memray_is_seen_by_its_command_and_its_library() {
        use InstrumentKind::Memray;
        assert_eq!(kinds(&["python3", "-m", "memray", "run", "a.py"], &[], &[]), [Memray]);
        assert_eq!(kinds(&["python3", "/v/bin/memray", "run"], &[], &[]), [Memray]);
        let library = "/v/lib/python3.11/site-packages/memray/_memray.cpython-311-x86_64-linux-gnu.so";
        assert_eq!(kinds(&["python3", "a.py"], &[], &[library]), [Memray]);
    }

    #[test]
    fn debug_builds_and_debug_allocators_are_seen() {
        use InstrumentKind::{DebugAllocator, DebugBuild};
        for file in ["/usr/bin/python3.11d", "/usr/bin/python3.11-dbg", "/l/libpython3.8d.so.1.0", "/b/python3.13td"] {
            assert_eq!(kinds(&["x"], &[], &[file]), [DebugBuild], "{file}");
        }
        assert_eq!(kinds(&["x"], &[], &["/checked/python3.13"]), [DebugBuild]);
        for file in [
            "/usr/bin/python3.11", "/checked/other", "/l/libpython3.11.so.1.0", "/b/python3.13t", "/b/pythond",
            "/b/python-dbus",
        ] {
            assert!(kinds(&["x"], &[], &[file]).is_empty(), "{file}");
        }
        assert_eq!(kinds(&["x"], &[("PYTHONMALLOC", "malloc_debug")], &[]), [DebugAllocator]);
        assert!(kinds(&["x"], &[("PYTHONMALLOC", "malloc")], &[]).is_empty());
        assert_eq!(kinds(&["python3", "-X", "dev", "a.py"], &[], &[]), [DebugAllocator]);
    }
}
