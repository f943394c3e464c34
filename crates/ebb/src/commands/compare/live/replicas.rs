//! Two sets of replicas that a Prometheus knows, by selectors: what they held, as samples of one replica.
//!
//! A selector is of the agent's series, or of kube-state-metrics' `kube_pod_container_info`, whose labels people know. Replicas
//! come and go, so a sample is their mean.

use std::collections::BTreeMap;

use crate::exit::{Exit, Failure};
use crate::prometheus::{Labels, Server, Times, container_id, label};
use ebb_diagnosis::facts::growth::Event;
use ebb_report::figures;
use ebb_trial::results::{Restart, Run, Sample, Variant};

/// A replica that starts at most this long before or after another ends takes its place.
const TAKES_PLACE_S: f64 = 600.0;

/// What is seen of a replica: the index of the time, then bytes.
#[derive(Default)]
struct Replica {
    pod: String,
    used: BTreeMap<usize, f64>,
    live: BTreeMap<usize, f64>,
}

impl Replica {
    fn first(&self) -> usize {
        self.used.keys().next().copied().unwrap_or_default()
    }

    fn last(&self) -> usize {
        self.used.keys().next_back().copied().unwrap_or_default()
    }
}

pub struct Side {
    pub variant: Variant,
    pub run: Run,
    pub events: Vec<Event>,
}

/// Reads the side that a selector names; replicas that start get `grace` looks.
pub fn side(server: &Server, name: &str, selector: &str, times: Times, grace: usize) -> Result<Side, Failure> {
    let (of, count) = resolve(server, name, selector, times)?;
    let mut replicas: BTreeMap<String, Replica> = BTreeMap::new();
    let key = |labels: &Labels| ["cluster", "node", "instance", "cgroup"].map(|it| label(labels, it)).join("|");
    let by = "cluster, node, instance, cgroup, pod_uid";
    let series = |metric: &str| format!("max by ({by}) ({})", of.series(metric));
    server.query_range(&series("ebb_group_usage_bytes"), times, count, |labels, values| {
        let replica = replicas.entry(key(labels)).or_default();
        replica.pod = label(labels, "pod_uid").to_owned();
        replica.used.extend(values);
    })?;
    server.query_range(&series("ebb_group_live_bytes"), times, count, |labels, values| {
        if let Some(replica) = replicas.get_mut(&key(labels)) {
            replica.live.extend(values);
        }
    })?;
    let mut allocators: Vec<String> = Vec::new();
    server.series(&of.series("ebb_group_info"), times.from_s, times.at_s(times.count), |labels| {
        let allocator = label(labels, "allocator").to_owned();
        if !allocator.is_empty() && !allocators.contains(&allocator) {
            allocators.push(allocator);
        }
    })?;
    let allocator = if allocators.is_empty() { "not known".to_owned() } else { allocators.join(", ") };
    let env = BTreeMap::from([("selector".to_owned(), selector.to_owned())]);
    let replicas: Vec<Replica> = replicas.into_values().collect();
    let (restarts, events) = restarts(&replicas, times);
    let run = Run { samples: samples(&replicas, times, grace), restarts, ..Run::new(1) };
    Ok(Side { variant: Variant { env, ..Variant::new(name, &allocator) }, run, events })
}

/// How a side's series are selected; with it goes their number.
enum Selected {
    /// By labels of the agent's series.
    Directly(String),
    Containers(Vec<String>),
}

impl Selected {
    fn series(&self, metric: &str) -> String {
        match self {
            Selected::Directly(selector) => format!("{metric}{selector}"),
            Selected::Containers(ids) => format!("{metric}{{container_id=~\"{}\"}}", ids.join("|")),
        }
    }
}

fn resolve(server: &Server, name: &str, selector: &str, times: Times) -> Result<(Selected, usize), Failure> {
    if !(selector.starts_with('{') && selector.ends_with('}')) {
        let what = format!("--live {name}: \"{selector}\" is no selector");
        return Err(Failure::usage(what).remedy("write one such as {namespace=\"shop\",pod=~\"api-.*\"}"));
    }
    let (from_s, to_s) = (times.from_s, times.at_s(times.count));
    let mut found = 0;
    let matched = |metric: &str| format!("{metric}{selector}");
    server.series(&matched("ebb_group_usage_bytes"), from_s, to_s, |_| found += 1)?;
    if found > 0 {
        return Ok((Selected::Directly(selector.to_owned()), found));
    }
    let mut ids: Vec<String> = Vec::new();
    server.series(&matched("kube_pod_container_info"), from_s, to_s, |labels| {
        let id = container_id(labels);
        if !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            ids.push(id.to_owned());
        }
    })?;
    ids.sort();
    ids.dedup();
    match ids.is_empty() {
        false => {
            let count = ids.len();
            Ok((Selected::Containers(ids), count))
        }
        true => Err(Failure::new(
            Exit::NotEnoughEvidence,
            format!(
                "--live {name}: nothing matches ebb_group_usage_bytes{selector} or kube_pod_container_info{selector} in the \
                 last {}",
                figures::duration(to_s - from_s)
            ),
        )
        .remedy("try the selector in Prometheus; does ebb agent run on these nodes?")),
    }
}

/// The mean of the replicas at each time. Replicas that are older than the time get no grace.
fn samples(replicas: &[Replica], times: Times, grace: usize) -> Vec<Sample> {
    let sample = |at: usize| {
        let ready = replicas.iter().filter(|it| it.first() == 0 || at >= it.first() + grace);
        let (mut used, mut live) = (Vec::new(), Vec::new());
        for replica in ready {
            used.extend(replica.used.get(&at));
            live.extend(replica.live.get(&at));
        }
        let mean = |values: &[f64]| {
            let count = values.len();
            (count > 0).then(|| (values.iter().sum::<f64>() / count as f64) as u64)
        };
        Some(Sample {
            at_s: at as f64 * times.step_s,
            cgroup_bytes: Some(mean(&used)?),
            // Of a part of them it would be of others than the usage.
            live_bytes: mean(&live).filter(|_| live.len() == used.len()),
            processes: used.len() as u32,
            ..Sample::default()
        })
    };
    (0..times.count).filter_map(sample).collect()
}

/// Replicas that took the place of one that ended. Additional replicas are none.
fn restarts(replicas: &[Replica], times: Times) -> (Vec<Restart>, Vec<Event>) {
    let (mut restarts, mut all) = (Vec::new(), Vec::new());
    for new in replicas.iter().filter(|it| it.first() > 0) {
        let at_s = new.first() as f64 * times.step_s;
        let near = |old: &&Replica| {
            let ended_s = old.last() as f64 * times.step_s;
            old.last() + 1 < times.count && (ended_s - at_s).abs() <= TAKES_PLACE_S && old.first() < new.first()
        };
        let text = match replicas.iter().find(near) {
            Some(old) if old.pod == new.pod && !new.pod.is_empty() => {
                format!("a container of pod {} restarted", new.pod)
            }
            Some(_) => "a replica took the place of another".to_owned(),
            None => continue,
        };
        all.push(Event { at_s, label: "restart".to_owned() });
        restarts.push(Restart { at_s, text });
    }
    restarts.sort_by(|left, right| left.at_s.total_cmp(&right.at_s));
    all.sort_by(|left, right| left.at_s.total_cmp(&right.at_s));
    (restarts, all)
}
