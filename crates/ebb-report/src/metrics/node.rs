//! The machine of `ebb agent` as series; docs/metrics.md is their reference.
//!
//! They are made anew from the node as it is, so a series ends with its process.

use std::sync::atomic::{AtomicI64, AtomicU64};

use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::{Bytes, line_name};
use ebb_node::{Figures, Group, Node, Skip};

/// Bounds of the buckets for the time of a look, in seconds.
const LOOK_SECONDS: [f64; 7] = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0];

type Labels = Vec<(&'static str, String)>;
type Numbers = Family<Labels, Gauge<f64, AtomicU64>>;

/// What the agent says of itself.
#[derive(Debug)]
pub struct Own {
    /// Its version.
    pub version: &'static str,
    /// Processor time so far.
    pub cpu_s: f64,
    /// Its resident memory.
    pub resident_bytes: u64,
    /// The rights that it lacks.
    pub missing_rights: Vec<&'static str>,
    /// Seconds since 1970 at the zero of the node's clock.
    pub epoch_s: f64,
    /// How long looks took.
    pub look_seconds: LookSeconds,
}

/// How long looks took.
#[derive(Clone, Debug)]
pub struct LookSeconds(Histogram);

impl Default for LookSeconds {
    fn default() -> Self {
        Self(Histogram::new(LOOK_SECONDS))
    }
}

impl LookSeconds {
    /// Counts one look.
    pub fn observe(&self, seconds: f64) {
        self.0.observe(seconds);
    }
}

#[derive(Default)]
struct Series {
    info: Bytes,
    memory: Bytes,
    live: Bytes,
    returnable: Bytes,
    pinned: Bytes,
    usage: Bytes,
    limit: Bytes,
    peak: Bytes,
    oom_kills: Family<Labels, Counter>,
    processes: Bytes,
    slope: Numbers,
    slope_low: Numbers,
    slope_high: Numbers,
    looked: Numbers,
}

/// The text.
pub fn render(node: &Node, own: &Own) -> Result<String, std::fmt::Error> {
    let series = Series::default();
    node.groups().for_each(|group| series.add(group, own.epoch_s));
    let mut registry = Registry::with_prefix("ebb");
    series.register(&mut registry);
    register_own(&mut registry, node, own);
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}

impl Series {
    fn add(&self, group: &Group, epoch_s: f64) {
        let identity = &group.identity;
        let labels: Labels = vec![
            ("cgroup", identity.cgroup.clone()),
            ("container_id", identity.container_id.clone().unwrap_or_default()),
            ("pod_uid", identity.pod_uid.clone().unwrap_or_default()),
            ("unit", identity.unit.clone().unwrap_or_default()),
        ];
        set(&self.processes, &labels, Some(group.processes.len() as u64));
        let cgroup = group.cgroup.as_ref();
        set(&self.usage, &labels, cgroup.and_then(|it| it.usage));
        set(&self.limit, &labels, cgroup.and_then(|it| it.limit));
        set(&self.peak, &labels, cgroup.and_then(|it| it.peak));
        if let Some(kills) = cgroup.and_then(|it| it.stress.oom_kills) {
            self.oom_kills.get_or_create(&labels).inc_by(kills);
        }
        let Some(figures) = &group.figures else { return };
        self.add_figures(&labels, figures, group.unseen);
        let looked = epoch_s + figures.at.as_secs_f64();
        self.looked.get_or_create(&labels).set(looked);
        if let Some(slope) = group.slope {
            self.slope.get_or_create(&labels).set(slope.bytes_per_s);
            self.slope_low.get_or_create(&labels).set(slope.low);
            self.slope_high.get_or_create(&labels).set(slope.high);
        }
    }

    fn add_figures(&self, labels: &Labels, figures: &Figures, unseen: u64) {
        set(&self.live, labels, figures.live);
        set(&self.returnable, labels, figures.returnable);
        set(&self.pinned, labels, figures.pinned);
        let with = |more: &[(&'static str, &str)]| -> Labels {
            let more = more.iter().map(|(name, value)| (*name, (*value).to_owned()));
            labels.iter().cloned().chain(more).collect()
        };
        let in_charge = match figures.in_charge {
            Some(true) => "yes",
            Some(false) => "no",
            None => "unknown",
        };
        let info = with(&[
            ("allocator", figures.allocator.as_deref().unwrap_or_default()),
            ("allocator_version", figures.allocator_version.as_deref().unwrap_or_default()),
            ("in_charge", in_charge),
        ]);
        set(&self.info, &info, Some(1));
        for line in &figures.ledger.lines {
            set(&self.memory, &with(&[("line", &line_name(line.cause))]), Some(line.bytes));
        }
        set(&self.memory, &with(&[("line", "not_looked_at")]), Some(unseen));
        let remainder = with(&[("line", "remainder")]);
        self.memory.get_or_create(&remainder).set(figures.ledger.remainder);
    }

    fn register(self, registry: &mut Registry) {
        let bytes = [
            ("group_memory", "Proportional resident memory, by line of the ledger", self.memory),
            ("group_live", "Live blocks of malloc, as of the last look", self.live),
            ("group_returnable", "Free pages that a trim returns, as of the last look", self.returnable),
            ("group_pinned", "Free bytes on pages with live blocks, as of the last look", self.pinned),
            ("group_usage", "Memory charged to the cgroup", self.usage),
            ("group_limit", "The lowest memory limit that holds for the cgroup", self.limit),
            ("group_peak", "The most memory ever charged to the cgroup", self.peak),
        ];
        for (name, help, family) in bytes {
            registry.register_with_unit(name, help, Unit::Bytes, family);
        }
        registry.register("group_info", "What serves malloc in the largest process", self.info);
        registry.register("group_processes", "Processes", self.processes);
        registry.register("group_oom_kills", "Processes killed for lack of memory", self.oom_kills);
        for (name, help, family) in [
            ("group_live_slope_bytes_per_second", "Slope of the live bytes", self.slope),
            ("group_live_slope_bytes_per_second_low", "Lower end of its 95 % interval", self.slope_low),
            ("group_live_slope_bytes_per_second_high", "Upper end of its 95 % interval", self.slope_high),
        ] {
            registry.register(name, help, family);
        }
        let help = "Time of the oldest look that the figures are of, since 1970";
        registry.register_with_unit("group_look_timestamp", help, Unit::Seconds, self.looked);
    }
}

fn register_own(registry: &mut Registry, node: &Node, own: &Own) {
    let looks = Counter::<u64>::default();
    looks.inc_by(node.looks());
    registry.register("agent_looks", "Looks at processes", looks);
    let skips = Family::<Labels, Counter>::default();
    for reason in Skip::ALL {
        let labels = vec![("reason", reason.word().to_owned())];
        skips.get_or_create(&labels).inc_by(node.skips(reason));
    }
    registry.register("agent_skips", "Looks that were due and did not happen", skips);
    let cpu = Counter::<f64, AtomicU64>::default();
    cpu.inc_by(own.cpu_s);
    registry.register_with_unit("agent_cpu", "Processor time of the agent", Unit::Seconds, cpu);
    let resident: Gauge<i64, AtomicI64> = Gauge::default();
    resident.set(own.resident_bytes as i64);
    registry.register_with_unit("agent_resident", "Resident memory of the agent", Unit::Bytes, resident);
    let look = own.look_seconds.0.clone();
    registry.register_with_unit("agent_look", "Time that a look took", Unit::Seconds, look);
    let missing = Bytes::default();
    for right in &own.missing_rights {
        set(&missing, &vec![("right", (*right).to_owned())], Some(1));
    }
    registry.register("agent_missing_right", "A right that the agent lacks", missing);
    let build = Bytes::default();
    set(&build, &vec![("version", own.version.to_owned())], Some(1));
    registry.register("agent_build_info", "Version of the agent", build);
}

/// An unknown figure has no series.
fn set(family: &Bytes, labels: &Labels, value: Option<u64>) {
    if let Some(value) = value {
        family.get_or_create(labels).set(value as i64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_node::{Clock, Options};

    #[test]
    fn what_was_not_looked_at_has_no_heap_figures_and_the_agent_counts_itself() {
        let mut node = Node::new(Options { budget: 0.005, cgroups: None });
        node.tick(&Clock::now());
        let own = Own {
            version: "0.1.0",
            cpu_s: 1.5,
            resident_bytes: 7,
            missing_rights: vec!["CAP_SYS_PTRACE"],
            epoch_s: 0.0,
            look_seconds: LookSeconds::default(),
        };
        own.look_seconds.observe(0.02);
        let text = render(&node, &own).unwrap();
        for line in [
            "ebb_agent_looks_total 0",
            "ebb_agent_skips_total{reason=\"too_large\"} 0",
            "ebb_agent_cpu_seconds_total 1.5",
            "ebb_agent_resident_bytes 7",
            "ebb_agent_look_seconds_bucket{le=\"0.03\"} 1",
            "ebb_agent_missing_right{right=\"CAP_SYS_PTRACE\"} 1",
            "ebb_agent_build_info{version=\"0.1.0\"} 1",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
        }
        assert!(text.contains("ebb_group_processes{cgroup=\"/") && text.ends_with("# EOF\n"));
        assert!(!text.contains("ebb_group_live_bytes{"), "{text}");
    }
}
