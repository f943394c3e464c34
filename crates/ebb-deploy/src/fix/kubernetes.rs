//! A Kubernetes manifest: a variable in the container's `env`. The library has to be in the image, or, with an
//! image that has it, an init container copies it into a volume of the pod.

use std::ops::Range;

use ebb_allocators::Allocator;

use crate::check::declared::kubernetes;
use crate::check::declared::yaml::{self, Node};

use super::desired::{LIBRARY, Setting};
use super::edit::line_start;
use super::insert::{self, Counts, Entry, Place, is_json, json};
use super::{Chosen, Desired, Fixed, OutsideValue, Refused, changes};

/// Where the volume lies in the containers.
const VOLUME: &str = "/opt/ebbmalloc";

/// What puts the allocator in charge of the containers that are `chosen`. `library_image` has the library at
/// the place where `ebb fix` puts it into an image.
pub fn fix(
    name: &str,
    text: &str,
    chosen: Chosen,
    library_image: Option<&str>,
    desired: &Desired,
) -> Result<Fixed, Refused> {
    let documents = yaml::parse(text).map_err(|error| {
        let hint = " (a template: run ebb fix on the rendered file, or change its values)";
        let hint = if text.contains("{{") { hint } else { "" };
        Refused::not_understood(format!("{name} is not YAML: {error}{hint}"))
    })?;
    let mut fixed = Fixed::default();
    let mut counts = Counts::default();
    let mut pods: Vec<usize> = Vec::new();
    for container in kubernetes::containers(&documents) {
        let service = container.service();
        if !chosen(&service) {
            continue;
        }
        let by_hand = "write the entry there by hand, then run ebb fix again";
        let place = Place { name, text, service: &service, node: container.node, by_hand };
        let one = One { place, pod: container.pod, library_image };
        let first_of_pod = !pods.contains(&container.pod.at.start);
        let (part, own) = one.fix(desired, first_of_pod)?;
        if own.added.contains_key("volumes") {
            pods.push(container.pod.at.start);
        }
        fixed.extend(part);
        counts.extend(own);
    }
    insert::in_order(&mut fixed.edits);
    insert::verify(name, text, &fixed.edits, &counts)?;
    Ok(fixed)
}

/// Of the volume and of the container that fills it.
const NAME: &str = Allocator::Ebbmalloc.name();

/// One container.
struct One<'a> {
    place: Place<'a>,
    pod: &'a Node,
    library_image: Option<&'a str>,
}

impl One<'_> {
    fn fix(&self, desired: &Desired, first_of_pod: bool) -> Result<(Fixed, Counts), Refused> {
        let is_ours = desired.allocator == Allocator::Ebbmalloc;
        let volume = is_ours && self.library_image.is_some();
        let library = match &desired.library {
            None if volume => format!("{VOLUME}/libebbmalloc.so"),
            _ => desired.preload_entry(),
        };
        let (settings, mut fixed) =
            changes(desired, &library, self.place.service, &self.place.at(), &OutsideValue::FILE)?;
        let items = self.place.node.get("env").map(Node::items).unwrap_or_default();
        let value = |at: &Range<usize>, setting: &Setting| {
            let mut values = items.iter().filter_map(|it| it.get("value"));
            insert::value(&setting.value, values.find(|it| it.at == *at))
        };
        let entry = |setting: &Setting| self.variable(setting);
        let (edits, mut counts) = self.place.set(&settings, ("env", 2, self.step()), &value, &entry)?;
        fixed.edits.extend(edits);
        let is_new = settings.iter().any(|it| it.name == "LD_PRELOAD" && !it.value.is_empty());
        if volume && is_new {
            self.volume(desired, first_of_pod, &mut fixed, &mut counts)?;
        } else if is_new && desired.preloads() {
            let image = self.place.service.image.as_deref().unwrap_or("the image");
            let packages = desired.allocator.packages().all().join(", ");
            let how = "run ebb fix on its Dockerfile, or name an image that has it with --library-image";
            let how = if is_ours { how } else { &packages };
            let name = &self.place.service.name;
            fixed.notes.push(format!("{name}: {image} needs {library}: {how}"));
        }
        Ok((fixed, counts))
    }

    fn variable(&self, setting: &Setting) -> Entry {
        let items = self.place.node.get("env").map(Node::items).unwrap_or_default();
        let example = items.iter().rev().find_map(|it| it.get("value"));
        let value = insert::value(&setting.value, example);
        let flow = self.entry(&[("name", &json(&setting.name)), ("value", &json(&setting.value))]).flow;
        Entry { flow, ..self.entry(&[("name", &setting.name), ("value", &value)]) }
    }

    /// An item of a list: values as they are written, keys as the file writes them.
    fn entry(&self, pairs: &[(&str, &str)]) -> Entry {
        let line = |(number, (name, value)): (usize, &(&str, &str))| {
            format!("{} {name}: {value}", if number == 0 { "-" } else { " " })
        };
        let block = pairs.iter().enumerate().map(line).collect();
        Entry { block, flow: self.mapping(pairs) }
    }

    fn mapping(&self, pairs: &[(&str, &str)]) -> String {
        let is_json = is_json(self.place.text, self.place.node);
        let key = |name: &str| if is_json { json(name) } else { name.to_owned() };
        let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{}: {value}", key(name))).collect();
        format!("{{{}}}", pairs.join(", "))
    }

    /// The volume, once a pod; its mount in the container.
    fn volume(
        &self,
        desired: &Desired,
        first_of_pod: bool,
        fixed: &mut Fixed,
        counts: &mut Counts,
    ) -> Result<(), Refused> {
        let Some(image) = self.library_image else { return Ok(()) };
        let mount = self.entry(&[("name", &json(NAME)), ("mountPath", &json(VOLUME)), ("readOnly", "true")]);
        let add = |node: &Node, key: &str, entry: Entry, why: &str| {
            self.place.append(node, key, self.step(), vec![(entry, why.to_owned())])
        };
        let why = "where the container sees the library";
        fixed.edits.extend(add(self.place.node, "volumeMounts", mount, why)?);
        counts.add("volumeMounts", 3);
        let volumes = self.pod.get("volumes").map(Node::items).unwrap_or_default();
        let is_ours = |it: &Node| it.get("name").and_then(Node::text) == Some(NAME);
        if !first_of_pod || volumes.iter().any(is_ours) {
            return Ok(());
        }
        let to = format!("{VOLUME}/");
        // The image of a release has no cp.
        let command = match desired.release {
            Some(_) => vec!["ebb", "library", "--out", VOLUME],
            None => vec!["cp", LIBRARY, &to],
        };
        let words: Vec<String> = command.into_iter().map(json).collect();
        let command = format!("[{}]", words.join(", "));
        let mounts = format!("[{}]", self.mapping(&[("name", &json(NAME)), ("mountPath", &json(VOLUME))]));
        let copier = self.entry(&[
            ("name", &json(NAME)),
            ("image", &json(image)),
            ("command", &command),
            ("volumeMounts", &mounts),
        ]);
        let why = "copies the library before the service starts";
        fixed.edits.extend(add(self.pod, "initContainers", copier, why)?);
        let volume = self.entry(&[("name", &json(NAME)), ("emptyDir", "{}")]);
        let why = "holds the library until the pod ends";
        fixed.edits.extend(add(self.pod, "volumes", volume, why)?);
        // Two texts, a mount of two, the words; an empty mapping is no leaf.
        counts.add("initContainers", 4 + words.len());
        counts.add("volumes", 1);
        Ok(())
    }

    /// Indentation of lists relative to their key: as the list of containers does.
    fn step(&self) -> usize {
        let Some((key, value)) = self.pod.pair("containers") else { return 2 };
        let Some(first) = value.items().first() else { return 2 };
        let line_start = line_start(self.place.text, first.at.start);
        match self.place.text[line_start..first.at.start].rfind('-') {
            Some(dash) => dash.saturating_sub(key.column),
            None => 2,
        }
    }
}
