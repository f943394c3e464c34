//! How sure a trial is: traps, other load on the machine, repeating until it is sure, slopes.

use crate::harness::{Finished, Subject};
use crate::workload::{ALIKE, SERVICE, SHORT, Workload, ebb, list, median};
use std::process::Command;

#[test]
fn traps_are_named_with_a_remedy_in_text_and_json() {
    let env = "env = { PYTHONTRACEMALLOC = \"1\", BUFFERS = \"3000\" }";
    let workload = Workload::edited(&[(SERVICE, &format!("{SERVICE}\n{env}"))]);
    let finished = workload.run("--variants glibc,jemalloc -n 1 -o {out}");
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
    let results = workload.results();
    let traps = list(&results["traps"]);
    let kinds: Vec<&str> = traps.iter().map(|trap| trap["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["instrumented", "one_stream", "rest_too_short"]);
    for file in ["report.md", "report.html"] {
        workload.assert_written(file, &["trap, instrumented service"]);
    }
}

#[test]
fn it_repeats_until_the_interval_is_narrow() {
    let env = format!("{SERVICE}\nenv = {{ BUFFERS = \"1000\" }}");
    let workload = Workload::edited(&[SHORT[0], SHORT[1], (SERVICE, &env)]);
    let finished = workload.run(&format!("{ALIKE} --until-sure=60 --budget 9m --json"));
    let trial = finished.expect(0, &[], &["run 10: x, repetition 5"]).json();
    let stopping = &trial["stopping"];
    assert_eq!(stopping["end"], "sure", "{stopping}");
    assert!(stopping["repetitions"].as_u64().unwrap() >= 5, "{stopping}");
    let [reached, wanted] =
        ["reached_bytes", "wanted_bytes"].map(|key| stopping[key].as_f64().unwrap());
    assert!(reached <= wanted, "{stopping}");
    let difference = &trial["variants"][1]["summary"]["figures"]["after_rest"]["versus_first"];
    assert!(difference["reading"].is_string(), "{difference}");
}

#[test]
fn a_budget_that_is_spent_is_told() {
    let budget =
        "! not sure: the budget of 1 s has no room for another repetition after 1 repetition";
    let line = "--variants glibc,x=glibc+A=1 --until-sure --budget 1s";
    Workload::plain().run(line).expect(0, &[budget], &[]);
}

#[test]
fn a_share_that_makes_no_sense_is_refused() {
    let workload = Workload::plain();
    workload.run("--until-sure=0").expect(64, &[], &["not a percentage"]);
    workload.run("--budget 1m").expect(64, &[], &["--until-sure"]);
}

#[test]
fn a_trial_beside_other_load_claims_nothing_about_time() {
    let workload = Workload::plain();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let spin = || Subject::spawn(Command::new("sh").args(["-c", "while :; do :; done"]));
    let noise: Vec<Subject> = (0..processors).map(|_| spin()).collect();
    let finished = workload.run("--variants glibc,jemalloc-now -n 1 -o {out}");
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
        let plain = workload.written(file).replace("\\_", "_").replace("&#x27;", "'");
        assert!(plain.contains(verdict), "{file} says something else");
    }
    let state = tempfile::tempdir().unwrap();
    let procfile = state.path().join("Procfile");
    std::fs::write(&procfile, "web: ./server\n").unwrap();
    let out = workload.out().display();
    let say = |line: &str| Finished::by(ebb(line).env("XDG_STATE_HOME", state.path()));
    let fixed = say(&format!("fix {} --from {out}", procfile.display())).stdout;
    let note = say(&format!("run --from {out}/results.json -- true")).stderr;
    for (who, text) in [("fix", fixed), ("run", note)] {
        assert!(text.contains("cost unknown: disturbed"), "{who}: {text}");
        assert_no_times(who, &text);
    }
}

#[track_caller]
fn assert_no_times(who: &str, text: &str) {
    for claim in ["CPU time", "throughput", "p99", "measurable", "higher cost"] {
        assert!(!text.contains(claim), "{who} claims \"{claim}\": {text}");
    }
}

#[test]
fn a_trial_is_disturbed_where_its_own_record_says_so_and_nowhere_else() {
    let finished = Workload::plain().run("--variants glibc -n 1 --json");
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
    let workload = Workload::edited(&[SHORT[0], ("bursts = 2", "bursts = 8")]);
    let finished = workload.run("--variants glibc -n 1 -o {out}");
    let trial = workload.results();
    let slope = &trial["variants"][0]["runs"][0]["slope"];
    let [low, middle, high] =
        ["low", "bytes_per_s", "high"].map(|key| slope[key].as_f64().unwrap());
    assert!(low <= middle && middle <= high, "{slope}");
    let shown = median(&trial, 0, "slope");
    assert!((shown - middle * 3600.0).abs() < 1.0, "{shown} {slope}");
    let hourly = |bytes_per_s: f64| {
        ebb_report::figures::signed(bytes_per_s * 3600.0, ebb_trial::results::Unit::BytesPerHour)
    };
    let interval = format!("{} … {}", hourly(low), hourly(high));
    finished.expect(0, &[&interval], &[]);
}
