//! The variants: the ones that the tool knows, and the words of `--variants`.
//!
//! `NAME`, `NAME+KEY=VALUE...` or `NEW=NAME+KEY=VALUE...`, a comma between two, double quotes hold
//! commas and plus signs. `+trim-once` stands for a setting too. The known names are those of `ebb_allocators::tuning`. Pure: whether the allocator is installed is found out by `commands/compare`.

use super::container::Mounted;
use super::workload::VariantTable;
use ebb_allocators::{Allocator, Decay, all_tunings, tuning};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A requested variant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VariantSpec {
    /// Its name in the table.
    pub name: String,
    /// A known allocator, or the path of a shared object.
    pub allocator: String,
    /// A shared object preloaded together with the allocator; a template.
    pub beside: Option<String>,
    /// The program brings the allocator itself: nothing is preloaded.
    pub linked: bool,
    /// Started instead of the service's command.
    pub command: Option<Vec<String>>,
    /// The environment that makes it this variant.
    pub env: BTreeMap<String, String>,
    /// malloc_trim is called in it once from outside, when its last rest begins.
    pub trim_once: bool,
}

impl VariantSpec {
    /// Whether it runs on the C library's own allocator, where a malloc_trim at the end tells something.
    pub fn is_libc(&self) -> bool {
        self.allocator == Allocator::Glibc.name()
    }
}

/// The setting of a variant that is trimmed once from outside, when its last rest begins.
pub const TRIM_ONCE: &str = "trim-once";

/// Reads the items of a trial, in order; `own` are the definitions of the workload. The message says what is wrong.
pub fn parse(items: &[String], own: &BTreeMap<String, VariantTable>) -> Result<Vec<VariantSpec>, String> {
    let mut specs: Vec<VariantSpec> = Vec::new();
    for text in items {
        for item in split(text, ',')? {
            let spec = parse_item(item.trim(), own)?;
            if specs.iter().any(|other| other.name == spec.name) {
                return Err(format!("variant \"{0}\" is given twice; give one of them a name: NEW={0}", spec.name));
            }
            specs.push(spec);
        }
    }
    if specs.is_empty() { Err("no variant is chosen".to_owned()) } else { Ok(specs) }
}

fn parse_item(item: &str, own: &BTreeMap<String, VariantTable>) -> Result<VariantSpec, String> {
    let mut parts = split(item, '+')?.into_iter();
    let head = unquote(&parts.next().unwrap_or_default());
    let (new_name, base) = match head.split_once('=') {
        Some((name, base)) => (Some(name.to_owned()), base.to_owned()),
        None => (None, head),
    };
    let mut spec = lookup(&base, own)?;
    let mut plain_name = spec.name.clone();
    for setting in parts {
        if setting == TRIM_ONCE {
            if !spec.is_libc() {
                return Err(format!("variant \"{item}\": only glibc can be trimmed from outside"));
            }
            spec.trim_once = true;
            plain_name.push_str(&format!("+{TRIM_ONCE}"));
            continue;
        }
        let parts = setting.split_once('=').filter(|(key, _)| !key.is_empty());
        let (key, value) = parts.ok_or_else(|| format!("variant \"{item}\": \"{setting}\" is not KEY=VALUE"))?;
        let value = unquote(value);
        plain_name.push_str(&format!("+{key}={value}"));
        spec.env.insert(key.to_owned(), value);
    }
    spec.name = new_name.unwrap_or(plain_name);
    Ok(spec)
}

fn lookup(base: &str, own: &BTreeMap<String, VariantTable>) -> Result<VariantSpec, String> {
    if let Some(table) = own.get(base) {
        return Ok(VariantSpec {
            name: base.to_owned(),
            allocator: table.allocator.clone(),
            beside: table.beside.clone(),
            linked: table.linked,
            command: table.command.clone(),
            env: table.env.clone(),
            trim_once: false,
        });
    }
    if let Some((allocator, tuning)) = tuning(base) {
        let env = tuning.env.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let (name, allocator) = (tuning.name.to_owned(), allocator.to_string());
        return Ok(VariantSpec { name, allocator, env, ..VariantSpec::default() });
    }
    if base.contains('/') {
        let name = base.rsplit('/').next().unwrap_or(base).to_owned();
        return Ok(VariantSpec { name, allocator: base.to_owned(), ..VariantSpec::default() });
    }
    let known = all_tunings().map(|(_, tuning)| tuning.name);
    let known: Vec<&str> = own.keys().map(String::as_str).chain(known).collect();
    Err(format!("variant \"{base}\" is not known; known are {}, or the path of a shared object", known.join(", ")))
}

/// Cuts at a separator outside of double quotes; the quotes stay.
fn split(text: &str, separator: char) -> Result<Vec<String>, String> {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    for letter in text.chars() {
        quoted ^= letter == '"';
        if letter == separator && !quoted {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(letter);
        }
    }
    if quoted {
        return Err(format!("a double quote is not closed in \"{text}\""));
    }
    parts.retain(|part| !part.trim().is_empty());
    Ok(parts)
}

fn unquote(text: &str) -> String {
    text.replace('"', "")
}

/// A variant with the library that was found for it.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The requested variant.
    pub spec: VariantSpec,
    /// What is preloaded.
    pub library: Option<PathBuf>,
    /// When it means to give idle memory back.
    pub decay: Option<Decay>,
    /// A second preloaded library.
    pub beside: Option<PathBuf>,
    /// Files that a container has to see for this; paths of libraries are then its own.
    pub mounts: Vec<Mounted>,
    /// The service loads the library by itself.
    pub is_own: bool,
    /// What is preloaded besides, in place of what an image preloads.
    pub preloads: Option<String>,
    /// Why it cannot be run.
    pub unavailable: Option<String>,
}

impl Prepared {
    /// Nothing is preloaded.
    pub fn as_it_is(spec: VariantSpec) -> Prepared {
        Prepared {
            spec,
            library: None,
            decay: None,
            beside: None,
            mounts: Vec::new(),
            is_own: false,
            preloads: None,
            unavailable: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_one(text: &str) -> Result<Vec<VariantSpec>, String> {
        let env = BTreeMap::from([("MALLOC_CONF".into(), "narenas:1".into())]);
        let table = VariantTable { allocator: "jemalloc".into(), env, ..VariantTable::default() };
        parse(&[text.to_owned()], &BTreeMap::from([("mine".to_owned(), table)]))
    }

    #[test]
    fn the_usual_variants_parse_by_their_names() {
        let specs = parse(&ebb_allocators::USUAL.map(str::to_owned), &BTreeMap::new()).unwrap();
        assert_eq!(specs.len(), 9);
        assert_eq!(specs[1].env["MALLOC_ARENA_MAX"], "2");
        assert_eq!(specs.iter().filter(|spec| spec.is_libc()).count(), 3);
    }

    #[test]
    fn a_trim_from_outside_is_a_setting_of_glibc() {
        let specs = parse_one("glibc+trim-once,x=glibc-arena-2+trim-once").unwrap();
        let seen: Vec<(&str, bool)> = specs.iter().map(|spec| (spec.name.as_str(), spec.trim_once)).collect();
        assert_eq!(seen, [("glibc+trim-once", true), ("x", true)]);
        assert_eq!((specs[0].env.len(), specs[1].env.len()), (0, 1));
    }

    /// The words, and of the last item the name, the allocator and the settings.
    #[test]
    fn settings_names_quotes_and_paths_are_read() {
        const LIBRARY: &str = "./target/release/libebbmalloc.so";
        for (text, name, allocator, env) in [
            (
                "glibc,jemalloc-1000+PYTHONMALLOC=malloc",
                "jemalloc-1000+PYTHONMALLOC=malloc",
                "jemalloc",
                "MALLOC_CONF=background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:1000 PYTHONMALLOC=malloc",
            ),
            (
                r#"mine,x=jemalloc+MALLOC_CONF="a:1,b:2"+PYTHONMALLOC=malloc"#,
                "x",
                "jemalloc",
                "MALLOC_CONF=a:1,b:2 PYTHONMALLOC=malloc",
            ),
            ("mine", "mine", "jemalloc", "MALLOC_CONF=narenas:1"),
            (LIBRARY, "libebbmalloc.so", LIBRARY, ""),
        ] {
            let spec = parse_one(text).unwrap().pop().unwrap();
            assert_eq!((spec.name.as_str(), spec.allocator.as_str()), (name, allocator), "{text}");
            let settings = spec.env.iter().map(|(key, value)| format!("{key}={value}"));
            assert_eq!(settings.collect::<Vec<_>>().join(" "), env, "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        for (text, expected) in [
            ("glibk", "\"glibk\" is not known"),
            ("glibc+FOO", "\"FOO\" is not KEY=VALUE"),
            ("jemalloc+trim-once", "only glibc can be trimmed"),
            ("glibc,glibc", "given twice"),
            ("x=jemalloc+A=\"b", "not closed"),
            ("", "no variant"),
        ] {
            let message = parse_one(text).unwrap_err();
            assert!(message.contains(expected), "{text}: {message}");
        }
    }
}
