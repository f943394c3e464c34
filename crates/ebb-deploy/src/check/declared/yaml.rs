//! A YAML text as trees whose every node knows its position in the text: what no writer of YAML
//! keeps (comments, order, quoting) stays, because a change is made in the text itself.
//!
//! Used by the readers of compose files and Kubernetes manifests in this folder, and by `fix`. The
//! syntax is saphyr-parser's; its places are of characters, ours of bytes. Pure.
//!
//! No library has this tree. saphyr's `MarkedYaml` and marked-yaml do not tell block from flow collections, and the latter
//! refuses anchors; yaml-rust2 tells only where a node begins. yaml-edit 0.3 keeps comments, but takes `a: b: c` and tabs
//! for YAML, and gives a new text, where each of our changes has a place and a reason. yamlpath needs tree-sitter, in C.

use std::ops::Range;

pub use saphyr_parser::ScalarStyle;
use saphyr_parser::{Event, Parser, Span};

/// No file written by hand is nested deeper; the tree is walked by recursion.
const MOST_LEVELS: usize = 100;

#[derive(Clone, Debug, Default)]
pub struct Documents {
    pub roots: Vec<Node>,
    /// Anchors that something refers to: what is added there is added in every such place.
    pub shared: Vec<usize>,
}

#[derive(Clone, Debug)]
pub struct Node {
    pub kind: Kind,
    /// Its bytes; of a collection in block style only the start counts.
    pub at: Range<usize>,
    /// The number of its anchor; 0 for none.
    pub anchor: usize,
    /// Characters before it on its line.
    pub column: usize,
    /// Counted from one.
    pub line: usize,
}

#[derive(Clone, Debug)]
pub enum Kind {
    /// Text, and how it is written.
    Scalar(String, ScalarStyle),
    Mapping(Vec<(Node, Node)>, Style),
    Sequence(Vec<Node>, Style),
    /// The same as the node with that anchor.
    Alias(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Block,
    Flow,
}

struct Open {
    node: Node,
    /// A key that waits for its value.
    key: Option<Node>,
}

pub fn parse(text: &str) -> Result<Documents, String> {
    let bytes = Places::of(text);
    let mut documents = Documents::default();
    let mut open: Vec<Open> = Vec::new();
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| error.to_string())?;
        let (kind, anchor) = match event {
            Event::Alias(anchor) => {
                documents.shared.push(anchor);
                (Kind::Alias(anchor), 0)
            }
            Event::Scalar(value, style, anchor, _) => (Kind::Scalar(value.into_owned(), style), anchor),
            Event::MappingStart(anchor, _) => (Kind::Mapping(Vec::new(), style(text, &bytes, span)), anchor),
            Event::SequenceStart(anchor, _) => (Kind::Sequence(Vec::new(), style(text, &bytes, span)), anchor),
            Event::MappingEnd | Event::SequenceEnd => {
                let Some(mut done) = open.pop() else {
                    return Err("a collection ends without a beginning".to_owned());
                };
                if let Kind::Mapping(_, Style::Flow) | Kind::Sequence(_, Style::Flow) = done.node.kind {
                    // The bracket: the reported end may be that of a comment after it.
                    done.node.at.end = (bytes.at(span.start.index()) + 1).min(text.len());
                }
                place(done.node, &mut open, &mut documents.roots);
                continue;
            }
            _ => continue,
        };
        let start = bytes.at(span.start.index());
        let mut node = Node {
            kind,
            at: start..bytes.at(span.end.index()).max(start),
            anchor,
            column: span.start.col(),
            line: span.start.line(),
        };
        if let Kind::Mapping(_, Style::Flow) | Kind::Sequence(_, Style::Flow) = node.kind {
            node.at.start = node.at.end.saturating_sub(1);
        }
        if let Kind::Scalar(_, quote @ (ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted)) = &node.kind {
            node.at.end = end_of_quoted(text, node.at.clone(), *quote);
        }
        if let Kind::Scalar(_, ScalarStyle::Plain) = &node.kind {
            let written = &text[node.at.clone()];
            let comment = written.find(" #").or(written.find("\t#")).unwrap_or(written.len());
            node.at.end = node.at.start + written[..comment].trim_end().len();
        }
        if matches!(node.kind, Kind::Mapping(..) | Kind::Sequence(..)) {
            if open.len() == MOST_LEVELS {
                return Err(format!("more than {MOST_LEVELS} levels"));
            }
            open.push(Open { node, key: None });
        } else {
            place(node, &mut open, &mut documents.roots);
        }
    }
    Ok(documents)
}

/// Puts a node where it belongs: into the collection that is open, else it is a document.
fn place(node: Node, open: &mut [Open], roots: &mut Vec<Node>) {
    let Some(Open { node: parent, key }) = open.last_mut() else {
        roots.push(node);
        return;
    };
    match &mut parent.kind {
        Kind::Sequence(items, _) => items.push(node),
        Kind::Mapping(pairs, _) => match key.take() {
            Some(name) => pairs.push((name, node)),
            None => *key = Some(node),
        },
        Kind::Scalar(..) | Kind::Alias(_) => {}
    }
}

/// A bracket ends what the parser tells of a start; an anchor or a tag may precede it.
fn style(text: &str, bytes: &Places, span: Span) -> Style {
    let (start, end) = (bytes.at(span.start.index()), bytes.at(span.end.index()));
    match text.get(start..end) {
        Some(start) if start.ends_with(['{', '[']) => Style::Flow,
        _ => Style::Block,
    }
}

/// The parser's end of a quoted scalar is that of the space and comment after it.
fn end_of_quoted(text: &str, at: Range<usize>, quote: ScalarStyle) -> usize {
    let mut letters = text[at.clone()].char_indices().skip(1).peekable();
    while let Some((place, letter)) = letters.next() {
        match (quote, letter) {
            (ScalarStyle::DoubleQuoted, '\\') => {
                letters.next();
            }
            (ScalarStyle::DoubleQuoted, '"') => return at.start + place + 1,
            (ScalarStyle::SingleQuoted, '\'') => {
                if letters.peek().is_some_and(|(_, next)| *next == '\'') {
                    letters.next();
                } else {
                    return at.start + place + 1;
                }
            }
            _ => {}
        }
    }
    at.end
}

/// From places of characters to places of bytes; a text in ASCII needs no table.
struct Places {
    bytes: Option<Vec<usize>>,
    length: usize,
}

impl Places {
    fn of(text: &str) -> Self {
        Self { bytes: (!text.is_ascii()).then(|| text.char_indices().map(|(at, _)| at).collect()), length: text.len() }
    }

    fn at(&self, index: usize) -> usize {
        let place = match &self.bytes {
            Some(bytes) => bytes.get(index).copied().unwrap_or(self.length),
            None => index,
        };
        place.min(self.length)
    }
}

impl Node {
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.pair(key).map(|(_, value)| value)
    }

    pub fn pair(&self, key: &str) -> Option<&(Node, Node)> {
        self.pairs().iter().find(|(name, _)| name.text() == Some(key))
    }

    /// The pairs of a mapping; none of anything else.
    pub fn pairs(&self) -> &[(Node, Node)] {
        match &self.kind {
            Kind::Mapping(pairs, _) => pairs,
            _ => &[],
        }
    }

    /// The items of a sequence; none of anything else.
    pub fn items(&self) -> &[Node] {
        match &self.kind {
            Kind::Sequence(items, _) => items,
            _ => &[],
        }
    }

    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar(text, _) => Some(text),
            _ => None,
        }
    }

    /// Whether it is there by its key alone (`environment:` and nothing after it).
    pub fn is_empty(&self) -> bool {
        matches!(&self.kind, Kind::Scalar(text, ScalarStyle::Plain) if text.is_empty() || text == "~" || text == "null")
    }

    /// Where its last letter ends.
    pub fn end(&self) -> usize {
        match &self.kind {
            Kind::Mapping(pairs, Style::Block) => {
                let last = pairs.last();
                last.map_or(self.at.end, |(key, value)| value.end().max(key.end()))
            }
            Kind::Sequence(items, Style::Block) => items.last().map_or(self.at.end, Node::end),
            _ => self.at.end,
        }
    }

    /// Every scalar below with the keys that lead to it, in order.
    pub fn leaves(&self) -> Vec<(String, String)> {
        let mut leaves = Vec::new();
        self.collect("", &mut leaves);
        leaves
    }

    fn collect(&self, path: &str, leaves: &mut Vec<(String, String)>) {
        match &self.kind {
            Kind::Scalar(text, _) => leaves.push((path.to_owned(), text.clone())),
            Kind::Alias(anchor) => leaves.push((path.to_owned(), format!("*{anchor}"))),
            Kind::Mapping(pairs, _) => {
                for (key, value) in pairs {
                    let name = key.text().unwrap_or("?");
                    value.collect(&format!("{path}/{name}"), leaves);
                }
            }
            Kind::Sequence(items, _) => {
                for (number, item) in items.iter().enumerate() {
                    item.collect(&format!("{path}/{number}"), leaves);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "# ü\na:\n  b: \"x\"   # tail\n  'c': [1, \"2\"] # more\n  d:\n  - e\n---\nf: &g {h: i}\nj: *g\n";

    #[test]
    fn every_node_knows_its_bytes() {
        let documents = parse(TEXT).unwrap();
        let a = documents.roots[0].get("a").unwrap();
        let at = |node: &Node| &TEXT[node.at.clone()];
        assert_eq!(at(a.get("b").unwrap()), "\"x\"");
        assert_eq!(at(a.get("c").unwrap()), "[1, \"2\"]");
        assert_eq!(at(&a.get("d").unwrap().items()[0]), "e");
        assert_eq!(TEXT[..a.end()].lines().last(), Some("  - e"));
        assert_eq!(a.get("b").unwrap().line, 3);
        let second = &documents.roots[1];
        assert_eq!(at(second.get("f").unwrap()), "{h: i}");
        assert_eq!(documents.shared, [second.get("f").unwrap().anchor]);
    }

    #[test]
    fn leaves_carry_the_way_to_them() {
        let leaves = parse(TEXT).unwrap().roots[0].leaves();
        let leaves: Vec<String> = leaves.into_iter().map(|(path, text)| path + "=" + &text).collect();
        assert_eq!(leaves, ["/a/b=x", "/a/c/0=1", "/a/c/1=2", "/a/d/0=e"]);
    }

    #[test]
    fn what_is_no_yaml_is_an_error_and_never_a_panic() {
        for text in ["a: [", "a: b: c", "\t- x", "a: *b", "{", "%YAML 9\n--- x", "? ? ?", "\"", "a: 'b"] {
            assert!(parse(text).is_err() || !parse(text).unwrap().roots.is_empty(), "{text}");
        }
        assert!(parse(&"[".repeat(5000)).is_err());
        assert!(parse(&format!("{}x", "- ".repeat(5000))).is_err());
    }
}
