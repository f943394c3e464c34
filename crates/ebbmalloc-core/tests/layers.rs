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
