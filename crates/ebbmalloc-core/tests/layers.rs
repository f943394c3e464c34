//! A folder of the core uses only the folders below it: an upward `crate::` path fails this test.

use std::fs;
use std::path::{Path, PathBuf};

/// From top to bottom.
const LAYERS: [&str; 9] = [
    "runtime", "heap", "profile", "cache", "slab", "arena", "size", "base", "os",
];

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

fn is_test(path: &Path) -> bool {
    path.components().any(|part| {
        let name = part.as_os_str().to_string_lossy();
        name.contains("tests") || name == "fake.rs" || name == "fake"
    })
}

/// The folders that a file names by `crate::folder`, tests at its end left out.
fn uses(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    code.match_indices("crate::")
        .map(|(at, marker)| {
            let rest = &code[at + marker.len()..];
            rest.chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect()
        })
        .collect()
}

#[test]
fn no_folder_uses_one_above_it() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut wrong = Vec::new();
    let mut read = 0;
    for (height, layer) in LAYERS.iter().enumerate() {
        let mut files = Vec::new();
        sources(&src.join(layer), &mut files);
        for file in files.iter().filter(|file| !is_test(file)) {
            read += 1;
            for used in uses(&fs::read_to_string(file).unwrap()) {
                if LAYERS[..height].contains(&used.as_str()) {
                    wrong.push(format!(
                        "{} uses {used}, which is above {layer}",
                        file.display()
                    ));
                }
            }
        }
    }
    assert!(read > 30, "only {read} files read");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_folder_of_the_core_is_a_layer() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for entry in fs::read_dir(src).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            assert!(
                LAYERS.contains(&name.as_str()),
                "{name} has no place among the layers"
            );
        }
    }
}

/// The files of `runtime` below a folder, each with the top-level module that it belongs to.
fn runtime_files() -> Vec<(String, PathBuf)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/runtime");
    let mut files = Vec::new();
    sources(&folder, &mut files);
    files.retain(|file| !is_test(file));
    let mut named: Vec<_> = files
        .into_iter()
        .map(|file| {
            let inner = file.strip_prefix(&folder).unwrap().with_extension("");
            let parts: Vec<_> = inner.iter().map(|part| part.to_str().unwrap()).collect();
            (parts.join("::"), file)
        })
        .collect();
    named.sort();
    named
}

/// Each path of a tree of imports such as `super::{a::b, c::{d, e}}`.
fn flatten(tree: &str, before: &str, paths: &mut Vec<String>) {
    let Some((head, rest)) = tree.split_once('{') else {
        paths.push(format!("{before}{}", tree.trim()));
        return;
    };
    let before = format!("{before}{}", head.trim());
    let inner = &rest[..rest.rfind('}').unwrap()];
    let (mut depth, mut start) = (0, 0);
    for (at, letter) in inner.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                flatten(&inner[start..at], &before, paths);
                start = at + 1;
            }
            _ => {}
        }
    }
    if !inner[start..].trim().is_empty() {
        flatten(&inner[start..], &before, paths);
    }
}

/// The paths that a file names: by `use`, and in its code by `super::` or `crate::`.
fn paths(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap();
    let code: String = code
        .lines()
        .map(|line| line.split("//").next().unwrap().to_owned() + "\n")
        .collect();
    let mut found = Vec::new();
    for statement in code.split(';') {
        let statement = statement.trim_start();
        let used = statement.rsplit_once("\nuse ").map_or_else(
            || {
                let public = statement.strip_prefix("pub use ");
                public.or(statement.strip_prefix("use "))
            },
            |(_, tree)| Some(tree),
        );
        if let Some(tree) = used {
            flatten(tree, "", &mut found);
        }
    }
    for marker in ["super::", "crate::"] {
        let starts = code.match_indices(marker);
        // Not in the middle of a path.
        for (at, _) in starts.filter(|(at, _)| !code[..*at].ends_with(':')) {
            let path = |c: &char| c.is_alphanumeric() || *c == '_' || *c == ':';
            found.push(code[at..].chars().take_while(path).collect());
        }
    }
    found
}

/// Which of `files` a path in the file `from` leads to.
fn leads_to(path: &str, from: &str, files: &[(String, PathBuf)]) -> Option<usize> {
    let mut place: Vec<&str> = from.split("::").filter(|part| *part != "mod").collect();
    let mut parts = path.split("::").peekable();
    match parts.next()? {
        "crate" if parts.next() == Some("runtime") => place.clear(),
        "super" => {
            place.pop();
            while parts.next_if_eq(&"super").is_some() {
                place.pop()?;
            }
        }
        _ => return None,
    }
    let mut found = None;
    for part in parts {
        place.push(part);
        let name = place.join("::");
        let file = files
            .iter()
            .position(|(file, _)| *file == name || *file == format!("{name}::mod"));
        found = Some(file?);
        let next = format!("{name}::");
        if !files.iter().any(|(file, _)| file.starts_with(&next)) {
            break;
        }
    }
    found
}

/// The groups of modules in `runtime/mod.rs`, from bottom to top.
fn groups() -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/runtime/mod.rs");
    let text = fs::read_to_string(path).unwrap();
    let modules = |group: &str| -> Vec<String> {
        let lines = group.lines();
        let names = lines.filter_map(|line| {
            let line = line.strip_prefix("pub ").unwrap_or(line);
            Some(line.strip_prefix("mod ")?.strip_suffix(';')?.to_owned())
        });
        names.collect()
    };
    let groups = text.split("\n\n").map(modules);
    groups.filter(|group| !group.is_empty()).collect()
}

#[test]
fn the_runtime_is_read_from_bottom_to_top() {
    let files = runtime_files();
    let groups = groups();
    let height = |file: &str| {
        let module = file.split("::").next().unwrap().to_owned();
        groups.iter().position(|group| group.contains(&module))
    };
    assert!(groups.len() > 4 && files.len() > 40);
    let mut uses = vec![Vec::new(); files.len()];
    let mut wrong = Vec::new();
    for (index, (from, file)) in files.iter().enumerate() {
        if from.ends_with("mod") {
            continue;
        }
        for path in paths(&fs::read_to_string(file).unwrap()) {
            let Some(to) = leads_to(&path, from, &files).filter(|&to| to != index) else {
                continue;
            };
            uses[index].push(to);
            if height(&files[to].0) > height(from) {
                wrong.push(format!("{from} uses {}, which is above it", files[to].0));
            }
        }
    }
    assert!(uses.iter().flatten().count() > 100, "too few imports found");
    // Files at the bottom and at the top of those that are left are taken away; what stays is in a circle.
    let mut left: Vec<usize> = (0..files.len()).collect();
    loop {
        let among = left.clone();
        let uses_one = |file: &usize| uses[*file].iter().any(|used| among.contains(used));
        let is_used = |file: &usize| among.iter().any(|other| uses[*other].contains(file));
        left.retain(|file| uses_one(file) && is_used(file));
        if left.len() == among.len() {
            break;
        }
    }
    let circle: Vec<_> = left.iter().map(|&file| files[file].0.as_str()).collect();
    assert!(circle.is_empty(), "these files use each other: {circle:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
