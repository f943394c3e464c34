//! ARCHITECTURE.md and the code agree: its files, crates and tests exist, and the kernel has one door.

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
    outside.flat_map(|part| part.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
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
        .filter(|name| name.contains('/') && name.contains('.') && !name.starts_with('/') && !name.contains(' '))
        .collect();
    assert!(names.len() > 30, "only {} files named", names.len());
    let exists = |name: &&String| {
        let mut paths = places.iter().map(|place| root().join(place).join(name));
        paths.any(|path| path.exists())
    };
    let missing: Vec<_> = names.iter().filter(|name| !exists(name)).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names {missing:?}");
}

#[test]
fn the_table_of_crates_has_each_crate() {
    let page = page();
    let rows = section(&page, "\n## Crates\n").lines();
    let mut named: Vec<_> = rows.filter_map(|row| row.split_once(" | ")).flat_map(|(names, _)| quoted(names)).collect();
    let mut crates: Vec<_> = fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().join("Cargo.toml").exists())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    named.sort();
    crates.sort();
    assert_eq!(named, crates);
}

#[test]
fn every_test_that_keeps_an_invariant_exists() {
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    let texts: Vec<_> = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let page = page();
    let names = quoted(section(&page, "\n## Invariants\n"))
        .into_iter()
        .filter(|name| name.contains('_') && !name.contains(['/', '.', ' ']));
    let mut count = 0;
    for name in names {
        count += 1;
        // A function, or a line of a table of tests.
        let written = [format!("fn {name}("), format!(" {name}: Plain \"")];
        let found = texts.iter().any(|text| written.iter().any(|written| text.contains(written)));
        assert!(found, "no test {name}");
    }
    assert!(count > 15, "only {count} tests named");
}

/// `file:case` is a case of a C or C++ program that a Rust test runs, everything else a Rust test.
#[test]
fn every_test_that_holds_a_contract_exists() {
    let tests = root().join("crates/ebbmalloc-c/tests");
    let mut files = Vec::new();
    sources(&tests, &mut files);
    let texts: Vec<_> = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let runs = |written: &[String]| texts.iter().any(|text| written.iter().any(|written| text.contains(written)));
    let page = fs::read_to_string(root().join("docs/contracts.md")).unwrap();
    let rows: Vec<_> = page.lines().filter(|line| line.matches(" | ").count() == 1).collect();
    assert!(rows.len() > 30, "only {} clauses", rows.len());
    for row in rows.iter().filter(|row| !row.starts_with("clause |")) {
        let names = quoted(row.rsplit(" | ").next().unwrap());
        assert!(!names.is_empty(), "no test holds: {row}");
        for name in names {
            let found = match name.split_once(':') {
                Some((file, case)) => {
                    let file_of = |end| tests.join(format!("programs/{file}.{end}"));
                    let text = ["c", "cpp"].map(file_of).into_iter().find_map(|it| fs::read_to_string(it).ok());
                    let program = file.rsplit('/').next().unwrap();
                    let both = format!("\"{program}\" \"{case}\"");
                    let written = [format!("\"{program} {case}"), both, format!("\"{program}\"")];
                    text.is_some_and(|text| text.contains(case)) && runs(&written)
                }
                None => runs(&[format!("fn {name}("), format!("{name}: ")]),
            };
            assert!(found, "no test {name}: {row}");
        }
    }
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
        let is_call = code.contains("\"syscall\"") || code.contains("\"svc 0\"") || code.contains("\"svc #0\"");
        calls += usize::from(is_call);
        assert!(!is_call || file.starts_with(&door), "{} calls the kernel", file.display());
        assert!(!code.contains("libc::"), "{} uses libc", file.display());
    }
    assert!(calls > 1, "the door was not found");
}

#[test]
fn the_tool_imports_no_crate_of_the_allocator() {
    let mut read = 0;
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        if name != "ebb" && !name.starts_with("ebb-") {
            continue;
        }
        read += 1;
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let imports = manifest
            .split("\n[")
            .filter(|part| part.starts_with("dependencies]"))
            .flat_map(str::lines)
            .filter(|line| line.starts_with("ebbmalloc") && !line.starts_with("ebbmalloc-cli "));
        assert_eq!(imports.collect::<Vec<_>>(), [] as [&str; 0], "{name}");
    }
    assert!(read > 3, "only {read} crates of the tool");
}
