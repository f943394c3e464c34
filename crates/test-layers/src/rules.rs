//! What the graph must keep, by the tables of `layers.toml`. Each violation is one text.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use toml::{Table, Value};

use crate::Workspace;
use crate::graph::{Edge, Graph};

/// Violations by the name of their rule.
pub type Violations = BTreeMap<&'static str, BTreeSet<String>>;

/// All violations of all rules.
pub fn violations(root: &Path, layers: &Table, workspace: &Workspace, graph: &Graph) -> Violations {
    BTreeMap::from([
        ("crates", crates(layers, workspace)),
        ("upwards", upwards(layers, workspace, graph)),
        ("cycles", cycles(graph)),
        ("reading_path", reading_path(root, layers, workspace, graph)),
    ])
}

fn names(value: Option<&Value>) -> Vec<&str> {
    let list = value.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).collect()
}

/// A crate depends on crates that stand after it in its own half, or on shared ones.
fn crates(layers: &Table, workspace: &Workspace) -> BTreeSet<String> {
    let halves = layers["crates"].as_table().expect("[crates]");
    let shared = names(halves.get("shared"));
    let mut wrong = BTreeSet::new();
    let mut listed = BTreeSet::new();
    for half in halves.values() {
        let half = names(Some(half));
        for (height, name) in half.iter().enumerate() {
            listed.insert(*name);
            let Some(found) = workspace.crates.get(*name) else {
                wrong.insert(format!("{name} is in layers.toml and does not exist"));
                continue;
            };
            for other in &found.dependencies {
                let is_allowed = half[height + 1..].contains(&other.as_str()) || shared.contains(&other.as_str());
                if !is_allowed {
                    wrong.insert(format!("{name} -> {other}"));
                }
            }
        }
    }
    let unlisted = workspace.crates.keys().filter(|name| !listed.contains(name.as_str()));
    wrong.extend(unlisted.map(|name| format!("{name} has no place in layers.toml")));
    wrong
}

/// The order of one folder's modules, from top to bottom.
struct Order<'a> {
    /// `crates/NAME/src/` or a folder below.
    prefix: String,
    heights: BTreeMap<&'a str, usize>,
}

impl<'a> Order<'a> {
    fn new(key: &str, rows: &'a [Value]) -> Self {
        let (name, folder) = key.split_once('/').unwrap_or((key, ""));
        let mut prefix = format!("crates/{name}/src/");
        if !folder.is_empty() {
            prefix += folder;
            prefix.push('/');
        }
        let mut heights = BTreeMap::new();
        for (height, row) in rows.iter().rev().enumerate() {
            let same = names(Some(row)).into_iter().chain(row.as_str());
            heights.extend(same.map(|name| (name, height)));
        }
        Order { prefix, heights }
    }

    /// The module of this folder that a file belongs to; none for a file elsewhere and for the folder's own file.
    fn module<'f>(&self, file: &'f str) -> Option<&'f str> {
        let rest = file.strip_prefix(&self.prefix)?;
        let name = rest.split('/').next()?.trim_end_matches(".rs");
        (!["lib", "main", "mod"].contains(&name)).then_some(name)
    }
}

/// Inside a crate a module imports modules below it. Modules in one row do not import each other.
fn upwards(layers: &Table, workspace: &Workspace, graph: &Graph) -> BTreeSet<String> {
    let tables = layers["folders"].as_table().expect("[folders]");
    let mut wrong = BTreeSet::new();
    for (key, rows) in tables {
        let order = Order::new(key, rows.as_array().expect("a list"));
        let files = workspace.modules.iter().map(|module| module.file.as_str());
        let present: BTreeSet<_> = files.filter_map(|file| order.module(file)).collect();
        let listed: BTreeSet<_> = order.heights.keys().copied().collect();
        wrong.extend(present.difference(&listed).map(|name| format!("{key}: {name} has no place in layers.toml")));
        wrong.extend(
            listed.difference(&present).map(|name| format!("{key}: {name} is in layers.toml and does not exist")),
        );
        for edge in graph.edges() {
            let (Some(from), Some(to)) = (order.module(edge.from), order.module(edge.to)) else {
                continue;
            };
            let (Some(height), Some(other)) = (order.heights.get(from), order.heights.get(to)) else {
                continue;
            };
            if from != to && other >= height {
                wrong.insert(format!("{} -> {}", edge.from, edge.to));
            }
        }
    }
    let with_folders = workspace.crates.iter().filter(|(_, found)| found.folders.len() > 1);
    let unlisted = with_folders.filter(|(_, found)| !tables.contains_key(&found.folder));
    wrong.extend(unlisted.map(|(name, _)| format!("{name}: its folders have no order in layers.toml")));
    wrong
}

/// Each file that is part of a cycle, one entry a file, so that a cycle can be taken apart file by file.
fn cycles(graph: &Graph) -> BTreeSet<String> {
    graph.cycles().into_iter().flatten().map(str::to_owned).collect()
}

/// Files that explain the allocator in one hour: few lines, all named in ARCHITECTURE.md, and no import from outside.
fn reading_path(root: &Path, layers: &Table, workspace: &Workspace, graph: &Graph) -> BTreeSet<String> {
    let path = layers["reading_path"].as_table().expect("[reading_path]");
    let files = names(path.get("files"));
    let besides = names(path.get("besides"));
    let architecture = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap_or_default();
    let mut wrong = BTreeSet::new();
    let mut lines = 0;
    for file in &files {
        match workspace.modules.iter().find(|module| module.file == *file) {
            Some(module) => lines += module.lines,
            None => _ = wrong.insert(format!("{file} does not exist")),
        }
        if !architecture.contains(*file) {
            wrong.insert(format!("ARCHITECTURE.md does not name {file}"));
        }
    }
    let most = path.get("most_lines").and_then(Value::as_integer).and_then(|most| usize::try_from(most).ok());
    if most.is_none_or(|most| lines > most) {
        wrong.insert("the path is too long".to_owned());
    }
    for edge in graph.edges().filter(|edge| files.contains(&edge.from)) {
        let is_allowed = files.contains(&edge.to) || besides.iter().any(|folder| edge.to.starts_with(folder));
        if !is_allowed {
            wrong.insert(format!("{} -> {}", edge.from, edge.to));
        }
    }
    wrong
}

/// Each violation with its rule, and with the line of the import or the shortest circle.
pub fn messages(found: &Violations, graph: &Graph) -> Vec<String> {
    let explained = |rule, violation| format!("{rule}: {violation}{}", explain(violation, graph));
    let rules = found.iter();
    rules.flat_map(|(rule, found)| found.iter().map(move |one| explained(rule, one))).collect()
}

/// The line of an import, or the shortest circle through a file.
fn explain(violation: &str, graph: &Graph) -> String {
    let is_it = |edge: &Edge| violation == format!("{} -> {}", edge.from, edge.to);
    match graph.edges().find(is_it) {
        Some(edge) => format!(" (line {})", edge.line),
        None => graph.circle(violation).map_or_else(String::new, |circle| format!(" -> {}", circle.join(" -> "))),
    }
}
