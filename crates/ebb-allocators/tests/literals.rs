//! No source of the tool names an allocator by a string literal: `Allocator` is the one place. Tests may.

use std::collections::BTreeSet;

use ebb_allocators::Allocator;
use test_layers::Workspace;

#[test]
fn an_allocator_is_named_by_its_table_only() {
    let names: BTreeSet<&str> = Allocator::ALL.map(Allocator::name).into();
    let workspace = Workspace::read(&Workspace::root());
    // The allocator's own crates are below the table.
    let of_tool = |package: &str| package.starts_with("ebb-") || package == "ebbmalloc-cli";
    let found = workspace.modules.iter().filter(|module| of_tool(&module.package)).flat_map(|module| {
        let literals = module.strings.iter().filter(|(text, _)| names.contains(text.as_str()));
        literals.map(|(text, line)| (module.file.as_str(), *line, text))
    });
    let found: Vec<_> = found.filter(|(file, ..)| *file != "crates/ebb-allocators/src/allocator.rs").collect();
    assert!(found.is_empty(), "write Allocator::NAME.name() of ebb_allocators instead: {found:?}");
}
