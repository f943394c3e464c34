//! The layers of the workspace: `layers.toml` has the order, `known.toml` the violations that exist. The test fails on
//! a new one, and on a listed one that is gone. `LAYERS=write cargo test -p test-layers` writes the list anew,
//! which is for removals and renames.

use std::path::Path;
use std::{env, fs};

use test_layers::graph::Graph;
use test_layers::{Workspace, rules};

fn table(path: &Path) -> toml::Table {
    let text = fs::read_to_string(path).unwrap();
    text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn imports_go_down_and_files_form_no_cycle() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = Workspace::root();
    let workspace = Workspace::read(&root);
    let graph = Graph::new(&workspace);
    assert!(graph.edges().count() > 500, "only {} imports found", graph.edges().count());
    let found = rules::violations(&root, &table(&here.join("layers.toml")), &workspace, &graph);
    let list = here.join("known.toml");
    if env::var_os("LAYERS").is_some_and(|value| value == "write") {
        fs::write(&list, rules::to_text(&found)).unwrap();
    }
    let messages = rules::compare(&found, &table(&list), &graph);
    assert!(
        messages.is_empty(),
        "\n{}\n\nA new import upwards or cycle: move what is needed to the lower file, or pass it as an argument.\n\
         A listed one that is gone: LAYERS=write cargo test -p test-layers\n",
        messages.join("\n")
    );
}
