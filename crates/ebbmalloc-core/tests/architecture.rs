//! ARCHITECTURE.md and the code agree: its files and tests exist, its reading path is as short as it says, and the
//! kernel has one door.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page() -> String {
    fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap()
}

/// The text from a heading to the next one.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let start = page.find(heading).expect(heading) + heading.len();
    let rest = &page[start..];
    &rest[..rest.find("\n## ").unwrap_or(rest.len())]
}

/// The texts between backquotes, blocks of code left out.
fn quoted(text: &str) -> Vec<String> {
    let outside = text.split("```").step_by(2);
    outside
        .flat_map(|part| part.split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// A file without the tests at its end.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    text[..end].to_owned()
}

#[test]
fn every_file_that_the_page_names_exists() {
    let places = ["", "crates/ebbmalloc-core/src", "crates/ebb"];
    let names: Vec<_> = quoted(&page())
        .into_iter()
        .filter(|name| name.contains('/') && !name.starts_with('/') && name.contains('.'))
        .collect();
    assert!(names.len() > 30, "only {} files named", names.len());
    for name in names {
        let found = places
            .iter()
            .any(|place| root().join(place).join(&name).exists());
        assert!(found, "ARCHITECTURE.md names {name}");
    }
}

#[test]
fn every_test_that_keeps_an_invariant_exists() {
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    let texts: Vec<_> = files
        .iter()
        .map(|file| fs::read_to_string(file).unwrap())
        .collect();
    let page = page();
    let names = quoted(section(&page, "\n## Invariants\n"))
        .into_iter()
        .filter(|name| name.contains('_') && !name.contains(['/', '.', ' ']));
    let mut count = 0;
    for name in names {
        count += 1;
        let written = format!("fn {name}(");
        let found = texts.iter().any(|text| text.contains(&written));
        assert!(found, "no test {name}");
    }
    assert!(count > 15, "only {count} tests named");
}

#[test]
fn the_reading_path_is_short_and_keeps_to_itself() {
    let page = page();
    let path = quoted(section(&page, "\n## The reading path of one hour\n"));
    let files: Vec<_> = path.iter().filter(|name| name.contains('/')).collect();
    assert!(files.len() > 10, "only {} files", files.len());
    let mut lines = 0;
    for file in files {
        let code = code(&root().join(file));
        lines += code.lines().count();
        for above in ["crate::runtime", "crate::profile"] {
            assert!(!code.contains(above), "{file} uses {above}");
        }
    }
    assert!(lines <= 4000, "{lines} lines");
}

#[test]
fn only_the_door_calls_the_kernel() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let door = source.join("os/linux");
    let mut files = Vec::new();
    sources(&source, &mut files);
    let mut calls = 0;
    for file in &files {
        let code = code(file);
        let is_call = code.contains("\"syscall\"")
            || code.contains("\"svc 0\"")
            || code.contains("\"svc #0\"");
        calls += usize::from(is_call);
        assert!(
            !is_call || file.starts_with(&door),
            "{} calls the kernel",
            file.display()
        );
        assert!(!code.contains("libc::"), "{} uses libc", file.display());
    }
    assert!(calls > 1, "the door was not found");
}
