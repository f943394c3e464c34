//! Imports between files: each path resolved to the file that defines what it names.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::Workspace;
use crate::module::{Module, ModuleId};

/// Depth of re-exports that is followed: globs can form a circle.
const MAX_DEPTH: usize = 16;

/// One file imports from another one.
#[derive(Debug, Clone, Copy)]
pub struct Edge<'a> {
    /// The file that imports.
    pub from: &'a str,
    /// The file that defines what is imported.
    pub to: &'a str,
    /// The first line that does so.
    pub line: usize,
}

/// The graph of files.
#[derive(Debug)]
pub struct Graph {
    edges: BTreeMap<String, BTreeMap<String, usize>>,
}

impl Graph {
    /// Resolves every path of the workspace.
    pub fn new(workspace: &Workspace) -> Graph {
        let mut graph = Graph { edges: BTreeMap::new() };
        for (id, module) in workspace.modules.iter().enumerate() {
            for import in &module.imports {
                let is_reexport = import.is_public;
                graph.add(workspace, id, &import.path, import.line, is_reexport, Scope::Import);
            }
            for (path, line) in &module.paths {
                graph.add(workspace, id, path, *line, false, Scope::Code);
            }
        }
        graph
    }

    fn add(
        &mut self,
        workspace: &Workspace,
        at: ModuleId,
        path: &[String],
        line: usize,
        is_reexport: bool,
        scope: Scope,
    ) {
        let Some(Target::Item(defined)) = (Resolver { workspace }).resolve(at, path, scope, 0) else {
            return;
        };
        let (from, to) = (&workspace.modules[at], &workspace.modules[defined]);
        let is_own = from.file == to.file || (is_reexport && is_below(workspace, defined, at));
        if !is_own {
            let lines = self.edges.entry(from.file.clone()).or_default();
            let first = lines.entry(to.file.clone()).or_insert(line);
            *first = line.min(*first);
        }
    }

    /// All edges, in the order of their files.
    pub fn edges(&self) -> impl Iterator<Item = Edge<'_>> {
        self.edges
            .iter()
            .flat_map(|(from, targets)| targets.iter().map(move |(to, line)| Edge { from, to, line: *line }))
    }

    /// The shortest way from a file over its imports back to it.
    pub fn circle(&self, file: &str) -> Option<Vec<&str>> {
        let mut ways: VecDeque<Vec<&str>> = VecDeque::from([Vec::new()]);
        let mut seen = BTreeSet::new();
        while let Some(way) = ways.pop_front() {
            let last = way.last().copied().unwrap_or(file);
            for to in self.edges.get(last).into_iter().flat_map(BTreeMap::keys) {
                let longer = [&way[..], &[to.as_str()]].concat();
                if to == file {
                    return Some(longer);
                }
                if seen.insert(to) {
                    ways.push_back(longer);
                }
            }
        }
        None
    }

    /// Sets of files that import each other in a circle.
    pub fn cycles(&self) -> Vec<BTreeSet<&str>> {
        let mut reachable: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for start in self.edges.keys() {
            let mut seen = BTreeSet::new();
            let mut next = vec![start.as_str()];
            while let Some(file) = next.pop() {
                for to in self.edges.get(file).into_iter().flat_map(BTreeMap::keys) {
                    if seen.insert(to.as_str()) {
                        next.push(to);
                    }
                }
            }
            reachable.insert(start, seen);
        }
        let reaches = |from: &str, to: &str| reachable.get(from).is_some_and(|seen| seen.contains(to));
        let mut cycles = Vec::new();
        let mut done: BTreeSet<&str> = BTreeSet::new();
        for file in self.edges.keys().map(String::as_str) {
            if reaches(file, file) && !done.contains(file) {
                let all = reachable[file].iter().copied();
                let cycle: BTreeSet<_> = all.filter(|other| reaches(other, file)).collect();
                done.extend(&cycle);
                cycles.push(cycle);
            }
        }
        cycles
    }
}

fn is_below(workspace: &Workspace, mut id: ModuleId, above: ModuleId) -> bool {
    while let Some(parent) = workspace.modules[id].parent {
        if parent == above {
            return true;
        }
        id = parent;
    }
    false
}

/// What a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Module(ModuleId),
    /// An item, by the module that defines it.
    Item(ModuleId),
}

/// Where a path stands: the `use` that binds a name does not explain its own first segment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Import,
    Code,
}

struct Resolver<'a> {
    workspace: &'a Workspace,
}

impl Resolver<'_> {
    fn module(&self, id: ModuleId) -> &Module {
        &self.workspace.modules[id]
    }

    fn resolve(&self, at: ModuleId, path: &[String], scope: Scope, depth: usize) -> Option<Target> {
        if depth > MAX_DEPTH {
            return None;
        }
        let (first, mut rest) = path.split_first()?;
        let mut target = match first.as_str() {
            "crate" => Target::Module(self.workspace.root_of(at)),
            "self" => Target::Module(at),
            "super" => {
                let mut above = self.module(at).parent?;
                while let Some(("super", after)) = rest.split_first().map(|(name, after)| (name.as_str(), after)) {
                    above = self.module(above).parent?;
                    rest = after;
                }
                Target::Module(above)
            }
            name => self.first_name(at, name, !rest.is_empty(), scope, depth)?,
        };
        while let (Target::Module(id), Some((name, after))) = (target, rest.split_first()) {
            // A name that no source has, such as one that a macro makes, counts for the module.
            let found = self.name_in(id, name, !after.is_empty(), depth + 1);
            target = found.unwrap_or(Target::Item(id));
            rest = after;
        }
        Some(target)
    }

    fn first_name(&self, at: ModuleId, name: &str, is_path: bool, scope: Scope, depth: usize) -> Option<Target> {
        let is_bound = |import: &&crate::module::Import| import.name.as_deref() == Some(name);
        let module = self.module(at);
        let found = if scope == Scope::Import && module.imports.iter().any(|import| is_bound(&import)) {
            // `use slab::Bin` next to `mod slab`; not the `use` itself.
            module.children.get(name).map(|id| Target::Module(*id))
        } else {
            self.name_in(at, name, is_path, depth + 1)
        };
        found.or_else(|| self.other_crate(at, name))
    }

    fn other_crate(&self, at: ModuleId, name: &str) -> Option<Target> {
        let package = &self.module(at).package;
        let dependencies = &self.workspace.crates.get(package)?.dependencies;
        let is_it = |other: &&String| self.workspace.crates[*other].import_name == name;
        // A program next to its library names it like a dependency.
        let other = dependencies.iter().chain([package]).find(is_it)?;
        let library = self.workspace.crates[other].library?;
        Some(Target::Module(library))
    }

    /// `is_path`: more names follow, so that a module is meant and not a function of the same name.
    fn name_in(&self, id: ModuleId, name: &str, is_path: bool, depth: usize) -> Option<Target> {
        if depth > MAX_DEPTH {
            return None;
        }
        let module = self.module(id);
        let child = module.children.get(name).map(|child| Target::Module(*child));
        if is_path && child.is_some() {
            return child;
        }
        if let Some(import) = module.imports.iter().find(|import| import.name.as_deref() == Some(name)) {
            let found = self.resolve(id, &import.path, Scope::Import, depth + 1);
            if found.is_some() {
                return found;
            }
        }
        if let Some(defined) = module.items.get(name) {
            return Some(Target::Item(*defined));
        }
        if child.is_some() {
            return child;
        }
        let globs = module.imports.iter().filter(|import| import.name.is_none());
        globs.filter_map(|glob| self.resolve(id, &glob.path, Scope::Import, depth + 1)).find_map(|from| match from {
            Target::Module(from) if from != id => self.name_in(from, name, is_path, depth + 1),
            _ => None,
        })
    }
}
