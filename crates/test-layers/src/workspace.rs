//! The crates of the workspace and all their modules, read from the roots down as the compiler does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::module::{Module, ModuleId};
use crate::parse::{self, Parsed};

/// One package.
#[derive(Debug, Clone, Default)]
pub struct Crate {
    /// Names of the workspace's crates among `[dependencies]`, of every target.
    pub dependencies: BTreeSet<String>,
    /// Its name below `crates`.
    pub folder: String,
    /// What others import it as.
    pub import_name: String,
    /// The root of the library.
    pub library: Option<ModuleId>,
    /// Folders right under `src`.
    pub folders: BTreeSet<String>,
}

/// All crates and modules.
#[derive(Debug, Default)]
pub struct Workspace {
    /// By the package's name.
    pub crates: BTreeMap<String, Crate>,
    /// Modules of all crates; a [`ModuleId`] is an index.
    pub modules: Vec<Module>,
}

impl Workspace {
    /// The folder of the workspace that this crate belongs to.
    pub fn root() -> PathBuf {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        folder.ancestors().nth(2).unwrap_or(folder).to_owned()
    }

    /// Reads every crate in `root/crates`.
    ///
    /// # Panics
    ///
    /// If a manifest or a source cannot be read.
    pub fn read(root: &Path) -> Workspace {
        let mut workspace = Workspace::default();
        let folders = fs::read_dir(root.join("crates")).expect("no folder crates");
        let mut folders: Vec<_> = folders.map(|entry| entry.unwrap().path()).collect();
        folders.sort();
        let mut manifests = Vec::new();
        for folder in folders {
            let Ok(text) = fs::read_to_string(folder.join("Cargo.toml")) else {
                continue;
            };
            let manifest: toml::Table = text.parse().unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
            let name = manifest["package"]["name"].as_str().unwrap().to_owned();
            manifests.push((name, folder, manifest));
        }
        let names: BTreeSet<_> = manifests.iter().map(|(name, ..)| name.clone()).collect();
        for (name, folder, manifest) in manifests {
            let library_name = manifest.get("lib").and_then(|library| library.get("name")?.as_str());
            let mut found = Crate {
                folder: folder.file_name().unwrap().to_str().unwrap().to_owned(),
                dependencies: dependencies(&manifest, &names),
                import_name: library_name.unwrap_or(&name).replace('-', "_"),
                ..Crate::default()
            };
            let source = folder.join("src");
            found.folders = subfolders(&source);
            let library = source.join("lib.rs");
            if library.exists() {
                found.library = Some(workspace.add_root(root, &name, &library));
            }
            let program = source.join("main.rs");
            if program.exists() {
                workspace.add_root(root, &name, &program);
            }
            workspace.crates.insert(name, found);
        }
        workspace
    }

    fn add_root(&mut self, root: &Path, package: &str, file: &Path) -> ModuleId {
        let folder = file.parent().unwrap();
        self.add_file(root, package, file, folder, None)
    }

    /// `folder`: where the files of its children lie.
    fn add_file(
        &mut self,
        root: &Path,
        package: &str,
        file: &Path,
        folder: &Path,
        parent: Option<ModuleId>,
    ) -> ModuleId {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed = parse::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let name = file.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        let lines = text.lines().count() - parsed.test_lines;
        let module = Module { package: package.to_owned(), file: name, parent, lines, ..Module::default() };
        self.add(root, module, parsed, folder)
    }

    fn add(&mut self, root: &Path, mut module: Module, parsed: Parsed, folder: &Path) -> ModuleId {
        let id = self.modules.len();
        module.items = parsed.items.into_iter().map(|name| (name, id)).collect();
        module.imports = parsed.imports;
        module.paths = parsed.paths;
        module.strings = parsed.strings;
        let (package, file) = (module.package.clone(), module.file.clone());
        self.modules.push(module);
        let crate_root = self.root_of(id);
        for name in parsed.exported_macros {
            self.modules[crate_root].items.insert(name, id);
        }
        for (name, path) in parsed.files {
            let (source, below) = match path {
                Some(path) => {
                    let source = root.join(&file).with_file_name(path);
                    let below = source.parent().unwrap().to_owned();
                    (source, below)
                }
                None if folder.join(format!("{name}.rs")).exists() => {
                    (folder.join(format!("{name}.rs")), folder.join(&name))
                }
                None => (folder.join(&name).join("mod.rs"), folder.join(&name)),
            };
            let child = self.add_file(root, &package, &source, &below, Some(id));
            self.modules[id].children.insert(name, child);
        }
        for (name, inner) in parsed.inline {
            let module = Module { package: package.clone(), file: file.clone(), parent: Some(id), ..Module::default() };
            let child = self.add(root, module, inner, &folder.join(&name));
            self.modules[id].children.insert(name, child);
        }
        id
    }

    /// The root of the crate that a module belongs to.
    pub fn root_of(&self, mut id: ModuleId) -> ModuleId {
        while let Some(parent) = self.modules[id].parent {
            id = parent;
        }
        id
    }
}

/// Dependencies and build dependencies on other crates of the workspace; not those of tests.
fn dependencies(manifest: &toml::Table, names: &BTreeSet<String>) -> BTreeSet<String> {
    let mut tables = vec![manifest];
    if let Some(targets) = manifest.get("target").and_then(|value| value.as_table()) {
        tables.extend(targets.values().filter_map(|value| value.as_table()));
    }
    let mut found = BTreeSet::new();
    for table in tables {
        for kind in ["dependencies", "build-dependencies"] {
            if let Some(entries) = table.get(kind).and_then(|value| value.as_table()) {
                found.extend(entries.keys().filter(|name| names.contains(*name)).cloned());
            }
        }
    }
    found
}

fn subfolders(source: &Path) -> BTreeSet<String> {
    let Ok(entries) = fs::read_dir(source) else {
        return BTreeSet::new();
    };
    let folders = entries.map(Result::unwrap).filter(|entry| entry.path().is_dir());
    folders.map(|entry| entry.file_name().into_string().unwrap()).collect()
}
