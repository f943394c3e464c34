//! The files of a trial: exports, an earlier trial in the folder, places that cannot be written, a disk that is full.

use crate::harness::{Finished, wait_until};
use crate::workload::{ALIKE, SHORT, Workload, fixture, list};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;
use test_needs::skip;

/// The rows of a CSV file, each by the names of its header.
fn rows(text: &str) -> Vec<BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    reader.deserialize().map(Result::unwrap).collect()
}

#[test]
fn a_trial_as_csv_and_markdown_has_the_figures_of_its_json() {
    let workload = Workload::short();
    std::fs::write(workload.out().join("f.csv"), "an earlier one").unwrap();
    let exports = "--export-csv {out}/f.csv --export-markdown {out}/f.md";
    let finished = workload.run(&format!("{ALIKE},missing -n 2 --json {exports}"));
    let trial = finished.expect(0, &[], &[]).json();
    let rows = rows(&workload.written("f.csv"));
    assert_eq!(rows.len(), 3);
    for (row, variant) in rows.iter().zip(list(&trial["variants"])) {
        assert_eq!(row["variant"], variant["name"].as_str().unwrap());
        assert_eq!(row["allocator"], variant["allocator"].as_str().unwrap());
        let figures = &variant["summary"]["figures"];
        for (cell, pointer) in [
            ("after_rest_bytes", "/after_rest/median"),
            ("after_rest_bytes_min", "/after_rest/min"),
            ("after_rest_bytes_max", "/after_rest/max"),
            ("after_rest_bytes_diff", "/after_rest/versus_first/value"),
            ("after_rest_bytes_diff_low", "/after_rest/versus_first/interval/0"),
            ("peak_bytes_diff_high", "/peak/versus_first/interval/1"),
            ("cpu_s", "/cpu/median"),
            ("throughput_per_s", "/throughput/median"),
            ("p99_ms", "/p99/median"),
            ("reclaimable_bytes", "/reclaimable/median"),
            ("typical_bytes", "/typical/median"),
        ] {
            let in_json = figures.pointer(pointer).and_then(Value::as_f64);
            let in_csv = Some(&row[cell]).filter(|it| !it.is_empty()).map(|it| it.parse().unwrap());
            // serde_json reads the last bit of a number only roughly.
            let is_same = match (in_csv, in_json) {
                (Some(cell), Some(value)) => f64::abs(cell - value) <= value.abs() * 1e-12,
                (cell, value) => cell == value,
            };
            assert!(is_same, "{cell} of {}: {in_csv:?} {in_json:?}", row["variant"]);
        }
        let is_median = |name: &str| ["_bytes", "_s", "_ms"].iter().any(|end| name.ends_with(end));
        let filled = row.iter().filter(|(name, cell)| is_median(name) && !cell.is_empty());
        assert_eq!(filled.count() > 3, figures.is_object());
    }
    let [first, other, missing] = &rows[..] else { unreachable!() };
    assert_eq!((&*first["n"], &*other["n"], &*missing["n"]), ("2", "2", "0"));
    assert_eq!(first["after_rest_bytes_diff"], "");
    assert_ne!(other["after_rest_bytes_diff"], "");
    assert_ne!(other["disturbed_times"], "", "/proc/stat is there");

    let text = workload.written("f.md");
    let lines: Vec<&str> = text.lines().collect();
    let cells = |line: &str| line.matches('|').count();
    assert_eq!(lines.len(), 2 + 3, "{text}");
    assert!(lines.iter().all(|line| cells(line) == cells(lines[0])), "{text}");
    let head = "| variant | n | after rest MB | after rest MB vs. glibc |";
    assert!(lines[0].starts_with(head), "{text}");
    assert!(lines[4].starts_with("| missing | 0 |  |  |"), "{text}");
}

#[test]
fn an_export_that_cannot_be_written_is_refused_before_anything_starts() {
    let workload = Workload::plain();
    for (export, why) in [
        ("--export-csv {out}/no/figures.csv", "No such file"),
        ("--export-markdown {out}", "Is a directory"),
        ("--export-markdown /proc/figures.md", "nothing was started"),
        ("--export-csv -", "stdout is used for the tables; name a file"),
    ] {
        let finished = workload.run(&format!("--variants glibc {export}"));
        let named = export.replace("{out}", workload.out().to_str().unwrap());
        finished.expect(64, &[], &[&named, why]).expect_nothing_started();
    }
    assert_eq!(std::fs::read_dir(workload.out()).unwrap().count(), 0);
}

#[test]
fn an_earlier_trial_in_the_folder_is_kept() {
    let workload = Workload::short();
    let output = workload.out();
    std::fs::write(output.join("results.json"), "the earlier one").unwrap();
    std::fs::create_dir(output.join("logs")).unwrap();
    workload.run("--variants glibc -n 1 -o {out}").expect(0, &[], &["kept in"]);
    assert_eq!(workload.written("earlier-1/results.json"), "the earlier one");
    assert!(output.join("earlier-1/logs").is_dir());
    assert_eq!(workload.results()["variants"][0]["name"], "glibc");
}

#[test]
fn files_that_cannot_be_written_at_the_end_cost_no_tables() {
    let workload = Workload::short();
    let child = workload.start("--variants glibc -n 1 -o {out}");
    // The trial has begun: from here on the file's place is taken.
    wait_until("no logs", || workload.out().join("logs").exists());
    std::fs::create_dir(workload.out().join("results.json")).unwrap();
    Finished::of(&child.wait_with_output().unwrap()).expect(
        74,
        &["Memory (RSS", "Verdict: "],
        &["results.json", "the results are on stdout"],
    );
}

/// Runs a shell in a mount namespace of its own, with an empty disk of so many KiB at $DISK. Nothing where no disk can be
/// mounted.
fn on_a_disk(kib: u32, script: &str, environment: &[(&str, &str)]) -> Option<Finished> {
    let alone: &[&str] = match nix::unistd::Uid::effective().is_root() {
        true => &["--mount"],
        false => &["--user", "--map-root-user", "--mount"],
    };
    let shell = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(alone).args(["sh", "-c", script]);
        command
    };
    let mount = |kib: u32| format!("DISK=$(mktemp -d) && mount -t tmpfs -o size={kib}k disk $DISK");
    let is_possible = shell(&format!("{} && umount $DISK && rmdir $DISK", mount(8))).output();
    if !is_possible.is_ok_and(|output| output.status.success()) {
        return None;
    }
    // The namespace ends with the shell, and the disk with it.
    let mut command = shell(&format!(
        "{} || exit 99\n{script}\ncode=$?\necho left: $(ls -A $DISK) >&2\n\
         umount --lazy $DISK; rmdir $DISK; exit $code",
        mount(kib)
    ));
    command.env("EBB", env!("CARGO_BIN_EXE_ebb")).envs(environment.iter().copied());
    Some(Finished::by(&mut command))
}

/// Writes until the disk is full.
const FILL: &str = "cat /dev/zero > $DISK/filler 2> /dev/null";

#[test]
fn a_disk_that_fills_up_during_a_trial_costs_its_files_and_no_figure() {
    let workload = Workload::edited(&[("rest_s = 0.6", "rest_s = 0.3"), SHORT[1]]);
    // A service that fails where its log cannot be written, as Python's `print` does.
    workload.edit("service.py", "        pass\n", "        print(self.path, flush=True)\n");
    // As soon as the first burst of the first run has begun.
    let script = format!(
        "(while [ ! -e $DISK/out/logs/glibc-1/burst-1.out ]; do sleep 0.02; done; {FILL}) &\n\
         $EBB compare $WORKLOAD {ALIKE} -n 2 -o $DISK/out \
         --export-csv $DISK/figures.csv --export-markdown $KEPT/figures.md"
    );
    let [path, kept] = [workload.path(), workload.out()].map(|path| path.to_str().unwrap());
    let Some(finished) = on_a_disk(1024, &script, &[("WORKLOAD", path), ("KEPT", kept)]) else {
        skip!("no disk can be mounted here");
    };
    finished.expect(
        74,
        &[
            "Memory (RSS of the process tree in MB; median, with the lowest and highest run below)",
            "! glibc: the disk was full",
            "Verdict: ",
        ],
        &[
            "no space left for logs in /",
            "/out/logs: further logs go to /",
            "/out/results.json",
            "No space left on device",
            "the results are on stdout; free some space there",
            "/figures.csv was not written",
            "left: filler out",
        ],
    );
    assert!(!finished.stdout.contains(" failed: "), "{}", finished.stdout);
    let markdown = workload.written("figures.md");
    let rows: Vec<&str> = markdown.lines().skip(2).collect();
    assert!(rows[0].starts_with("| glibc | 2 | "), "{markdown}");
    assert!(rows[1].starts_with("| x | 2 | "), "{markdown}");
}

#[test]
fn a_disk_that_is_full_is_found_out_before_the_start() {
    let fixture = fixture();
    let workload = [("WORKLOAD", fixture.to_str().unwrap())];
    for (export, named) in [("-o $DISK/out", "-o /"), ("--export-csv $DISK/f.csv", "--export-csv /")] {
        let script = format!("{FILL}\n$EBB compare $WORKLOAD --variants glibc -n 1 {export}");
        let Some(finished) = on_a_disk(64, &script, &workload) else {
            skip!("no disk can be mounted here");
        };
        let expected = [named, "No space left on device", "nothing was started"];
        finished.expect(74, &[], &expected).expect_nothing_started();
    }
}

#[test]
fn a_snapshot_on_a_full_disk_leaves_the_earlier_one_and_no_empty_file() {
    let script = format!(
        "echo earlier > $DISK/old.json\n{FILL}\n\
         $EBB snap $$ -o $DISK/new.json; echo code: $?\n\
         $EBB snap $$ -o $DISK/old.json; echo code: $?\ncat $DISK/old.json\n\
         $EBB snap $$ > $DISK/filler2; echo code: $?; rm $DISK/filler2"
    );
    let Some(finished) = on_a_disk(64, &script, &[]) else {
        skip!("no disk can be mounted here");
    };
    finished.expect(
        0,
        &["code: 74\ncode: 74\nearlier\ncode: 74\n"],
        &[
            "/new.json was not written: No space left on device",
            "/old.json was not written: No space left on device",
            "ebb: stdout was not written: No space left on device",
            "left: filler old.json\n",
        ],
    );
}

#[test]
fn without_dev_null_that_is_named_and_not_the_service() {
    let fixture = fixture();
    let script = "mount -t tmpfs none /dev\n$EBB compare $WORKLOAD --variants glibc -n 1";
    let workload = [("WORKLOAD", fixture.to_str().unwrap())];
    let Some(finished) = on_a_disk(64, script, &workload) else {
        skip!("no disk can be mounted here");
    };
    finished.expect(20, &["/dev/null, its standard input: No such file or directory"], &[]);
}
