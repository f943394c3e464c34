//! No source of the tool names an allocator by a string literal: `Allocator` is the one place. Tests may.

use std::collections::BTreeSet;

use ebb_allocators::Allocator;
use test_layers::Workspace;

/// Files that still do. The list only shrinks.
const ALLOWED: &[&str] = &[
    "crates/ebb-inspect/src/ebbmalloc.rs",
    "crates/ebb-inspect/src/jemalloc.rs",
    "crates/ebb-inspect/src/jemalloc/settings.rs",
    "crates/ebb-inspect/src/mimalloc.rs",
    "crates/ebb-inspect/src/musl.rs",
    "crates/ebb-inspect/src/tcmalloc.rs",
    "crates/ebb-process/src/elf.rs",
    "crates/ebb-process/src/heap.rs",
    "crates/ebb-process/src/heap/regions.rs",
    "crates/ebb-process/src/pool.rs",
    "crates/ebb-process/src/python.rs",
];

#[test]
fn an_allocator_is_named_by_its_table_only() {
    let names: BTreeSet<&str> = Allocator::ALL.map(Allocator::name).into();
    let workspace = Workspace::read(&Workspace::root());
    // The allocator's own crates are below the table.
    let of_tool = |package: &str| package.starts_with("ebb-") || package == "ebb";
    let found =
        workspace.modules.iter().filter(|module| of_tool(&module.package)).flat_map(|module| {
            let literals = module.strings.iter().filter(|(text, _)| names.contains(text.as_str()));
            literals.map(|(text, line)| (module.file.as_str(), *line, text))
        });
    let found: Vec<_> =
        found.filter(|(file, ..)| *file != "crates/ebb-allocators/src/allocator.rs").collect();
    let new: Vec<_> = found.iter().filter(|(file, ..)| !ALLOWED.contains(file)).collect();
    assert!(new.is_empty(), "write Allocator::NAME.name() of ebb_allocators instead: {new:?}");
    let with: BTreeSet<&str> = found.iter().map(|(file, ..)| *file).collect();
    let clean: Vec<_> = ALLOWED.iter().filter(|file| !with.contains(**file)).collect();
    assert!(clean.is_empty(), "remove from ALLOWED: {clean:?}");
}
