//! A compose file: a variable in the service's `environment`, and the library as a mount, so that the
//! image stays as it is.

use ebb_allocators::Allocator;

use crate::check::declared::yaml::{self, Node};
use crate::check::declared::{Service, compose};

use super::insert::{self, Counts, Entry, Place, json};
use super::wish::Setting;
use super::{Edit, Elsewhere, Fixed, Refused, Wish, settle};

/// What puts the allocator in charge of the services that are `chosen`.
pub fn fix(
    name: &str,
    text: &str,
    chosen: &dyn Fn(&Service) -> bool,
    wish: &Wish,
) -> Result<Fixed, Refused> {
    let unreadable = |why: String| Refused::not_understood(format!("{name}: {why}"));
    let services = compose::services(text).map_err(unreadable)?;
    let documents = yaml::parse(text).map_err(|error| unreadable(error.to_string()))?;
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
        let (part, own) = one.fix(wish)?;
        fixed.extend(part);
        let shared = node
            .get("environment")
            .is_some_and(|it| it.anchor != 0 && documents.shared.contains(&it.anchor));
        if shared && !own.added.is_empty() {
            fixed.notes.push(format!(
                "{}: its environment has an anchor: its aliases get the variables, too",
                service.name
            ));
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
    fn fix(&self, wish: &Wish) -> Result<(Fixed, Counts), Refused> {
        let Place { service, node, .. } = self.place;
        let at = self.place.at();
        if node.get("environment").is_none()
            && node.get("<<").is_some()
            && self.root_mentions_environment()
        {
            return Err(Refused::cannot(
                format!(
                    "{at} takes its environment from an anchor, which its own key would replace"
                ),
                "write environment: with <<: and the anchor's name into the service, then run ebb fix again",
            ));
        }
        let library = wish.library_elsewhere();
        let (settings, mut fixed) = settle(wish, &library, service, &at, &Elsewhere::FILE)?;
        let mut counts = Counts::default();
        let mut new = Vec::new();
        for setting in &settings {
            match service.variable(&setting.name) {
                Some(variable) => {
                    counts.replaced += 1;
                    fixed.edits.push(self.replace(variable.at.clone(), setting));
                }
                None => {
                    counts.add("environment", 1);
                    new.push((self.entry(setting), setting.why.clone()));
                }
            }
        }
        fixed.edits.extend(self.place.append(node, "environment", self.step(), new)?);
        let new_preload = settings.iter().find(|it| it.name == "LD_PRELOAD");
        let preload = match new_preload {
            Some(setting) => Some(&setting.value),
            None => self.preload(),
        };
        let preload = preload.map(String::as_str).unwrap_or_default();
        let path = preload.split([' ', ':']).next().unwrap_or_default();
        if wish.allocator == Allocator::Ebbmalloc {
            if path.starts_with('/')
                && !service.mounts.iter().any(|it| it.covers(path))
                && !self.is_in_image(path, &settings)
            {
                counts.add("volumes", 1);
                fixed.edits.extend(self.mount(path)?);
            }
        } else if wish.preloads() && !settings.is_empty() {
            let image = service.image.as_deref().unwrap_or("the image");
            fixed.notes.push(format!(
                "{}: {image} needs {path} ({})",
                service.name,
                wish.allocator.packages().all().join(", ")
            ));
        }
        if service.is_built && !fixed.edits.is_empty() {
            fixed.notes.push(format!(
                "{} is built from a Dockerfile: ebb fix on the Dockerfile puts the library into the image",
                service.name
            ));
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
        let hidden = self
            .root
            .pairs()
            .iter()
            .filter(|(key, _)| key.text().is_some_and(|it| it.starts_with("x-")));
        let others = self.root.get("services").map(Node::pairs).unwrap_or_default();
        hidden.chain(others).any(|(_, node)| node.anchor != 0 && node.get("environment").is_some())
    }

    fn replace(&self, at: std::ops::Range<usize>, setting: &Setting) -> Edit {
        let environment = self.place.node.get("environment");
        let new =
            match environment.map(Node::items).unwrap_or_default().iter().find(|it| it.at == at) {
                Some(item) => {
                    insert::value(&format!("{}={}", setting.name, setting.value), Some(item))
                }
                None => {
                    let pairs = environment.map(Node::pairs).unwrap_or_default();
                    let value = pairs.iter().find(|(_, value)| value.at == at).map(|it| &it.1);
                    insert::value(&setting.value, value)
                }
            };
        Edit::replace(at, new, &*setting.why)
    }

    fn entry(&self, setting: &Setting) -> Entry {
        let environment = self.place.node.get("environment");
        let items = environment.map(Node::items).unwrap_or_default();
        if items.is_empty() {
            let pairs = environment.map(Node::pairs).unwrap_or_default();
            let block = insert::value(&setting.value, pairs.last().map(|it| &it.1));
            let key = if environment.is_some_and(|it| insert::is_json(self.place.text, it)) {
                json(&setting.name)
            } else {
                setting.name.clone()
            };
            Entry {
                block: vec![format!("{}: {block}", setting.name)],
                flow: format!("{key}: {}", json(&setting.value)),
            }
        } else {
            let text = format!("{}={}", setting.name, setting.value);
            Entry {
                block: vec![format!("- {}", insert::value(&text, items.last()))],
                flow: json(&text),
            }
        }
    }

    fn mount(&self, path: &str) -> Result<Vec<Edit>, Refused> {
        let text = format!("./libebbmalloc.so:{path}:ro");
        let volumes = self.place.node.get("volumes").map(Node::items).unwrap_or_default();
        let example = volumes.last().filter(|it| it.text().is_some());
        let plain =
            if example.is_some_and(|it| self.place.text[it.at.clone()].starts_with(['"', '\''])) {
                insert::value(&text, example)
            } else {
                text.clone()
            };
        let entry = Entry { block: vec![format!("- {plain}")], flow: json(&text) };
        let why = "mounts the library, which is next to this file, into the container; it works in every image";
        self.place.append(self.place.node, "volumes", self.step(), vec![(entry, why.to_owned())])
    }

    /// By how much this file indents.
    fn step(&self) -> usize {
        let services = self.root.pairs().iter().find(|(key, _)| key.text() == Some("services"));
        let inner =
            services.and_then(|(key, value)| Some(value.pairs().first()?.0.column - key.column));
        inner.filter(|it| *it > 0).unwrap_or(2)
    }
}
