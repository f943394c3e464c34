//! The names of a fleet's rows: from a container's id to its pod and workload, as kube-state-metrics has them.

use std::collections::HashMap;

use crate::exit::Failure;
use crate::prometheus::{Labels, Server, container_id, label};

/// What a row stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// The Deployment or other owner of a pod; else the unit, else the cgroup
    #[value(alias = "deployment")]
    Workload,
    /// Namespace
    Namespace,
    /// Node
    Node,
    /// Pod
    Pod,
    /// Unit of systemd
    Unit,
    /// Allocator
    Allocator,
}

impl By {
    /// The heading of the column.
    pub fn label(self) -> &'static str {
        match self {
            By::Workload => "workload",
            By::Namespace => "namespace",
            By::Node => "node",
            By::Pod => "pod",
            By::Unit => "unit",
            By::Allocator => "allocator",
        }
    }
}

/// What the agent says of a group.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    pub node: String,
    pub cgroup: String,
    pub container_id: String,
    pub pod_uid: String,
    pub unit: String,
    pub allocators: Vec<String>,
}

impl Identity {
    /// Of a group whose `ebb_group_info` is not there, from its key.
    pub fn of_key(key: &str) -> Self {
        let [_, node, instance, cgroup] = std::array::from_fn(|part| key.split('|').nth(part).unwrap_or_default());
        let node = if node.is_empty() { instance } else { node };
        Self { node: node.to_owned(), cgroup: cgroup.to_owned(), ..Self::default() }
    }
}

/// A container of a pod: namespace, pod, container.
pub type Container = (String, String, String);

/// The one that labels of kube-state-metrics name.
pub fn container(labels: &Labels) -> Container {
    ["namespace", "pod", "container"].map(|name| label(labels, name).to_owned()).into()
}

/// Names of Kubernetes; empty without it.
#[derive(Debug, Default)]
pub struct Names {
    containers: HashMap<String, Container>,
    /// Namespace and name of a pod by its uid: its sandbox is no container to Kubernetes.
    uids: HashMap<String, (String, String)>,
    /// Owners by namespace and name: of pods, then of ReplicaSets and Jobs.
    pods: HashMap<(String, String), String>,
    owners: HashMap<(String, String), String>,
}

impl Names {
    /// Asks for all names that were there in a time.
    pub fn read(server: &Server, from_s: f64, to_s: f64) -> Result<Self, Failure> {
        let mut names = Names::default();
        let text = |labels: &Labels, name| label(labels, name).to_owned();
        server.series("kube_pod_container_info{container_id!=\"\"}", from_s, to_s, |labels| {
            let id = container_id(labels).to_owned();
            let container = container(labels);
            let pod = (container.0.clone(), container.1.clone());
            names.uids.insert(label(labels, "uid").to_owned(), pod);
            names.containers.insert(id, container);
        })?;
        if names.containers.is_empty() {
            return Ok(names);
        }
        let key = |labels: &Labels, name| (text(labels, "namespace"), text(labels, name));
        server.series("kube_pod_owner{owner_name!=\"\"}", from_s, to_s, |labels| {
            names.pods.insert(key(labels, "pod"), text(labels, "owner_name"));
        })?;
        for (metric, name) in [("kube_replicaset_owner", "replicaset"), ("kube_job_owner", "job_name")] {
            server.series(&format!("{metric}{{owner_name!=\"\"}}"), from_s, to_s, |labels| {
                let owner = text(labels, "owner_name");
                if owner != "<none>" {
                    names.owners.insert(key(labels, name), owner);
                }
            })?;
        }
        Ok(names)
    }

    /// Whether there is a Kubernetes.
    pub fn is_empty(&self) -> bool {
        self.containers.is_empty()
    }

    /// The pod's container of a group.
    pub fn container(&self, id: &str) -> Option<&Container> {
        self.containers.get(id)
    }

    pub fn row(&self, by: By, group: &Identity) -> String {
        let container = self.container(&group.container_id);
        let pod = container.map(|(namespace, pod, _)| (namespace.as_str(), pod.as_str()));
        let of_uid = || self.uids.get(&group.pod_uid).filter(|_| !group.pod_uid.is_empty());
        let pod = pod.or_else(|| of_uid().map(|(namespace, pod)| (namespace.as_str(), pod.as_str())));
        match (by, pod) {
            (By::Node, _) => group.node.clone(),
            (By::Allocator, _) if group.allocators.is_empty() => "not known".to_owned(),
            (By::Allocator, _) => group.allocators.join(", "),
            (By::Unit, _) | (By::Workload | By::Namespace | By::Pod, None) => self.without_pod(by, group),
            (by, Some((namespace, pod))) => self.row_of_pod(by, namespace, pod).unwrap_or_default(),
        }
    }

    fn without_pod(&self, by: By, group: &Identity) -> String {
        match by {
            By::Namespace => "no namespace".to_owned(),
            _ if !group.unit.is_empty() => group.unit.clone(),
            By::Workload | By::Pod if !group.pod_uid.is_empty() => format!("pod {}", group.pod_uid),
            _ => group.cgroup.clone(),
        }
    }

    /// The row of a pod; `None` where rows are no part of Kubernetes.
    pub fn row_of_pod(&self, by: By, namespace: &str, pod: &str) -> Option<String> {
        match by {
            By::Namespace => Some(namespace.to_owned()),
            By::Pod => Some(format!("{namespace}/{pod}")),
            By::Workload => {
                let key = |name: &str| (namespace.to_owned(), name.to_owned());
                let owner = self.pods.get(&key(pod)).filter(|owner| *owner != "<none>");
                let above = owner.and_then(|owner| self.owners.get(&key(owner)));
                let name = above.or(owner).map_or(pod, String::as_str);
                Some(format!("{namespace}/{name}"))
            }
            By::Node | By::Unit | By::Allocator => None,
        }
    }
}
