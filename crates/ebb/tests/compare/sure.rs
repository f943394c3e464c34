//! How sure a trial is: traps, other load on the machine, repeating until it is sure, slopes.
//!
//! On the service of `fixtures/bursts`. Needs python3 and libjemalloc.so.2.

use crate::bench::{self, Edited, fixture, run};
use std::process::{Child, Command, Stdio};

/// The line of the fixture that an environment is added to.
const SERVICE: &str = "command = [\"python3\", \"service.py\", \"{port}\"]";

/// The results of a run with `--json`.
fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn traps_are_named_with_a_remedy_in_text_and_json() {
    let env = "env = { PYTHONTRACEMALLOC = \"1\", BUFFERS = \"3000\" }";
    let workload = Edited::new(&[(SERVICE, &format!("{SERVICE}\n{env}"))]);
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().to_str().unwrap();
    let arguments = ["--variants", "glibc,jemalloc", "-n", "1", "-o", output];
    let finished = run(workload.path(), &arguments);
    finished.expect(
        0,
        &[
            "! trap, instrumented service: tracemalloc is on",
            "PYTHONTRACEMALLOC=1",
            "! trap, one stream only: at most 1.0 requests",
            "! jemalloc: trap, rest too short: its settings return memory within 10 s of activity, but the rest lasts 0.",
            "Make the rest longer than that",
        ],
        &[],
    );
    let results = bench::results(folder.path());
    let kinds: Vec<&str> = results["traps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|trap| trap["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["instrumented", "one_stream", "rest_too_short"]);
    for file in ["report.md", "report.html"] {
        let text = std::fs::read_to_string(folder.path().join(file)).unwrap();
        assert!(text.contains("trap, instrumented service"), "{file}");
    }
}

#[test]
fn it_repeats_until_the_interval_is_narrow() {
    let variants = "glibc,x=glibc+MALLOC_ARENA_MAX=1";
    let workload = Edited::new(&[
        ("rest_s = 0.6", "rest_s = 0.2"),
        ("bursts = 2", "bursts = 1"),
        (SERVICE, &format!("{SERVICE}\nenv = {{ BUFFERS = \"1000\" }}")),
    ]);
    let finished = run(
        workload.path(),
        &["--variants", variants, "--until-sure=60", "--budget", "9m", "--json"],
    );
    finished.expect(0, &[], &["run 10: x, repetition 5"]);
    let trial = json(&finished.stdout);
    let stopping = &trial["stopping"];
    assert_eq!(stopping["end"], "sure", "{stopping}");
    assert!(stopping["repetitions"].as_u64().unwrap() >= 5, "{stopping}");
    assert!(
        stopping["reached_bytes"].as_f64().unwrap() <= stopping["wanted_bytes"].as_f64().unwrap(),
        "{stopping}"
    );
    let difference = &trial["variants"][1]["summary"]["figures"]["after_rest"]["versus_first"];
    assert!(difference["reading"].is_string(), "{difference}");
}

#[test]
fn a_budget_that_is_spent_is_told() {
    let arguments = ["--variants", "glibc,x=glibc+A=1", "--until-sure", "--budget", "1s"];
    run(&fixture(), &arguments).expect(
        0,
        &["! not sure: the budget of 1 s has no room for another repetition after 1 repetition"],
        &[],
    );
}

#[test]
fn a_share_that_makes_no_sense_is_refused() {
    run(&fixture(), &["--until-sure=0"]).expect(64, &[], &["not a percentage"]);
    run(&fixture(), &["--budget", "1m"]).expect(64, &[], &["--until-sure"]);
}

/// Something that takes all processors and is not part of the trial.
struct Noise(Vec<Child>);

impl Noise {
    fn make() -> Noise {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let spin = || {
            Command::new("sh")
                .args(["-c", "while :; do :; done"])
                .stdin(Stdio::null())
                .spawn()
                .unwrap()
        };
        Noise((0..count).map(|_| spin()).collect())
    }
}

impl Drop for Noise {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn a_trial_beside_other_load_claims_nothing_about_time() {
    let folder = tempfile::tempdir().unwrap();
    let (output, state) = (folder.path().join("out"), folder.path().join("state"));
    let noise = Noise::make();
    let finished = run(
        &fixture(),
        &["--variants", "glibc,jemalloc-now", "-n", "1", "-o", output.to_str().unwrap()],
    );
    drop(noise);
    finished.expect(
        0,
        &[
            "; disturbed, see below",
            "! disturbed: in 2 of 2 runs other programs took up to",
            "; cost unknown: disturbed.",
        ],
        &[],
    );
    let verdict = finished.stdout.lines().find_map(|line| line.strip_prefix("Verdict: ")).unwrap();
    assert_no_times("the terminal", verdict);
    for file in ["report.md", "report.html"] {
        let text = std::fs::read_to_string(output.join(file)).unwrap();
        let plain = text.replace("\\_", "_").replace("&#x27;", "'");
        assert!(plain.contains(verdict), "{file} says something else");
    }
    std::fs::write(folder.path().join("Procfile"), "web: ./server\n").unwrap();
    let fixed = ebb(&state)
        .arg("fix")
        .arg(folder.path().join("Procfile"))
        .arg("--from")
        .arg(&output)
        .output()
        .unwrap();
    let reasons = String::from_utf8_lossy(&fixed.stdout).into_owned();
    assert!(reasons.contains("cost unknown: disturbed"), "{reasons}");
    assert_no_times("fix", &reasons);
    let ran = ebb(&state)
        .args(["run", "--from"])
        .arg(output.join("results.json"))
        .args(["--", "true"])
        .output()
        .unwrap();
    let note = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(note.contains("cost unknown: disturbed"), "{note}");
    assert_no_times("run", &note);
}

/// A command of the tool that leaves its records in a folder of the test's.
fn ebb(state: &std::path::Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    command.env("XDG_STATE_HOME", state);
    command
}

#[track_caller]
fn assert_no_times(who: &str, text: &str) {
    for claim in ["CPU time", "throughput", "p99", "measurable", "higher cost"] {
        assert!(!text.contains(claim), "{who} claims \"{claim}\": {text}");
    }
}

#[test]
fn a_trial_is_disturbed_where_its_own_record_says_so_and_nowhere_else() {
    let finished = run(&fixture(), &["--variants", "glibc", "-n", "1", "--json"]);
    let mut trial: ebb_trial::results::Trial = serde_json::from_str(&finished.stdout).unwrap();
    let share = trial.variants[0].runs[0].disturbance.others_cpu_share;
    let share = share.expect("the machine's counters were read");
    for (share, disturbed) in [(share, share >= 0.10), (0.05, false), (0.5, true)] {
        trial.variants[0].runs[0].disturbance.others_cpu_share = Some(share);
        let text = ebb_report::text::render(&trial, 120);
        assert_eq!(text.contains("disturbed"), disturbed, "{share}: {text}");
    }
}

#[test]
fn eight_rounds_give_a_slope_with_its_interval() {
    let workload = Edited::new(&[("rest_s = 0.6", "rest_s = 0.2"), ("bursts = 2", "bursts = 8")]);
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().to_str().unwrap();
    let finished = run(workload.path(), &["--variants", "glibc", "-n", "1", "-o", output]);
    let trial = bench::results(folder.path());
    let slope = &trial["variants"][0]["runs"][0]["slope"];
    let [low, middle, high] =
        ["low", "bytes_per_s", "high"].map(|key| slope[key].as_f64().unwrap());
    assert!(low <= middle && middle <= high, "{slope}");
    let column = &trial["variants"][0]["summary"]["figures"]["slope"]["median"];
    assert!((column.as_f64().unwrap() - middle * 3600.0).abs() < 1.0, "{column} {slope}");
    let hourly = |bytes_per_s: f64| {
        ebb_report::figures::signed(bytes_per_s * 3600.0, ebb_trial::results::Unit::BytesPerHour)
    };
    let interval = format!("{} … {}", hourly(low), hourly(high));
    finished.expect(0, &[&interval], &[]);
}
