//! What counts as an import, on the two small crates in `fixture.cases`.

use std::fs;
use std::path::Path;

use test_layers::Workspace;
use test_layers::graph::Graph;

/// The two crates, in a folder of the test's own. `== PATH ==` is before each file.
fn fixture(name: &str) -> Graph {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    for file in include_str!("fixture.cases").split("== ").skip(1) {
        let (path, text) = file.split_once(" ==\n").unwrap();
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    Graph::new(&Workspace::read(&folder))
}

#[test]
fn a_path_is_an_import_of_the_file_that_defines_what_it_names() {
    let expected = [
        // use crate::{a::{self, b as c}, d}, then paths through the names that these bind.
        "lower/arena.rs -> lower/macros.rs",
        "lower/arena.rs -> lower/os.rs",
        "lower/arena.rs -> lower/slab/bin.rs",
        // An exported macro, which is a name of the crate's root.
        "lower/cache.rs -> lower/macros.rs",
        // A `use` inside a function; `$crate` in a macro.
        "lower/macros.rs -> lower/arena.rs",
        "lower/macros.rs -> lower/os.rs",
        // super::, through a re-export.
        "lower/slab/bin.rs -> lower/slab/sweep.rs",
        // A path among a macro's tokens.
        "lower/slab/sweep.rs -> lower/os.rs",
        // Another crate, through its re-exports, one of them with a star.
        "upper/lib.rs -> lower/cache.rs",
        "upper/lib.rs -> lower/slab/bin.rs",
    ];
    let graph = fixture("imports");
    let name = |file: &str| file.replace("crates/", "").replace("src/", "");
    let found: Vec<_> = graph.edges().map(|edge| format!("{} -> {}", name(edge.from), name(edge.to))).collect();
    assert_eq!(found, expected);
}

#[test]
fn files_that_import_each_other_are_a_cycle() {
    let graph = fixture("cycles");
    let cycles = graph.cycles();
    assert_eq!(cycles.len(), 1);
    assert!(cycles[0].iter().eq(["crates/lower/src/arena.rs", "crates/lower/src/macros.rs"].iter()));
}
