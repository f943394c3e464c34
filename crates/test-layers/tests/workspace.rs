//! The layers of the workspace: `layers.toml` has the order, and the test fails on each violation.

use std::fs;
use std::path::Path;

use test_layers::graph::Graph;
use test_layers::{Workspace, rules};

#[test]
fn imports_go_down_and_files_form_no_cycle() {
    let root = Workspace::root();
    let workspace = Workspace::read(&root);
    let graph = Graph::new(&workspace);
    assert!(graph.edges().count() > 500, "only {} imports found", graph.edges().count());
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("layers.toml");
    let layers = fs::read_to_string(table).unwrap().parse().unwrap();
    let messages = rules::messages(&rules::violations(&root, &layers, &workspace, &graph), &graph);
    assert!(
        messages.is_empty(),
        "\n{}\n\nMove what is needed to the lower file, or pass it as an argument.\n",
        messages.join("\n")
    );
}
