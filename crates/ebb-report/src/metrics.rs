//! A diagnosis, or a machine ([`node`]), as metrics in the text format of Prometheus.

pub mod node;

use std::sync::atomic::{AtomicI64, AtomicU64};

use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::diagnosis::words::label;
use ebb_diagnosis::facts::diagnosis::{Cause, Diagnosis};

/// Steps of the floor of all memory so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FloorSteps {
    /// Rises.
    pub up: u64,
    /// Falls.
    pub down: u64,
    /// When the last one happened, in seconds since 1970, and its bytes.
    pub last: Option<(f64, i64)>,
}

type Bytes = Family<Vec<(&'static str, String)>, Gauge<i64, AtomicI64>>;

/// The text. `heaps_read_s` is how many seconds ago the heaps were read.
pub fn render(diagnosis: &Diagnosis, heaps_read_s: f64, steps: &FloorSteps) -> Result<String, std::fmt::Error> {
    let snapshot = &diagnosis.snapshot;
    let mut registry = Registry::with_prefix("ebb");
    let memory = Bytes::default();
    for line in &diagnosis.ledger.lines {
        set(&memory, "line", &line_name(line.cause), line.bytes as i64);
    }
    set(&memory, "line", "remainder", diagnosis.ledger.remainder);
    registry.register_with_unit(
        "memory",
        "Proportional resident memory of the target's processes, by line of the ledger",
        Unit::Bytes,
        memory,
    );
    let cgroup = Bytes::default();
    if let Some(group) = &snapshot.cgroup {
        let parts = &group.parts;
        let working_set =
            Option::zip(group.usage, parts.inactive_file).map(|(usage, inactive)| usage.saturating_sub(inactive));
        for (name, bytes) in [
            ("usage", group.usage),
            ("limit", group.limit),
            ("working_set", working_set),
            ("anon", parts.anon),
            ("file", parts.file),
            ("shared", parts.shared),
            ("kernel", parts.kernel),
            ("sockets", parts.sockets),
            ("swap", group.swap),
        ] {
            if let Some(bytes) = bytes {
                set(&cgroup, "part", name, bytes as i64);
            }
        }
    }
    registry.register_with_unit("cgroup", "Memory charged to the target's cgroup, by kind", Unit::Bytes, cgroup);
    let processes: Gauge<i64, AtomicI64> = Gauge::default();
    processes.set(snapshot.processes.len() as i64);
    registry.register("processes", "Processes of the target", processes);
    let age: Gauge<f64, AtomicU64> = Gauge::default();
    age.set(heaps_read_s);
    registry.register_with_unit(
        "heaps_age",
        "Time since the heaps were read; the kernel's figures are current",
        Unit::Seconds,
        age,
    );
    register(&mut registry, steps);
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}

fn register(registry: &mut Registry, steps: &FloorSteps) {
    let counts = Family::<Vec<(&'static str, String)>, Counter>::default();
    for (direction, count) in [("up", steps.up), ("down", steps.down)] {
        counts.get_or_create(&vec![("direction", direction.to_owned())]).inc_by(count);
    }
    registry.register("floor_steps", "Steps of the floor of all memory", counts);
    if let Some((at_s, bytes)) = steps.last {
        let size: Gauge<i64, AtomicI64> = Gauge::default();
        size.set(bytes);
        registry.register_with_unit("last_floor_step", "Size of the last step", Unit::Bytes, size);
        let time: Gauge<f64, AtomicU64> = Gauge::default();
        time.set(at_s);
        registry.register_with_unit(
            "last_floor_step_timestamp",
            "Time of the last step, since 1970",
            Unit::Seconds,
            time,
        );
    }
}

/// The value of the label `line`.
fn line_name(cause: Cause) -> String {
    label(cause).replace([' ', ','], "_").replace("'", "")
}

fn set(family: &Bytes, label: &'static str, value: &str, bytes: i64) {
    family.get_or_create(&vec![(label, value.to_owned())]).set(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_diagnosis::facts::diagnosis::{Ledger, Line, Verdict, VerdictKind};
    use ebb_process::example;
    use ebb_process::snapshot::{Cgroup, Snapshot};

    #[test]
    fn figures_have_names_units_and_labels() {
        let diagnosis = Diagnosis {
            verdict: Verdict { kind: VerdictKind::InUse, main: None, sentence: String::new(), next: None },
            ledger: Ledger {
                lines: vec![Line { cause: Cause::Trimmable, bytes: 7, note: None }],
                remainder: -3,
                ..Ledger::default()
            },
            bridge: None,
            findings: Vec::new(),
            workers: Vec::new(),
            snapshot: Snapshot {
                cgroup: Some(Cgroup { usage: Some(10), ..Cgroup::default() }),
                ..example::snapshot(Vec::new())
            },
        };
        let steps = FloorSteps { up: 2, down: 1, last: Some((1_764_000_000.5, -5)) };
        let text = render(&diagnosis, 1.5, &steps).unwrap();
        for line in [
            "ebb_memory_bytes{line=\"malloc_trim_would_return\"} 7",
            "ebb_memory_bytes{line=\"remainder\"} -3",
            "ebb_cgroup_bytes{part=\"usage\"} 10",
            "ebb_processes 0",
            "ebb_heaps_age_seconds 1.5",
            "ebb_floor_steps_total{direction=\"up\"} 2",
            "ebb_floor_steps_total{direction=\"down\"} 1",
            "ebb_last_floor_step_bytes -5",
            "ebb_last_floor_step_timestamp_seconds 1764000000.5",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("limit"), "absent is not 0:\n{text}");
        let text = render(&diagnosis, 1.5, &FloorSteps::default()).unwrap();
        assert!(text.contains("{direction=\"up\"} 0\n") && !text.contains("last_floor"), "{text}");
    }
}
