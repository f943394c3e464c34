//! A fleet's history from Prometheus.
//!
//! The server gives one value for each group and moment. ebb joins names to groups: a join in PromQL fails as soon as
//! one container has two series of kube-state-metrics, and is evaluated anew for each moment.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use super::names::{By, Container, Identity, Names, container};
use crate::exit::{Exit, Failure};
use crate::prometheus::{Labels, Server, Times, label};
use ebb_diagnosis::facts::fleet::{Course, Event, Group, History, InCharge};

/// Values of one series name that are fetched: 30,000 containers at 333 moments.
const MOST_VALUES: f64 = 10e6;
/// Steps between values.
const STEPS_S: [f64; 14] =
    [15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 10_800.0, 21_600.0, 43_200.0, 86_400.0];
/// Agents are not scraped more often, and a long time has no use for more.
const LEAST_STEP_S: f64 = 60.0;
const LONG_S: f64 = 6.0 * 3600.0;
/// The first look at the whole time has so many moments.
const COARSE: usize = 24;
/// What tells groups apart.
const KEY: &str = "cluster, node, instance, cgroup";

/// What the figures are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Ranking { requests: bool },
    WatchList,
}

pub fn read(server: &Server, by: By, period: Duration, wanted: Wanted) -> Result<History, Failure> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (times, series, caution) = times(server, now.as_secs_f64(), period.as_secs_f64())?;
    let mut history = History {
        from_s: times.from_s,
        step_s: times.step_s,
        times: times.count,
        cautions: caution.into_iter().collect(),
        ..History::default()
    };
    let course = |metric: &str| courses(server, metric, times, series);
    let is_list = wanted == Wanted::WatchList;
    // Two at a time: a query has one thread of the server.
    let (usage, (returnable, live)) = std::thread::scope(|scope| {
        let usage = scope.spawn(|| course("ebb_group_usage_bytes"));
        let returnable = course("ebb_group_returnable_bytes");
        let live = if is_list { course("ebb_group_live_bytes") } else { Ok(HashMap::new()) };
        (usage.join(), (returnable, live))
    });
    let usage = usage.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let (mut returnable, mut live) = (returnable?, live?);
    let to_s = times.at_s(times.count);
    let mut known = identities(server, times.from_s, to_s)?;
    let names = Names::read(server, times.from_s, to_s)?;
    let mut rows: HashMap<String, usize> = HashMap::new();
    let mut containers: HashMap<Container, usize> = HashMap::new();
    for (key, usage) in usage {
        let identity = known.remove(&key).unwrap_or_else(|| Identity::of_key(&key));
        if let Some(container) = names.container(&identity.container_id) {
            containers.insert(container.clone(), history.groups.len());
        }
        history.groups.push(Group {
            name: names.row(by, &identity),
            returnable: returnable.remove(&key).unwrap_or_default(),
            live: live.remove(&key).unwrap_or_default(),
            usage,
            node: identity.node,
            allocators: identity.allocators,
            ..Group::default()
        });
        rows.insert(key, history.groups.len() - 1);
    }
    let mut more = More { server, times, series, by, names: &names, rows: &rows, containers: &containers };
    match wanted {
        Wanted::WatchList => more.in_charge(&mut history)?,
        Wanted::Ranking { requests } => {
            more.looks(&mut history)?;
            more.kills(&mut history)?;
            more.replicas(&mut history)?;
            if requests {
                more.requests(&mut history)?;
            }
        }
    }
    Ok(history)
}

/// The moments, and about how many series there are at one.
fn times(server: &Server, now_s: f64, asked_s: f64) -> Result<(Times, usize, Option<String>), Failure> {
    let coarse = Times { from_s: now_s - asked_s, step_s: asked_s / COARSE as f64, count: COARSE + 1 };
    let mut counts = Vec::new();
    let query = "count(ebb_group_usage_bytes)";
    server.query_range(query, coarse, 1, |_, values| counts.extend(values))?;
    let Some((first, _)) = counts.first() else {
        return Err(nothing(server, "ebb_group_usage_bytes", asked_s));
    };
    let series = counts.iter().map(|(_, count)| count).sum::<f64>() / counts.len() as f64;
    // What began later is looked at more closely.
    let span_s = (now_s - coarse.at_s(first.saturating_sub(1))).min(asked_s);
    let least = if span_s > LONG_S { LEAST_STEP_S } else { STEPS_S[0] };
    let wanted = (span_s * series / MOST_VALUES).max(least);
    let step_s = STEPS_S.into_iter().find(|step| *step >= wanted).unwrap_or(STEPS_S[13]);
    let count = (span_s / step_s) as usize + 1;
    let times = Times { from_s: now_s - step_s * (count - 1) as f64, step_s, count };
    let caution = (*first > 1).then(|| {
        format!("the series begin {} ago, {} were asked for", words(now_s - coarse.at_s(*first)), words(asked_s))
    });
    Ok((times, series.ceil() as usize, caution))
}

pub fn nothing(server: &Server, series: &str, asked_s: f64) -> Failure {
    let what = format!("{} has no {series} in the last {}", server.address(), words(asked_s));
    Failure::new(Exit::NotEnoughEvidence, what)
        .remedy("does ebb agent run on the nodes, and does this Prometheus scrape it? (docs/metrics.md)")
}

fn words(seconds: f64) -> String {
    humantime::format_duration(Duration::from_secs(seconds.max(0.0).round() as u64)).to_string()
}

/// The group of a series.
fn key(labels: &Labels) -> String {
    ["cluster", "node", "instance", "cgroup"].map(|name| label(labels, name)).join("|")
}

fn courses(server: &Server, metric: &str, times: Times, series: usize) -> Result<HashMap<String, Course>, Failure> {
    let mut courses: HashMap<String, Course> = HashMap::new();
    // Not `max by`: that takes the server five times as long, and one of two equal series is enough here too.
    server.query_range(metric, times, series, |labels, values| {
        let course = courses.entry(key(labels)).or_default();
        values.for_each(|(at, value)| course.set(at, value));
    })?;
    Ok(courses)
}

fn identities(server: &Server, from_s: f64, to_s: f64) -> Result<HashMap<String, Identity>, Failure> {
    let mut known: HashMap<String, Identity> = HashMap::new();
    server.series("ebb_group_info", from_s, to_s, |labels| {
        let text = |name| label(labels, name).to_owned();
        let identity = known.entry(key(labels)).or_insert_with(|| {
            let node = Some(text("node")).filter(|node| !node.is_empty());
            Identity {
                node: node.unwrap_or_else(|| text("instance")),
                cgroup: text("cgroup"),
                container_id: text("container_id"),
                pod_uid: text("pod_uid"),
                unit: text("unit"),
                allocators: Vec::new(),
            }
        });
        let allocator = text("allocator");
        if !allocator.is_empty() && !identity.allocators.contains(&allocator) {
            identity.allocators.push(allocator);
        }
    })?;
    Ok(known)
}

/// What is read after the groups are known.
struct More<'a> {
    server: &'a Server,
    times: Times,
    series: usize,
    by: By,
    names: &'a Names,
    /// Groups by their keys, and by namespace, pod and container.
    rows: &'a HashMap<String, usize>,
    containers: &'a HashMap<Container, usize>,
}

impl More<'_> {
    fn end_s(&self) -> f64 {
        self.times.at_s(self.times.count - 1)
    }

    fn looks(&mut self, history: &mut History) -> Result<(), Failure> {
        let span = (self.times.step_s * self.times.count as f64) as u64;
        let query = format!("max by ({KEY}) (changes(ebb_group_look_timestamp_seconds[{span}s]))");
        self.server.query(&query, self.end_s(), |labels, changes| {
            if let Some(group) = self.rows.get(&key(labels)) {
                history.groups[*group].looks = changes + 1.0;
            }
        })
    }

    /// Kills that the cgroup counted, and kills that the kubelet saw: where a container ends with the kill, its counter is
    /// gone before it is read.
    fn kills(&mut self, history: &mut History) -> Result<(), Failure> {
        let mut found: HashMap<(String, usize), [f64; 2]> = HashMap::new();
        let counted = courses(self.server, "ebb_group_oom_kills_total > 0", self.times, self.series / 10)?;
        for (key, course) in counted {
            let Some(group) = self.rows.get(&key).map(|group| &history.groups[*group]) else {
                continue;
            };
            // A counter begins at 0, unless it began before the time.
            let begin = group.usage.points().next().map_or(0, |(at, _)| at);
            let mut before = course.at(begin).unwrap_or(0.0);
            for (at, count) in course.points() {
                if count > before {
                    found.entry((group.name.clone(), at)).or_default()[0] += count - before;
                }
                before = count;
            }
        }
        let reason = "kube_pod_container_status_last_terminated_reason{reason=\"OOMKilled\"} > 0";
        let (mut seen, of) = (HashMap::<Container, Course>::new(), "namespace, pod, container");
        let query =
            format!("max by ({of}) (kube_pod_container_status_restarts_total) and on ({of}) max by ({of}) ({reason})");
        if !self.names.is_empty() {
            self.server.query_range(&query, self.times, self.series / 10, |labels, values| {
                let course = seen.entry(container(labels)).or_default();
                values.for_each(|(at, value)| course.set(at, value));
            })?;
        }
        for ((namespace, pod, _), course) in seen {
            let Some(name) = self.names.row_of_pod(self.by, &namespace, &pod) else { continue };
            let mut before = None;
            for (at, restarts) in course.points() {
                let count = before.map_or(f64::from(at > 0), |before| restarts - before);
                if count > 0.0 {
                    found.entry((name.clone(), at)).or_default()[1] += count;
                }
                before = Some(restarts);
            }
        }
        let count = |[counted, seen]: [f64; 2]| counted.max(seen);
        let events = found.into_iter().map(|((name, at), both)| Event { name, at, count: count(both) });
        history.oom_kills = events.collect();
        Ok(())
    }

    fn replicas(&mut self, history: &mut History) -> Result<(), Failure> {
        if self.by != By::Workload || self.names.is_empty() {
            return Ok(());
        }
        for (metric, name) in
            [("kube_deployment_spec_replicas", "deployment"), ("kube_statefulset_replicas", "statefulset")]
        {
            let query = format!("max by (namespace, {name}) ({metric})");
            self.server.query_range(&query, self.times, self.series / 10, |labels, values| {
                let row = format!("{}/{}", label(labels, "namespace"), label(labels, name));
                let course = history.replicas.entry(row).or_default();
                values.for_each(|(at, value)| course.set(at, value));
            })?;
        }
        Ok(())
    }

    fn requests(&mut self, history: &mut History) -> Result<(), Failure> {
        let query = "max by (namespace, pod, container) (kube_pod_container_resource_requests{resource=\"memory\"})";
        let mut known = false;
        self.server.query(query, self.end_s(), |labels, bytes| {
            if let Some(group) = self.containers.get(&container(labels)) {
                history.groups[*group].request_bytes = Some(bytes);
                known = true;
            }
        })?;
        if !known {
            let why = "--price: no request of a container is known (kube_pod_container_resource_requests)";
            history.cautions.push(why.to_owned());
        }
        Ok(())
    }

    fn in_charge(&mut self, history: &mut History) -> Result<(), Failure> {
        let mut rows: HashMap<String, InCharge> = HashMap::new();
        let query = format!("max by ({KEY}, in_charge) (ebb_group_info)");
        self.server.query(&query, self.end_s(), |labels, _| {
            let Some(group) = self.rows.get(&key(labels)) else { return };
            let row = rows.entry(history.groups[*group].name.clone()).or_default();
            row.containers += 1;
            row.not += usize::from(label(labels, "in_charge") == "no");
        })?;
        let served = "ebb_group_info{allocator=\"ebbmalloc\",in_charge=\"yes\"}";
        for (key, course) in courses(self.server, served, self.times, self.series)? {
            let ends = course.points().next().zip(course.points().next_back());
            let (Some(group), Some(((first, _), (last, _)))) = (self.rows.get(&key), ends) else {
                continue;
            };
            let row = rows.entry(history.groups[*group].name.clone()).or_default();
            let (from, to) = row.ebbmalloc.unwrap_or((first, last));
            row.ebbmalloc = Some((from.min(first), to.max(last)));
        }
        history.in_charge = rows.into_iter().collect();
        Ok(())
    }
}
