//! A Rust package: the dependency in `Cargo.toml`. The other half is in [`super::source`].

use std::collections::BTreeMap;
use std::ops::Range;

use ebb_allocators::Allocator;
use toml_edit::{Document, Item, Table};

use super::{Desired, Edit, Fixed, Refused};

/// A crate that is an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crate {
    /// Its package.
    pub package: &'static str,
    /// The allocator, by its name in our table; none for one that we do not know otherwise.
    pub allocator: Option<Allocator>,
    /// The type, which is its own value.
    pub type_name: &'static str,
    /// Required version; none of ebbmalloc, whose own [`Own`] says.
    version: Option<&'static str>,
}

/// Allocators as crates. The first three can be desired.
pub const CRATES: [Crate; 8] = [
    Crate::of_allocator(Allocator::Ebbmalloc, Allocator::Ebbmalloc.name(), "Ebbmalloc", None),
    Crate::of_allocator(Allocator::Jemalloc, "tikv-jemallocator", "Jemalloc", Some("0.7")),
    Crate::of_allocator(Allocator::Mimalloc, Allocator::Mimalloc.name(), "MiMalloc", Some("0.1")),
    Crate::of_allocator(Allocator::Jemalloc, "jemallocator", "Jemalloc", None),
    Crate { package: "snmalloc-rs", allocator: None, type_name: "SnMalloc", version: None },
    Crate { package: "rpmalloc", allocator: None, type_name: "RpMalloc", version: None },
    Crate::of_allocator(Allocator::Tcmalloc, Allocator::Tcmalloc.name(), "TCMalloc", None),
    Crate { package: "bump_alloc", allocator: None, type_name: "BumpAlloc", version: None },
];

impl Crate {
    const fn of_allocator(
        allocator: Allocator,
        package: &'static str,
        type_name: &'static str,
        version: Option<&'static str>,
    ) -> Self {
        Self { package, allocator: Some(allocator), type_name, version }
    }

    /// The crate of the desired allocator.
    pub fn of(desired: &Desired) -> Result<Crate, Refused> {
        let of_name = |it: &&Crate| it.allocator == Some(desired.allocator);
        let found = CRATES.iter().take(3).find(of_name).copied();
        found.ok_or_else(|| {
            Refused::cannot(
                format!("ebb knows no crate for {}", desired.allocator),
                "ebbmalloc, jemalloc and mimalloc can be a program's global allocator",
            )
        })
    }

    /// Its name in Rust.
    pub fn module(&self) -> String {
        self.package.replace('-', "_")
    }
}

/// Where the crate ebbmalloc comes from.
#[derive(Clone, Debug)]
pub enum Own {
    /// A checkout.
    Path(String),
    /// The registry.
    Version(String),
}

/// A package's manifest as it is read.
pub struct Manifest<'a> {
    name: &'a str,
    text: &'a str,
    document: Document<&'a str>,
}

/// A dependency in the text.
#[derive(Clone, Debug)]
pub struct Dependency {
    table: String,
    /// The crate.
    pub of: Crate,
    /// The whole entry; none where it is spread over a table of its own.
    at: Option<Range<usize>>,
}

impl<'a> Manifest<'a> {
    /// Reads the text of a package's `Cargo.toml`.
    pub fn parse(name: &'a str, text: &'a str) -> Result<Self, Refused> {
        let document = Document::parse(text).map_err(|error| Refused::in_file(name, error))?;
        if document.get("package").is_none() {
            let is_workspace = document.get("workspace").is_some();
            let what = if is_workspace { "a workspace without a package" } else { "no package" };
            return Err(Refused::not_understood(format!(
                "{name} is {what}: name the Cargo.toml of the package that has main.rs"
            )));
        }
        Ok(Self { name, text, document })
    }

    /// The paths of the package's programs that are named, by their names.
    pub fn programs(&self) -> BTreeMap<String, Option<String>> {
        let tables = self.document.get("bin").and_then(Item::as_array_of_tables);
        let text = |table: &Table, key: &str| Some(table.get(key)?.as_str()?.to_owned());
        let named = |table: &Table| Some((text(table, "name")?, text(table, "path")));
        tables.into_iter().flat_map(|it| it.iter()).filter_map(named).collect()
    }

    /// The package's name.
    pub fn package(&self) -> &str {
        let name = self.document.get("package").and_then(|it| it.get("name"));
        name.and_then(Item::as_str).unwrap_or("?")
    }

    /// Allocators among the dependencies: of all systems, and of some.
    pub fn allocators(&self) -> Vec<Dependency> {
        let all = self.document.get("dependencies").map(|it| ("dependencies".to_owned(), it));
        let targets = self.document.get("target").and_then(Item::as_table_like);
        let of_some = targets
            .into_iter()
            .flat_map(|it| it.iter())
            .filter_map(|(system, item)| Some((format!("target.{system}.dependencies"), item.get("dependencies")?)));
        all.into_iter().chain(of_some).flat_map(|(name, table)| self.of_table(&name, table)).collect()
    }

    fn of_table(&self, name: &str, table: &Item) -> Vec<Dependency> {
        let Some(table) = table.as_table_like() else {
            return Vec::new();
        };
        let known = table.iter().filter_map(|(key, item)| {
            let package = item.get("package").and_then(Item::as_str).unwrap_or(key);
            let of = *CRATES.iter().find(|it| it.package == package)?;
            Some(Dependency { table: name.to_owned(), of, at: self.entry(table.key(key), item) })
        });
        known.collect()
    }

    /// The bytes of `key = value`, or of `key.workspace = true`.
    fn entry(&self, key: Option<&toml_edit::Key>, item: &Item) -> Option<Range<usize>> {
        let start = key?.span()?.start;
        let end = match item.as_table() {
            Some(table) if table.is_dotted() && table.len() == 1 => table.iter().next()?.1.span()?.end,
            Some(_) => return None,
            None => item.span()?.end,
        };
        Some(start..end)
    }

    /// What makes `desired_crate` a dependency, in place of the allocators that are `gone` from the sources. `own` is the
    /// value of the dependency on ebbmalloc.
    pub fn fix(&self, desired_crate: Crate, gone: &[Crate], own: &Own, why: &str) -> Result<Fixed, Refused> {
        let mut fixed = Fixed::default();
        let present = self.allocators();
        let is_there = present.iter().any(|it| it.of == desired_crate);
        let value = match (desired_crate.version, own) {
            (Some(version), _) => super::insert::json(version),
            (None, Own::Version(version)) => super::insert::json(version),
            (None, Own::Path(path)) => format!("{{ path = {} }}", super::insert::json(path)),
        };
        let line = format!("{} = {value}", desired_crate.package);
        let mut left: Vec<&Dependency> = present.iter().filter(|it| gone.contains(&it.of)).collect();
        let is_main = |it: &&Dependency| it.at.is_some() && it.table == "dependencies";
        let replaced = left.iter().position(is_main).or(left.iter().position(|it| it.at.is_some()));
        if !is_there {
            match replaced.map(|it| left.remove(it)) {
                Some(Dependency { at: Some(at), of, .. }) => {
                    let why = format!("the crate, which replaces {}, which is unused: {why}", of.package);
                    fixed.edits.push(Edit::replace(at.clone(), line, why));
                }
                _ => fixed.edits.push(self.add(line, &format!("the crate: {why}"))),
            }
        }
        for Dependency { of, at, .. } in left {
            match at {
                Some(at) => fixed.edits.push(self.without_line(at, *of)),
                None => {
                    let note = format!("{}: {} is unused: remove its table", self.name, of.package);
                    fixed.notes.push(note);
                }
            }
        }
        self.verify(&fixed, desired_crate)?;
        Ok(fixed)
    }

    /// A new entry after the last one of `[dependencies]`, which is made where there is none.
    fn add(&self, line: String, why: &str) -> Edit {
        let table = self.document.get("dependencies").and_then(Item::as_table);
        let is_inline = |item: &&Item| item.as_table().is_none_or(|it| it.is_dotted());
        let entries = table.into_iter().flat_map(|it| it.iter().map(|(_, item)| item));
        let last = entries.filter(is_inline).filter_map(Item::span).map(|it| it.end).max();
        let header = || Some(table.filter(|it| !it.is_implicit())?.span()?.start);
        match last.or_else(header) {
            Some(place) => Edit::below(self.text, place, &[line], why),
            None => {
                let lines = [String::new(), "[dependencies]".to_owned(), line];
                Edit::below(self.text, self.text.len(), &lines, why)
            }
        }
    }

    /// Takes out a whole line.
    fn without_line(&self, at: &Range<usize>, of: Crate) -> Edit {
        let start = super::edit::line_start(self.text, at.start);
        let end = self.text[at.end..].find('\n').map_or(self.text.len(), |it| at.end + it + 1);
        Edit::replace(start..end, "", format!("{} is unused", of.package))
    }

    /// Nothing but dependencies on allocators has changed.
    fn verify(&self, fixed: &Fixed, desired_crate: Crate) -> Result<(), Refused> {
        let text = super::edit::apply(self.text, &fixed.edits);
        let strip = |text: &str| -> Result<(toml::Table, bool), Refused> {
            let parsed: Result<toml::Table, toml::de::Error> = text.parse();
            let mut table = parsed.map_err(|error| Refused::in_file(self.name, error))?;
            let mut has = false;
            let mut strip = |table: Option<&mut toml::Value>| {
                let Some(table) = table.and_then(toml::Value::as_table_mut) else { return };
                has |= table.contains_key(desired_crate.package);
                table.retain(|key, value| {
                    let package = value.get("package").and_then(toml::Value::as_str).unwrap_or(key);
                    !CRATES.iter().any(|it| it.package == package)
                });
            };
            strip(table.get_mut("dependencies"));
            if let Some(targets) = table.get_mut("target").and_then(toml::Value::as_table_mut) {
                targets.iter_mut().for_each(|(_, it)| strip(it.get_mut("dependencies")));
            }
            let all = table.get("dependencies").and_then(toml::Value::as_table);
            if all.is_some_and(toml::Table::is_empty) {
                table.remove("dependencies");
            }
            Ok((table, has))
        };
        let (before, _) = strip(self.text)?;
        let (after, has) = strip(&text)?;
        if before != after || !fixed.edits.is_empty() && !has {
            return Err(Refused::alters_more(self.name));
        }
        Ok(())
    }
}
