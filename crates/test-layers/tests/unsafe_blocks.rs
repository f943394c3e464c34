//! No crate has more `unsafe` blocks than the table in SECURITY.md says.

use std::fs;

use test_layers::Workspace;

/// Blocks in the sources of a folder, without comments and tests.
fn count(folder: &std::path::Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let of = |path: std::path::PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            return if name == "tests" { 0 } else { count(&path) };
        }
        if !name.ends_with(".rs") || name.ends_with("tests.rs") {
            return 0;
        }
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("\nmod tests {").next().unwrap_or_default();
        let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
        lines.map(|line| line.matches("unsafe {").count()).sum()
    };
    entries.map(|entry| of(entry.path())).sum()
}

#[test]
fn no_crate_has_more_unsafe_blocks_than_the_table_says() {
    let root = Workspace::root();
    let page = fs::read_to_string(root.join("SECURITY.md")).unwrap();
    let said = |name: &str| -> usize {
        let row = page.lines().find_map(|line| line.strip_prefix(&format!("`{name}` | ")));
        row.map_or(0, |number| number.parse().unwrap())
    };
    let mut all = 0;
    for entry in fs::read_dir(root.join("crates")).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let found = count(&entry.path().join("src"));
        all += found;
        let most = said(&name);
        assert!(
            found <= most,
            "{name} has {found} unsafe blocks, SECURITY.md says {most}: do without, or say why and change it"
        );
    }
    assert!(all > 500, "only {all} found");
}
