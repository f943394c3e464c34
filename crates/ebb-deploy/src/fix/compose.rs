//! A compose file: a variable in the service's `environment`, and the library as a mount, so that the
//! image stays as it is.

use std::ops::Range;

use ebb_allocators::Allocator;

use crate::check::declared::compose;
use crate::check::declared::yaml::{self, Node};

use super::desired::Setting;
use super::insert::{self, Counts, Entry, Place, json};
use super::{Chosen, Desired, Edit, Fixed, OutsideValue, Refused, changes};

/// What puts the allocator in charge of the services that are `chosen`.
pub fn fix(name: &str, text: &str, chosen: Chosen, desired: &Desired) -> Result<Fixed, Refused> {
    let unreadable = |why: String| Refused::in_file(name, why);
    let services = compose::services(text).map_err(unreadable)?;
    let documents = yaml::parse(text).map_err(unreadable)?;
    let all = documents.roots[0].get("services");
    let mut fixed = Fixed::default();
    let mut counts = Counts::default();
    for service in services.iter().filter(|it| chosen(it)) {
        let Some(node) = all.and_then(|it| it.get(&service.name)) else {
            continue;
        };
        let by_hand = "write the entry in the service by hand, then run ebb fix again";
        let place = Place { name, text, service, node, by_hand };
        let one = One { place, root: &documents.roots[0] };
        let (part, own) = one.fix(desired)?;
        fixed.extend(part);
        let is_shared = |it: &Node| it.anchor != 0 && documents.shared.contains(&it.anchor);
        if node.get("environment").is_some_and(is_shared) && !own.added.is_empty() {
            let note = "its environment has an anchor: its aliases get the variables, too";
            fixed.notes.push(format!("{}: {note}", service.name));
        }
        counts.extend(own);
    }
    insert::in_order(&mut fixed.edits);
    insert::verify(name, text, &fixed.edits, &counts)?;
    Ok(fixed)
}

/// One service.
struct One<'a> {
    place: Place<'a>,
    root: &'a Node,
}

impl One<'_> {
    fn fix(&self, desired: &Desired) -> Result<(Fixed, Counts), Refused> {
        let Place { service, node, .. } = self.place;
        let at = self.place.at();
        if node.get("environment").is_none() && node.get("<<").is_some() && self.root_mentions_environment() {
            let what = format!("{at} takes its environment from an anchor, which its own key would replace");
            let remedy = "write environment: with <<: and the anchor's name into the service, then run ebb fix again";
            return Err(Refused::cannot(what, remedy));
        }
        let library = desired.preload_entry();
        let (settings, mut fixed) = changes(desired, &library, service, &at, &OutsideValue::FILE)?;
        let key = ("environment", 1, self.step());
        let value = |at: &Range<usize>, setting: &Setting| self.value(at, setting);
        let (edits, mut counts) = self.place.set(&settings, key, &value, &|setting| self.entry(setting))?;
        fixed.edits.extend(edits);
        let new_preload = settings.iter().find(|it| it.name == "LD_PRELOAD").map(|it| &it.value);
        let preload = new_preload.or_else(|| self.preload()).map(String::as_str);
        let path = preload.unwrap_or_default().split([' ', ':']).next().unwrap_or_default();
        if desired.allocator == Allocator::Ebbmalloc {
            if path.starts_with('/')
                && !service.mounts.iter().any(|it| it.covers(path))
                && !self.is_in_image(path, &settings)
            {
                counts.add("volumes", 1);
                fixed.edits.extend(self.mount(path)?);
            }
        } else if desired.preloads() && !settings.is_empty() {
            let image = service.image.as_deref().unwrap_or("the image");
            let packages = desired.allocator.packages().all().join(", ");
            fixed.notes.push(format!("{}: {image} needs {path} ({packages})", service.name));
        }
        if service.is_built && !fixed.edits.is_empty() {
            let note = "is built from a Dockerfile: ebb fix on the Dockerfile puts the library into the image";
            fixed.notes.push(format!("{} {note}", service.name));
        }
        Ok((fixed, counts))
    }

    /// A variable that was there before us says that the image has the library.
    fn is_in_image(&self, path: &str, settings: &[Setting]) -> bool {
        let was_there = self.preload().is_some_and(|it| it.contains(path));
        was_there && !settings.iter().any(|it| it.name == "LD_PRELOAD")
    }

    /// The value that is set.
    fn preload(&self) -> Option<&String> {
        self.place.service.variable("LD_PRELOAD")?.value.as_ref()
    }

    fn root_mentions_environment(&self) -> bool {
        let is_hidden = |key: &Node| key.text().is_some_and(|it| it.starts_with("x-"));
        let hidden = self.root.pairs().iter().filter(|(key, _)| is_hidden(key));
        let others = self.root.get("services").map(Node::pairs).unwrap_or_default();
        hidden.chain(others).any(|(_, node)| node.anchor != 0 && node.get("environment").is_some())
    }

    /// The items or the pairs of the service's environment: there is one kind.
    fn environment(&self) -> (&[Node], &[(Node, Node)]) {
        let environment = self.place.node.get("environment");
        environment.map_or((&[], &[]), |it| (it.items(), it.pairs()))
    }

    fn value(&self, at: &Range<usize>, setting: &Setting) -> String {
        let (items, pairs) = self.environment();
        if let Some(item) = items.iter().find(|it| it.at == *at) {
            return insert::value(&format!("{}={}", setting.name, setting.value), Some(item));
        }
        let old = pairs.iter().find(|(_, value)| value.at == *at).map(|it| &it.1);
        insert::value(&setting.value, old)
    }

    fn entry(&self, setting: &Setting) -> Entry {
        let (items, pairs) = self.environment();
        if let Some(last) = items.last() {
            let text = format!("{}={}", setting.name, setting.value);
            let block = vec![format!("- {}", insert::value(&text, Some(last)))];
            return Entry { block, flow: json(&text) };
        }
        let block = insert::value(&setting.value, pairs.last().map(|it| &it.1));
        let environment = self.place.node.get("environment");
        let is_json = environment.is_some_and(|it| insert::is_json(self.place.text, it));
        let key = if is_json { json(&setting.name) } else { setting.name.clone() };
        let block = vec![format!("{}: {block}", setting.name)];
        Entry { block, flow: format!("{key}: {}", json(&setting.value)) }
    }

    fn mount(&self, path: &str) -> Result<Vec<Edit>, Refused> {
        let text = format!("./libebbmalloc.so:{path}:ro");
        let volumes = self.place.node.get("volumes").map(Node::items).unwrap_or_default();
        let is_quoted = |it: &&Node| it.text().is_some() && self.place.text[it.at.clone()].starts_with(['"', '\'']);
        let example = volumes.last().filter(is_quoted);
        let plain = if example.is_some() { insert::value(&text, example) } else { text.clone() };
        let entry = Entry { block: vec![format!("- {plain}")], flow: json(&text) };
        let why = "mounts the library, which is next to this file, into the container; it works in every image";
        self.place.append(self.place.node, "volumes", self.step(), vec![(entry, why.to_owned())])
    }

    /// By how much this file indents.
    fn step(&self) -> usize {
        let services = self.root.pairs().iter().find(|(key, _)| key.text() == Some("services"));
        let inner = services.and_then(|(key, value)| Some(value.pairs().first()?.0.column - key.column));
        inner.filter(|it| *it > 0).unwrap_or(2)
    }
}
