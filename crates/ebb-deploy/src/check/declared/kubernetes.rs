//! Kubernetes manifests: the containers of everything that has pods, in any number of documents. Pure.

use super::service::{Mount, Service, Variable};
use super::yaml::{self, Node};
use crate::check::start::Start;

/// A container, and the specification of the pod that it is in.
#[derive(Clone, Copy)]
pub struct Container<'a> {
    pub object: (&'a str, &'a str),
    pub pod: &'a Node,
    pub node: &'a Node,
}

/// The containers, in order; init containers are left out.
pub fn services(text: &str) -> Result<Vec<Service>, String> {
    let documents = yaml::parse(text).map_err(|error| format!("it is not YAML: {error}"))?;
    Ok(containers(&documents).iter().map(Container::service).collect())
}

pub fn containers(documents: &yaml::Documents) -> Vec<Container<'_>> {
    let mut found = Vec::new();
    for root in &documents.roots {
        let listed = root.get("items").filter(|_| kind(root) == "List").map(Node::items);
        for object in listed.unwrap_or(std::slice::from_ref(root)) {
            let Some(pod) = pod(object) else { continue };
            let name = object.get("metadata").and_then(|it| it.get("name")).and_then(Node::text);
            let containers = pod.get("containers").map(Node::items).unwrap_or_default();
            found.extend(containers.iter().map(|node| Container {
                object: (kind(object), name.unwrap_or("?")),
                pod,
                node,
            }));
        }
    }
    found
}

fn kind(object: &Node) -> &str {
    object.get("kind").and_then(Node::text).unwrap_or_default()
}

/// Objects with a template of their pods.
const OF_TEMPLATES: &str = "Deployment StatefulSet DaemonSet ReplicaSet ReplicationController Job Rollout Service";

/// The specification of the pods that an object makes.
fn pod(object: &Node) -> Option<&Node> {
    let spec = object.get("spec")?;
    match kind(object) {
        "Pod" => Some(spec),
        "CronJob" => spec.get("jobTemplate")?.get("spec")?.get("template")?.get("spec"),
        // Knative's service is one, too.
        kind if OF_TEMPLATES.split(' ').any(|it| it == kind) => spec.get("template")?.get("spec"),
        _ => None,
    }
}

impl Container<'_> {
    pub fn service(&self) -> Service {
        let text = |key: &str| self.node.get(key).and_then(Node::text);
        let list = |key: &str| self.node.get(key).map(Node::items).unwrap_or_default();
        let words = list("command").iter().chain(list("args")).filter_map(Node::text);
        let words: Vec<String> = words.map(str::to_owned).collect();
        let line = self.node.line;
        let mounts = list("volumeMounts").iter().filter_map(|it| it.get("mountPath")?.text());
        Service {
            name: format!("{}/{}/{}", self.object.0, self.object.1, text("name").unwrap_or("?")),
            line,
            env: list("env").iter().filter_map(variable).collect(),
            start: (!words.is_empty()).then_some(Start { words, by_shell: false, line }),
            image: text("image").map(str::to_owned),
            mounts: mounts.map(|to| Mount { from: None, to: to.to_owned() }).collect(),
            ..Service::default()
        }
    }
}

fn variable(item: &Node) -> Option<Variable> {
    let value = item.get("value");
    Some(Variable {
        name: item.get("name")?.text()?.to_owned(),
        // $(OTHER) is filled in by the kubelet.
        value: value.and_then(Node::text).filter(|it| !it.contains("$(")).map(str::to_owned),
        line: item.line,
        at: value.map_or(item.at.clone(), |it| it.at.clone()),
    })
}
