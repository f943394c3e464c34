//! A compose file: its services, their variables and mounts. Pure.

use super::service::{Mount, Service, Variable};
use super::yaml::{self, Node};
use crate::check::start::Start;

pub fn services(text: &str) -> Result<Vec<Service>, String> {
    let documents = yaml::parse(text).map_err(|error| format!("it is not YAML: {error}"))?;
    let [root] = documents.roots.as_slice() else {
        let count = documents.roots.len();
        return Err(format!("it has {count} YAML documents, a compose file has one"));
    };
    let services = root.get("services").ok_or("it has no services")?;
    let pairs = services.pairs().iter().filter(|(_, node)| !node.pairs().is_empty());
    Ok(pairs.filter_map(|(name, node)| Some(service(name.text()?, name.line, node))).collect())
}

fn service(name: &str, line: usize, node: &Node) -> Service {
    let started = [node.get("entrypoint"), node.get("command")].into_iter().flatten();
    let words: Option<Vec<String>> = started.map(words).reduce(|first, rest| [first, rest].concat());
    let volumes = node.get("volumes").map(Node::items).unwrap_or_default();
    Service {
        name: name.to_owned(),
        line,
        env: node.get("environment").map(environment).unwrap_or_default(),
        start: words.map(|words| Start { words, by_shell: false, line }),
        image: node.get("image").and_then(Node::text).map(str::to_owned),
        is_built: node.get("build").is_some(),
        mounts: volumes.iter().filter_map(mount).collect(),
        ..Service::default()
    }
}

/// A command as one text, which is split and never given to a shell, or as words.
fn words(node: &Node) -> Vec<String> {
    match node.text() {
        Some(text) => shlex::split(text).unwrap_or_else(|| vec![text.to_owned()]),
        None => node.items().iter().filter_map(Node::text).map(str::to_owned).collect(),
    }
}

/// The variables of `environment`, in either form.
pub fn environment(node: &Node) -> Vec<Variable> {
    let of_pair = |(key, value): &(Node, Node)| {
        let text = value.text().filter(|_| !value.is_empty());
        Some(Variable {
            name: key.text()?.to_owned(),
            value: text.and_then(literal),
            line: key.line,
            at: value.at.clone(),
        })
    };
    let of_item = |item: &Node| {
        let text = item.text()?;
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, literal(value)),
            None => (text, None),
        };
        Some(Variable { name: name.to_owned(), value, line: item.line, at: item.at.clone() })
    };
    let mut found: Vec<Variable> = node.pairs().iter().filter_map(of_pair).collect();
    found.extend(node.items().iter().filter_map(of_item));
    found
}

/// A value without something that compose fills in; `$$` is a dollar sign.
fn literal(text: &str) -> Option<String> {
    let plain = text.replace("$$", "\0");
    (!plain.contains('$')).then(|| plain.replace('\0', "$"))
}

/// A mount, with its source where that is a path below the file's folder or next to it.
fn mount(node: &Node) -> Option<Mount> {
    let (from, to) = match node.text() {
        Some(text) => {
            let mut parts = text.split(':');
            // Without a dot in front it is a volume's name.
            let from = parts.next().filter(|it| it.starts_with('.'));
            (from, parts.next()?)
        }
        None => {
            let text = |key| node.get(key).and_then(Node::text);
            let is_bind = text("type") == Some("bind");
            (text("source").filter(|_| is_bind), text("target")?)
        }
    };
    let is_known = |it: &&str| !it.starts_with(['/', '~']) && !it.contains('$');
    let from = from.filter(is_known);
    Some(Mount { from: from.map(|it| it.strip_prefix("./").unwrap_or(it).to_owned()), to: to.to_owned() })
}
