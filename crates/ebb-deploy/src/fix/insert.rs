//! A new entry in a YAML text, in the style of the existing entries: same indentation, same style, same
//! quotes. Used for compose files and Kubernetes manifests; pure.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::check::declared::Service;
use crate::check::declared::yaml::{self, Kind, Node, ScalarStyle, Style};

use super::desired::Setting;
use super::edit::{apply, line_end, line_start};
use super::{Edit, Refused};

/// A new entry: its lines in block style, the first without indentation, and its text in flow style.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// For a block: `- a: b` and `  c: d`, or `a: b`.
    pub block: Vec<String>,
    pub flow: String,
}

/// Why a place takes no entry.
type NoPlace = &'static str;

/// Adds entries after the last one of a collection.
fn append(text: &str, collection: &Node, entries: &[Entry], why: &str) -> Result<Edit, NoPlace> {
    let (style, last) = match &collection.kind {
        Kind::Mapping(pairs, style) => (*style, pairs.last().map(|(key, value)| (key, value))),
        Kind::Sequence(items, style) => (*style, items.last().map(|it| (it, it))),
        Kind::Alias(_) => return Err("it is an alias of another node"),
        Kind::Scalar(..) => return Err("it is not a collection"),
    };
    match (style, last) {
        (Style::Flow, Some((first, end))) => Ok(in_flow(text, first, end, entries, why)),
        (Style::Flow, None) => {
            let inner: Vec<&str> = entries.iter().map(|it| it.flow.as_str()).collect();
            let at = collection.at.start + 1;
            Ok(Edit::replace(at..at, inner.join(", "), why))
        }
        (Style::Block, Some((first, end))) => {
            let column = column(text, collection, first)?;
            Ok(below(text, end, column, entries, why))
        }
        (Style::Block, None) => Err("it is empty"),
    }
}

/// Adds a key with a collection of entries to a mapping; `empty` is the key where it is there without a value.
fn append_key(
    text: &str,
    mapping: &Node,
    key: &str,
    indent: usize,
    entries: &[Entry],
    why: &str,
) -> Result<Edit, NoPlace> {
    if let Some((name, value)) = mapping.pair(key) {
        if !value.is_empty() || !value.at.is_empty() {
            return append(text, value, entries, why);
        }
        // `environment:` and nothing after it.
        return Ok(Edit::below(text, name.at.end, &padded(entries, name.column + indent), why));
    }
    let is_list = entries.iter().any(|it| it.block.first().is_some_and(|line| line.starts_with("- ")));
    let inner: Vec<&str> = entries.iter().map(|it| it.flow.as_str()).collect();
    let (open, close) = if is_list { ('[', ']') } else { ('{', '}') };
    let mut block = vec![format!("{key}:")];
    block.extend(padded(entries, indent));
    let name = if is_json(text, mapping) { format!("\"{key}\"") } else { key.to_owned() };
    let entry = Entry { block, flow: format!("{name}: {open}{}{close}", inner.join(", ")) };
    append(text, mapping, &[entry], why)
}

/// The same for entries with a reason each: one edit an entry where the key has a value already, else one for all.
fn append_all(
    text: &str,
    mapping: &Node,
    key: &str,
    indent: usize,
    entries: Vec<(Entry, String)>,
) -> Result<Vec<Edit>, NoPlace> {
    let has_value = mapping.get(key).is_some_and(|it| it.pairs().len() + it.items().len() > 0);
    if has_value {
        let one = |(entry, why): (Entry, String)| append_key(text, mapping, key, indent, &[entry], &why);
        return entries.into_iter().map(one).collect();
    }
    if entries.is_empty() {
        return Ok(Vec::new());
    }
    let (entries, whys): (Vec<Entry>, Vec<String>) = entries.into_iter().unzip();
    Ok(vec![append_key(text, mapping, key, indent, &entries, &whys.join("; "))?])
}

/// The service that a change is about: its text and its position there.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub name: &'a str,
    pub text: &'a str,
    pub service: &'a Service,
    pub node: &'a Node,
    /// What to do where no entry can be added.
    pub by_hand: &'static str,
}

impl Place<'_> {
    /// File, line and service, for messages.
    pub fn at(&self) -> String {
        format!("{}:{}: {}", self.name, self.service.line, self.service.name)
    }

    /// Sets variables below `key`, where a new one has `leaves`: `value` writes one that is there, `entry` a new one.
    pub fn set(
        &self,
        settings: &[Setting],
        (key, leaves, indent): (&'static str, usize, usize),
        value: &dyn Fn(&Range<usize>, &Setting) -> String,
        entry: &dyn Fn(&Setting) -> Entry,
    ) -> Result<(Vec<Edit>, Counts), Refused> {
        let mut counts = Counts::default();
        let (mut edits, mut new) = (Vec::new(), Vec::new());
        for setting in settings {
            if let Some(variable) = self.service.variable(&setting.name) {
                counts.replaced += 1;
                let value = value(&variable.at, setting);
                edits.push(Edit::replace(variable.at.clone(), value, &*setting.why));
            } else {
                counts.add(key, leaves);
                new.push((entry(setting), setting.why.clone()));
            }
        }
        edits.extend(self.append(self.node, key, indent, new)?);
        Ok((edits, counts))
    }

    /// [`append_all`], and a refusal where that is not possible.
    pub fn append(
        &self,
        node: &Node,
        key: &str,
        indent: usize,
        entries: Vec<(Entry, String)>,
    ) -> Result<Vec<Edit>, Refused> {
        append_all(self.text, node, key, indent, entries).map_err(|error| {
            let what = format!("{}: no entry can be added to {key}: {error}", self.at());
            Refused::cannot(what, self.by_hand)
        })
    }
}

/// Whether the keys of a mapping in brackets are quoted, as those of JSON are.
pub fn is_json(text: &str, mapping: &Node) -> bool {
    let is_quoted = |it: &Node| text[it.at.clone()].starts_with('"');
    match &mapping.kind {
        Kind::Mapping(pairs, Style::Flow) => pairs.first().is_some_and(|(key, _)| is_quoted(key)),
        Kind::Sequence(items, Style::Flow) => items.first().is_some_and(|it| is_json(text, it) || is_quoted(it)),
        _ => false,
    }
}

fn in_flow(text: &str, first: &Node, end: &Node, entries: &[Entry], why: &str) -> Edit {
    let at = end.end();
    // Entries on lines of their own get one as well.
    let line_start = line_start(text, first.at.start);
    let before = &text[line_start..first.at.start];
    let gap = if line_start > 0 && before.trim().is_empty() {
        format!(",{}{before}", line_end(text))
    } else {
        ", ".to_owned()
    };
    let new: String = entries.iter().map(|it| format!("{gap}{}", it.flow)).collect();
    Edit::replace(at..at, new, why)
}

fn below(text: &str, end: &Node, column: usize, entries: &[Entry], why: &str) -> Edit {
    // The place of a text of several lines reaches over the empty lines after it.
    let end = text[..end.end()].trim_end().len();
    Edit::below(text, end, &padded(entries, column), why)
}

fn padded(entries: &[Entry], column: usize) -> Vec<String> {
    let pad = " ".repeat(column);
    entries.iter().flat_map(|it| &it.block).map(|line| format!("{pad}{line}")).collect()
}

/// The column of the entries of a block: of the keys, or of the dashes.
fn column(text: &str, collection: &Node, last: &Node) -> Result<usize, NoPlace> {
    if matches!(collection.kind, Kind::Mapping(..)) {
        return Ok(last.column);
    }
    let line_start = line_start(text, last.at.start);
    let before = &text[line_start..last.at.start];
    let dash = before.rfind('-').ok_or("its items are below their dashes")?;
    Ok(before[..dash].chars().count())
}

/// A value as the values around it are written; quoted where it would be no text otherwise.
pub fn value(text: &str, example: Option<&Node>) -> String {
    let quote = match example.map(|it| &it.kind) {
        Some(Kind::Scalar(_, quote)) => *quote,
        _ => ScalarStyle::Plain,
    };
    let is_text = text.starts_with(|it: char| it.is_ascii_alphabetic() || it == '/' || it == '_')
        && text.chars().all(|it| it.is_ascii_alphanumeric() || "-_./:,=+@%".contains(it))
        && !text.ends_with(':')
        && !"true false yes no on off null y n".split(' ').any(|it| text.eq_ignore_ascii_case(it));
    match quote {
        ScalarStyle::SingleQuoted => format!("'{}'", text.replace('\'', "''")),
        ScalarStyle::DoubleQuoted => json(text),
        _ if is_text => text.to_owned(),
        _ => json(text),
    }
}

/// A text in double quotes, as YAML in brackets and JSON both read it.
pub fn json(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Puts edits at one place in the order of their depth: a continued list stands before the next key
/// of the mapping around it, though that may have the same column.
pub fn in_order(edits: &mut [Edit]) {
    let outwards = |edit: &Edit| {
        let line = edit.text.trim_start_matches(['\r', '\n']);
        let column = line.len() - line.trim_start_matches(' ').len();
        std::cmp::Reverse((column, line.trim_start().starts_with("- ")))
    };
    edits.sort_by_key(|edit| (edit.at.start, edit.at.end, outwards(edit)));
}

/// What a proposal changes, counted in leaves of the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub replaced: usize,
    /// New leaves, by their parent key.
    pub added: BTreeMap<&'static str, usize>,
}

impl Counts {
    pub fn add(&mut self, key: &'static str, leaves: usize) {
        *self.added.entry(key).or_default() += leaves;
    }

    pub fn extend(&mut self, other: Counts) {
        self.replaced += other.replaced;
        for (key, leaves) in other.added {
            self.add(key, leaves);
        }
    }
}

/// Asserts of a proposal that everything else is what it was: each leaf of the old text is in the new one, but for
/// the replaced ones, and what is new stands where it was meant to.
pub fn verify(name: &str, text: &str, edits: &[Edit], counts: &Counts) -> Result<(), Refused> {
    let leaves = |text: &str| -> Result<BTreeMap<String, String>, Refused> {
        let documents = yaml::parse(text).map_err(|error| Refused::in_file(name, error))?;
        let roots = documents.roots.iter().enumerate();
        let named = roots.flat_map(|(number, root)| {
            root.leaves().into_iter().map(move |(path, value)| (format!("{number}{path}"), value))
        });
        Ok(named.collect())
    };
    let defect = || Refused::alters_more(name);
    let before = leaves(text)?;
    let mut after = leaves(&apply(text, edits))?;
    let mut replaced = 0;
    for (path, value) in &before {
        match after.remove(path) {
            Some(now) if now == *value => {}
            Some(_) => replaced += 1,
            // A key without a value has become one with some.
            None if value.is_empty() => {}
            None => return Err(defect()),
        }
    }
    let mut added: BTreeMap<&str, usize> = BTreeMap::new();
    for path in after.keys() {
        let below = path.split('/').find_map(|part| counts.added.keys().find(|key| **key == part));
        *added.entry(below.ok_or_else(defect)?).or_default() += 1;
    }
    if replaced != counts.replaced || added != counts.added {
        return Err(defect());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> Entry {
        Entry { block: vec!["N: v".to_owned()], flow: "N: v".to_owned() }
    }

    #[test]
    fn a_pair_goes_behind_the_last_one() {
        for (text, expected) in [
            ("e:\n    A: 1 # c\n    # d\nf: 2\n", "e:\n    A: 1 # c\n    N: v\n    # d\nf: 2\n"),
            ("e: {A: 1}\nf: 2\n", "e: {A: 1, N: v}\nf: 2\n"),
            ("e: {}\n", "e: {N: v}\n"),
            ("f: 2\n", "f: 2\ne:\n  N: v\n"),
            ("e:\nf: 2\n", "e:\n  N: v\nf: 2\n"),
            ("e:\n  A: |\n    x\n\n    y\n\nf: 2", "e:\n  A: |\n    x\n\n    y\n  N: v\n\nf: 2"),
            ("e:\r\n  A: 1\r\n", "e:\r\n  A: 1\r\n  N: v\r\n"),
            ("e:\n  A: 1", "e:\n  A: 1\n  N: v"),
            ("{\n  \"e\": {\n    \"A\": 1\n  }\n}\n", "{\n  \"e\": {\n    \"A\": 1,\n    N: v\n  }\n}\n"),
        ] {
            let documents = yaml::parse(text).unwrap();
            let edit = append_key(text, &documents.roots[0], "e", 2, &[pair()], "").unwrap();
            assert_eq!(apply(text, std::slice::from_ref(&edit)), expected);
            let mut counts = Counts::default();
            counts.add("e", 1);
            verify("f", text, &[edit], &counts).unwrap();
        }
    }

    #[test]
    fn a_list_goes_on_before_the_next_key() {
        let text = "v:\n- a\n";
        let documents = yaml::parse(text).unwrap();
        let item = Entry { block: vec!["- b".to_owned()], flow: String::new() };
        let key = append_key(text, &documents.roots[0], "e", 2, &[pair()], "").unwrap();
        let list = append_key(text, &documents.roots[0], "v", 0, &[item], "").unwrap();
        let mut edits = [key, list];
        in_order(&mut edits);
        assert_eq!(apply(text, &edits), "v:\n- a\n- b\ne:\n  N: v\n");
    }

    #[test]
    fn values_are_quoted_where_they_would_be_no_text() {
        let documents = yaml::parse("a: 'x'\nb: \"y\"\n").unwrap();
        let (single, double) = (documents.roots[0].get("a"), documents.roots[0].get("b"));
        for (text, example, written) in [
            ("/l/a.so", None, "/l/a.so"),
            ("2", None, "\"2\""),
            ("true", None, "\"true\""),
            ("a b", None, "\"a b\""),
            ("v", single, "'v'"),
            ("v", double, "\"v\""),
        ] {
            assert_eq!(value(text, example), written);
        }
    }

    #[test]
    fn an_alias_takes_no_entry() {
        let text = "x: &x\n  A: 1\ne: *x\n";
        let documents = yaml::parse(text).unwrap();
        assert!(append_key(text, &documents.roots[0], "e", 2, &[pair()], "").is_err());
    }

    #[test]
    fn a_change_of_more_than_was_meant_is_seen() {
        let fails = |edit: Edit| verify("f", "a: 1\n", &[edit], &Counts::default()).is_err();
        assert!(fails(Edit::replace(0..1, "b", "")));
        assert!(fails(Edit::replace(3..4, "2", "")));
        assert!(fails(Edit::replace(5..5, "e: 2\n", "")));
        assert!(!fails(Edit::replace(5..5, "# e: 2\n", "")));
    }
}
