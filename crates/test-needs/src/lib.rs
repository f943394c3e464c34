//! Skips of tests. A test whose package is not installed, or that may not do here what it is about, ends
//! at once and is listed in `TARGET/skipped.tsv`, which `make test` prints at its end (`ci/report.py`).
//!
//! ```no_run
//! use test_needs::{needs, skip};
//!
//! # fn is_root() -> bool { true }
//! fn valgrind_finds_nothing() {
//!     needs!("valgrind");
//!     if !is_root() {
//!         skip!("only root can change the root");
//!     }
//! }
//! ```
//!
//! Packages are those of `ci/packages.txt`, which says how each is recognised. With `EBB_REQUIRE_ALL=1` a
//! missing package fails the test; a missing right never does. `workloads/needs.py` is the same for Python.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, thread};

/// The table: a package, how it is recognised, `must`, `some` or `long`, what needs it.
const PACKAGES: &str = include_str!("../../../ci/packages.txt");

/// Ends the calling test as skipped unless all these packages are installed.
#[macro_export]
macro_rules! needs {
    ($($package:literal),+ $(,)?) => {
        if !$crate::installed(&[$($package),+]) {
            return;
        }
    };
}

/// Ends the calling test as skipped: the reason, as for `format!`, is a right or a feature of the kernel that
/// this machine does not give.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {{
        $crate::note(&format!($($reason)+));
        return;
    }};
}

/// Whether all these packages are installed. If not, the skip is listed; for a test that leaves out one case
/// of several.
///
/// # Panics
///
/// With `EBB_REQUIRE_ALL=1`, if one is missing; always, if `ci/packages.txt` has no such package.
#[track_caller]
pub fn installed(packages: &[&str]) -> bool {
    let missing: Vec<_> = packages.iter().filter(|name| !is_installed(name)).collect();
    for package in &missing {
        assert!(
            env::var_os("EBB_REQUIRE_ALL").is_none_or(|value| value != "1"),
            "{package} is not installed: apt-get install {package}"
        );
        record("package", package);
    }
    missing.is_empty()
}

/// Lists a skip, or a part of a test that was left out, with its reason.
pub fn note(reason: &str) {
    record("reason", reason);
}

#[track_caller]
fn is_installed(package: &str) -> bool {
    let by = recognised_by(package).unwrap_or_else(|| panic!("{package} is not in ci/packages.txt: add it"));
    is_there(by)
}

fn recognised_by(package: &str) -> Option<&'static str> {
    PACKAGES.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(package)).then(|| words.next())?
    })
}

/// A program, `/a/file` whose ARCH stands for the machine's folder of libraries, or `python:MODULE`.
fn is_there(by: &str) -> bool {
    if let Some(module) = by.strip_prefix("python:") {
        return ["python3", "/usr/bin/python3"].iter().any(|python| {
            let mut command = Command::new(python);
            command.args(["-c", &format!("import {module}")]);
            command.output().is_ok_and(|output| output.status.success())
        });
    }
    if by.starts_with('/') {
        let folder = format!("{}-linux-gnu", env::consts::ARCH);
        return Path::new(&by.replace("ARCH", &folder)).is_file();
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]).any(|folder| folder.join(by).is_file())
}

/// One line for each skip: kind, package or reason, test.
fn record(kind: &str, what: &str) {
    let test = thread::current();
    let test = test.name().unwrap_or("one case of several");
    eprintln!("skipped: {test}: {kind} {what}");
    let line = format!("{kind}\t{what}\t{}{test}\n", program());
    // One write, so that lines of programs that run at once do not mix.
    let _ =
        OpenOptions::new().create(true).append(true).open(list()).and_then(|mut file| file.write_all(line.as_bytes()));
}

/// TARGET/skipped.tsv of the test's executable TARGET/PROFILE/deps/NAME-HASH.
fn list() -> PathBuf {
    let file = env::current_exe().unwrap_or_default();
    let target = file.ancestors().nth(3).unwrap_or(Path::new("target"));
    let _ = fs::create_dir_all(target);
    target.join("skipped.tsv")
}

/// NAME:: of the test's executable.
fn program() -> String {
    let file = env::current_exe().unwrap_or_default();
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    let name = name.rsplit_once('-').map_or(&*name, |(name, _)| name);
    format!("{name}::")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_complete() {
        let lines = PACKAGES.lines().filter(|line| !line.starts_with('#'));
        for line in lines {
            let words: Vec<_> = line.split_whitespace().collect();
            assert!(words.len() > 3, "{line}");
            assert!(["must", "some", "long"].contains(&words[2]), "{line}");
        }
    }

    #[test]
    fn a_program_a_file_and_a_module_are_found() {
        assert!(is_there("sh"));
        assert!(!is_there("a-program-that-nobody-has"));
        assert!(is_there("/proc/version"));
        assert!(!is_there("/usr/lib/ARCH/libnobody.so"));
        assert!(is_there("python:json"));
        assert!(!is_there("python:a_module_that_nobody_has"));
    }

    #[test]
    fn a_missing_package_is_told_apart_from_an_unknown_one() {
        assert_eq!(recognised_by("valgrind"), Some("valgrind"));
        assert_eq!(recognised_by("no-such-package"), None);
    }
}
