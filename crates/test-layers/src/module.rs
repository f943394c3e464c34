//! A module as its source has it: names and paths, not resolved.

use std::collections::BTreeMap;

/// The number of a module in [`Workspace::modules`](crate::Workspace).
pub type ModuleId = usize;

/// A path in the source, split at `::`.
pub type Segments = Vec<String>;

/// One name of a `use` declaration.
#[derive(Debug, Clone)]
pub struct Import {
    /// What is imported; of a glob the part before `*`.
    pub path: Segments,
    /// The name that it has here, none for a glob.
    pub name: Option<String>,
    /// Whether it has a `pub`, with or without a restriction.
    pub is_public: bool,
    /// Line of the file.
    pub line: usize,
}

/// A file, or a `mod name { }` inside one.
#[derive(Debug, Clone, Default)]
pub struct Module {
    /// The package that the module belongs to.
    pub package: String,
    /// The file, relative to the root of the workspace.
    pub file: String,
    /// The module above, none for the root of a crate.
    pub parent: Option<ModuleId>,
    /// Modules below, by name.
    pub children: BTreeMap<String, ModuleId>,
    /// Names of functions, types, constants and the like, with the module that defines each: it is another one
    /// for exported macros, which are names of the crate's root.
    pub items: BTreeMap<String, ModuleId>,
    /// Names of `use` declarations, also those inside functions.
    pub imports: Vec<Import>,
    /// Every other path, with its line.
    pub paths: Vec<(Segments, usize)>,
    /// String literals, with their lines.
    pub strings: Vec<(String, usize)>,
    /// Lines of the file that are no test code; 0 for a module inside a file.
    pub lines: usize,
}
