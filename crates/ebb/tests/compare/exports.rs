//! A trial as CSV and as Markdown, each in a file.

use crate::bench::fixture;
use crate::bench::{Edited, run};
use std::collections::BTreeMap;

/// The rows of a CSV file, each by the names of its header.
fn rows(text: &str) -> Vec<BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    reader.deserialize().map(Result::unwrap).collect()
}

#[test]
fn a_trial_as_csv_and_markdown_has_the_figures_of_its_json() {
    let workload = Edited::new(&[("rest_s = 0.6", "rest_s = 0.2"), ("bursts = 2", "bursts = 1")]);
    let folder = tempfile::tempdir().unwrap();
    let [csv, markdown] = ["figures.csv", "figures.md"].map(|name| folder.path().join(name));
    std::fs::write(&csv, "an earlier one").unwrap();
    let variants = "glibc,x=glibc+MALLOC_ARENA_MAX=1,missing";
    let finished = run(
        workload.path(),
        &[
            "--variants",
            variants,
            "-n",
            "2",
            "--json",
            "--export-csv",
            csv.to_str().unwrap(),
            "--export-markdown",
            markdown.to_str().unwrap(),
        ],
    );
    finished.expect(0, &[], &[]);
    let trial: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
    let rows = rows(&std::fs::read_to_string(csv).unwrap());
    assert_eq!(rows.len(), 3);
    for (row, variant) in rows.iter().zip(trial["variants"].as_array().unwrap()) {
        assert_eq!(row["variant"], variant["name"].as_str().unwrap());
        assert_eq!(row["allocator"], variant["allocator"].as_str().unwrap());
        let figures = &variant["summary"]["figures"];
        let measured = figures.as_object();
        for (column, part, path) in [
            ("after_rest_bytes", "", ("after_rest", "/median")),
            ("after_rest_bytes", "_min", ("after_rest", "/min")),
            ("after_rest_bytes", "_max", ("after_rest", "/max")),
            ("after_rest_bytes", "_diff", ("after_rest", "/versus_first/value")),
            ("after_rest_bytes", "_diff_low", ("after_rest", "/versus_first/interval/0")),
            ("peak_bytes", "_diff_high", ("peak", "/versus_first/interval/1")),
            ("cpu_s", "", ("cpu", "/median")),
            ("throughput_per_s", "", ("throughput", "/median")),
            ("p99_ms", "", ("p99", "/median")),
            ("reclaimable_bytes", "", ("reclaimable", "/median")),
            ("typical_bytes", "", ("typical", "/median")),
        ] {
            let in_json = figures[path.0].pointer(path.1).and_then(serde_json::Value::as_f64);
            let cell = &row[&format!("{column}{part}")];
            let in_csv = (!cell.is_empty()).then(|| cell.parse::<f64>().unwrap());
            // serde_json reads the last bit of a number only roughly.
            let is_same = match (in_csv, in_json) {
                (Some(cell), Some(value)) => (cell - value).abs() <= value.abs() * 1e-12,
                (cell, value) => cell == value,
            };
            assert!(is_same, "{column}{part} of {}: {in_csv:?} {in_json:?}", row["variant"]);
        }
        let filled = row.iter().filter(|(name, cell)| {
            let is_median =
                name.ends_with("_bytes") || name.ends_with("_s") || name.ends_with("_ms");
            is_median && !cell.is_empty()
        });
        assert_eq!(filled.count() > 3, measured.is_some());
    }
    let [first, other, missing] = &rows[..] else { unreachable!() };
    assert_eq!((&*first["n"], &*other["n"], &*missing["n"]), ("2", "2", "0"));
    assert_eq!(first["after_rest_bytes_diff"], "");
    assert_ne!(other["after_rest_bytes_diff"], "");
    assert_ne!(other["disturbed_times"], "", "/proc/stat is there");

    let text = std::fs::read_to_string(markdown).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let cells = |line: &str| line.matches('|').count();
    assert_eq!(lines.len(), 2 + 3, "{text}");
    assert!(lines.iter().all(|line| cells(line) == cells(lines[0])), "{text}");
    assert!(
        lines[0].starts_with("| variant | n | after rest MB | after rest MB vs. glibc |"),
        "{text}"
    );
    assert!(lines[4].starts_with("| missing | 0 |  |  |"), "{text}");
}

#[test]
fn an_export_that_cannot_be_written_is_refused_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("no/figures.csv");
    for (option, file, why) in [
        ("--export-csv", nowhere.to_str().unwrap(), "No such file"),
        ("--export-markdown", folder.path().to_str().unwrap(), "Is a directory"),
        ("--export-markdown", "/proc/figures.md", "nothing was started"),
        ("--export-csv", "-", "stdout is used for the tables; name a file"),
    ] {
        let finished = run(&fixture(), &["--variants", "glibc", option, file]);
        finished.expect(64, &[], &[&format!("{option} {file}"), why]);
        assert!(!finished.stderr.contains("run 1"), "{}", finished.stderr);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
