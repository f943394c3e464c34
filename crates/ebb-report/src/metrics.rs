//! A diagnosis as metrics in the text format of Prometheus.

use std::sync::atomic::{AtomicI64, AtomicU64};

use prometheus_client::encoding::text;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::diagnosis::words::label;
use ebb_diagnosis::facts::diagnosis::Diagnosis;

type Bytes = Family<Vec<(&'static str, String)>, Gauge<i64, AtomicI64>>;

/// The text. `heaps_read_s` is how many seconds ago the heaps were read.
pub fn render(diagnosis: &Diagnosis, heaps_read_s: f64) -> Result<String, std::fmt::Error> {
    let snapshot = &diagnosis.snapshot;
    let mut registry = Registry::with_prefix("ebb");
    let memory = Bytes::default();
    for line in &diagnosis.ledger.lines {
        set(&memory, "line", label(line.cause), line.bytes as i64);
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
        let working_set = Option::zip(group.usage, parts.inactive_file)
            .map(|(usage, inactive)| usage.saturating_sub(inactive));
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
    registry.register_with_unit(
        "cgroup",
        "Memory charged to the target's cgroup, by kind",
        Unit::Bytes,
        cgroup,
    );
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
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}

fn set(family: &Bytes, label: &'static str, value: &str, bytes: i64) {
    let name = value.replace([' ', ','], "_").replace("'", "");
    family.get_or_create(&vec![(label, name)]).set(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_diagnosis::facts::diagnosis::{Cause, Ledger, Line, Verdict, VerdictKind};
    use ebb_process::example;
    use ebb_process::snapshot::{Cgroup, Snapshot};

    #[test]
    fn figures_have_names_units_and_labels() {
        let diagnosis = Diagnosis {
            verdict: Verdict {
                kind: VerdictKind::InUse,
                main: None,
                sentence: String::new(),
                next: None,
            },
            ledger: Ledger {
                lines: vec![Line { cause: Cause::Trimmable, bytes: 7, note: None }],
                remainder: -3,
                ..Ledger::default()
            },
            bridge: None,
            findings: Vec::new(),
            snapshot: Snapshot {
                cgroup: Some(Cgroup { usage: Some(10), ..Cgroup::default() }),
                ..example::snapshot(Vec::new())
            },
        };
        let text = render(&diagnosis, 1.5).unwrap();
        for line in [
            "ebb_memory_bytes{line=\"malloc_trim_would_return\"} 7",
            "ebb_memory_bytes{line=\"remainder\"} -3",
            "ebb_cgroup_bytes{part=\"usage\"} 10",
            "ebb_processes 0",
            "ebb_heaps_age_seconds 1.5",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("limit"), "absent is not 0:\n{text}");
    }
}
