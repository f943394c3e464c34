//! docs/jemalloc.md and the code have the same settings and the same names, and whatever the page says is
//! there is shown by a test that exists.

use ebbmalloc_core::runtime::Hooks;
use ebbmalloc_core::runtime::conf::keys::{Effect, IGNORED, KEYS};
use ebbmalloc_jemalloc::nodes::ROOT;
use ebbmalloc_jemalloc::{Kind, Node};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

// The library needs them to be linked.
static HOOKS: Hooks = Hooks::NONE;

#[unsafe(no_mangle)]
extern "Rust" fn __ebbmalloc_hooks() -> &'static Hooks {
    &HOOKS
}

/// A row of a table: what it is about, what it says, and what shows it.
struct Row {
    names: Vec<String>,
    verdict: String,
    shown_by: Vec<String>,
}

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/jemalloc.md");
    fs::read_to_string(path).unwrap()
}

/// The texts between backquotes.
fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// `a.{b,c}` stands for `a.b` and `a.c`.
fn expanded(name: &str) -> Vec<String> {
    let Some((before, rest)) = name.split_once('{') else {
        return vec![name.to_owned()];
    };
    let (inside, after) = rest.split_once('}').expect("a closing brace");
    let each = |part: &str| expanded(&format!("{before}{part}{after}"));
    inside.split(',').flat_map(each).collect()
}

fn rows(page: &str, heading: &str) -> Vec<Row> {
    let start = page.find(heading).expect(heading) + heading.len();
    let part = &page[start..];
    let part = &part[..part.find("\n## ").unwrap_or(part.len())];
    part.lines()
        .filter(|line| line.starts_with('`') && line.contains(" | "))
        .map(|line| {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            assert!((2..=3).contains(&cells.len()), "{line}");
            let (verdict, _how) = cells[1].split_once(": ").unwrap_or((cells[1], ""));
            Row {
                names: quoted(cells[0]).iter().flat_map(|name| expanded(name)).collect(),
                verdict: verdict.to_owned(),
                shown_by: cells.get(2).map(|cell| quoted(cell)).unwrap_or_default(),
            }
        })
        .collect()
}

fn names(rows: &[Row]) -> BTreeSet<String> {
    let all: Vec<_> = rows.iter().flat_map(|row| row.names.clone()).collect();
    let set: BTreeSet<_> = all.iter().cloned().collect();
    for name in &set {
        let count = all.iter().filter(|other| *other == name).count();
        assert_eq!(count, 1, "{name} stands in {count} rows");
    }
    set
}

fn walk(nodes: &[Node], before: &str, depth: usize, names: &mut BTreeSet<String>) {
    for node in nodes {
        let name = format!("{before}{}", node.name);
        match &node.kind {
            Kind::Leaf { .. } => assert!(names.insert(name.clone()), "{name} twice"),
            Kind::Group(members) => walk(members, &format!("{name}."), depth, names),
            Kind::Indexed(indexed) => {
                let index = ["<i>", "<j>"][depth];
                walk(indexed.members, &format!("{name}.{index}."), depth + 1, names);
            }
        }
    }
}

fn same(page: &BTreeSet<String>, code: &BTreeSet<String>) {
    let missing: Vec<_> = code.difference(page).collect();
    let surplus: Vec<_> = page.difference(code).collect();
    assert!(
        missing.is_empty() && surplus.is_empty(),
        "docs/jemalloc.md lacks {missing:?} and has {surplus:?} too many"
    );
}

#[test]
fn every_setting_is_in_the_table_and_nothing_else() {
    let rows = rows(&page(), "\n## Settings\n");
    let ignored = IGNORED.split(' ').map(|name| (name, Effect::NoCounterpart));
    let all = KEYS.iter().map(|key| (key.name, key.effect)).chain(ignored);
    let code = all.clone().map(|(name, _)| name.to_owned()).collect();
    same(&names(&rows), &code);
    for (key, effect) in all {
        let row = rows.iter().find(|row| row.names.iter().any(|name| name == key));
        let none = row.unwrap().verdict == "no counterpart";
        assert_eq!(none, effect == Effect::NoCounterpart, "{key}");
    }
}

#[test]
fn every_name_of_the_tree_is_in_the_table_and_nothing_else() {
    let rows = rows(&page(), "\n## The tree of mallctl\n");
    let mut code = BTreeSet::new();
    walk(ROOT, "", 0, &mut code);
    same(&names(&rows), &code);
}

/// All sources of tests, and of what has tests inside. A case of a C program is named `FILE:CASE`.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let end = path.extension().and_then(|end| end.to_str());
        if path.is_dir() {
            sources(&path, found);
        } else if matches!(end, Some("rs" | "c" | "cpp")) {
            found.push(path);
        }
    }
}

#[test]
fn what_the_tables_promise_is_shown_by_a_test_that_exists() {
    let page = page();
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut files);
    let mut tests = BTreeSet::new();
    for file in &files {
        let (name, text) = (file.file_name().unwrap().to_string_lossy(), fs::read_to_string(file).unwrap());
        if !name.ends_with(".rs") {
            let cases = text.split("CASE(").skip(1).map(|rest| rest.split(')').next().unwrap());
            tests.extend(cases.map(|case| format!("{name}:{case}")));
            tests.insert(name.into_owned());
            continue;
        }
        for line in text.lines() {
            if let Some(rest) = line.trim_start().strip_prefix("fn ") {
                tests.insert(rest.split('(').next().unwrap().to_owned());
            }
        }
    }
    assert!(tests.len() > 200);
    for heading in ["\n## Settings\n", "\n## The tree of mallctl\n"] {
        for row in rows(&page, heading) {
            match row.verdict.as_str() {
                "no counterpart" => {}
                "same" | "differs" | "better" | "own" => {
                    assert!(!row.shown_by.is_empty(), "nothing shows {:?}", row.names);
                }
                other => panic!("{other} says nothing of {:?}", row.names),
            }
            for test in row.shown_by {
                assert!(tests.contains(&test), "no test {test} for {:?}", row.names);
            }
        }
    }
}
