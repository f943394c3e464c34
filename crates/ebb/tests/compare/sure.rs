//! How sure a trial is: traps, other load on the machine, repeating until it is sure, slopes; `--autoscale`: the simulated
//! replicas against a real loop, which starts and stops processes by the HPA's formula.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{self, Finished, Subject};
use crate::workload::{ALIKE, SERVICE, SHORT, Workload, ebb, list, median};

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
    let [reached, wanted] = ["reached_bytes", "wanted_bytes"].map(|key| stopping[key].as_f64().unwrap());
    assert!(reached <= wanted, "{stopping}");
    let difference = &trial["variants"][1]["summary"]["figures"]["after_rest"]["versus_first"];
    assert!(difference["reading"].is_string(), "{difference}");
}

#[test]
fn a_budget_that_is_spent_is_told() {
    let budget = "! not sure: the budget of 1 s has no room for another repetition after 1 repetition";
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
    let [low, middle, high] = ["low", "bytes_per_s", "high"].map(|key| slope[key].as_f64().unwrap());
    assert!(low <= middle && middle <= high, "{slope}");
    let shown = median(&trial, 0, "slope");
    assert!((shown - middle * 3600.0).abs() < 1.0, "{shown} {slope}");
    let hourly =
        |bytes_per_s: f64| ebb_report::figures::signed(bytes_per_s * 3600.0, ebb_trial::results::Unit::BytesPerHour);
    let interval = format!("{} … {}", hourly(low), hourly(high));
    finished.expect(0, &[&interval], &[]);
}

/// Holds as many bytes as the last line says.
const WORKER: &str = "
import sys
print('ready', flush=True)
for line in sys.stdin:
    held = b'x' * int(line)
    print('done', flush=True)
";
/// The load of each decision, MB, all replicas together.
const LOAD: [(u32, usize); 5] = [(0, 3), (80, 6), (240, 8), (50, 30), (0, 24)];
/// Time between two decisions; nothing here waits for it.
const STEP_S: usize = 15;
const TARGET: f64 = 40e6;
const BOUNDS: (usize, usize) = (1, 10);

struct Worker(Subject, Option<usize>);

impl Worker {
    fn start() -> Self {
        let mut command = Command::new("python3");
        // Each block is a mapping, so that glibc holds none: what replicas hold is not shared, and the rule would keep them all.
        command.args(["-c", WORKER]).env("MALLOC_MMAP_THRESHOLD_", "65536");
        Self(Subject::start(&mut command), None)
    }

    fn hold(&mut self, bytes: usize) {
        if self.1.replace(bytes) == Some(bytes) {
            return;
        }
        let stdin = self.0.child.stdin.as_mut().expect("a pipe");
        writeln!(stdin, "{bytes}").expect("a reader");
        assert_eq!(self.0.line(), "done");
    }

    fn rss(&self) -> u64 {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.0.id)).expect("statm");
        statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("pages") * procfs::page_size()
    }
}

/// The load of each step.
fn steps() -> impl Iterator<Item = usize> {
    LOAD.iter().flat_map(|&(mb, count)| std::iter::repeat_n(mb as usize * 1_000_000, count))
}

fn share(workers: &mut [Worker], load: usize) -> Vec<u64> {
    let each = load / workers.len();
    workers.iter_mut().for_each(|worker| worker.hold(each));
    workers.iter().map(Worker::rss).collect()
}

/// What a fixed number of processes holds, as lines of a recording.
fn record(count: usize, from_s: usize, lines: &mut String) {
    let mut workers: Vec<Worker> = (0..count).map(|_| Worker::start()).collect();
    for (step, load) in steps().enumerate() {
        let at = from_s + step * STEP_S;
        let rss = share(&mut workers, load);
        let replica =
            |(worker, rss): (&Worker, u64)| json!({ "pid": worker.0.id, "started": 1, "processes": 1, "rss": rss });
        let replicas: Vec<Value> = workers.iter().zip(rss).map(replica).collect();
        let at = format!("2026-11-24T{:02}:{:02}:{:02}Z", at / 3600, at / 60 % 60, at % 60);
        let record = json!({ "format": 1, "at": at, "every_s": STEP_S, "target": "workers", "replicas": replicas });
        let _ = writeln!(lines, "{record}");
    }
}

/// Replicas after each decision of a real loop: processes are started and stopped by what they were measured to hold.
fn real(start: usize) -> Vec<usize> {
    let mut workers: Vec<Worker> = (0..start).map(|_| Worker::start()).collect();
    let mut wishes = VecDeque::from([(0, start)]);
    let decide = |(step, load): (usize, usize)| {
        let rss = share(&mut workers, load);
        let count = workers.len();
        let ratio = rss.iter().sum::<u64>() as f64 / count as f64 / TARGET;
        let wish = if (0.9..=1.1).contains(&ratio) { count } else { (count as f64 * ratio).ceil() as usize };
        wishes.push_back((step * STEP_S, wish));
        wishes.retain(|(at, _)| step * STEP_S - at <= 300);
        let highest = wishes.iter().map(|(_, wish)| *wish).max().unwrap_or(wish);
        let next = if wish >= count { wish.min((count + 4).max(count * 2)) } else { highest.min(count) };
        let next = next.clamp(BOUNDS.0, BOUNDS.1);
        workers.truncate(next);
        while workers.len() < next {
            workers.push(Worker::start());
        }
        next
    };
    steps().enumerate().map(decide).collect()
}

/// The simulated number at each step.
fn simulated(outcome: &Value) -> Vec<usize> {
    let changes = outcome["changes"].as_array().expect("changes");
    let at = |step: usize| {
        let until = (step * STEP_S) as f64;
        let last = changes.iter().rfind(|it| it["at_s"].as_f64().is_some_and(|at| at <= until));
        last.and_then(|it| it["replicas"].as_u64()).expect("replicas") as usize
    };
    (0..steps().count()).map(at).collect()
}

fn diff(folder: &Path, settings: &str, json: bool) -> Finished {
    let mut command = harness::ebb();
    command.arg("diff").arg(folder);
    command.args(["--after", "2026-11-24T12:00:00Z", "--autoscale", settings]);
    Finished::by(command.args(json.then_some("--json")))
}

#[test]
fn simulated_replicas_are_those_of_a_real_loop() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut lines = String::new();
    record(3, 0, &mut lines);
    record(2, 12 * 3600, &mut lines);
    std::fs::write(folder.path().join("2026-11-24.jsonl"), lines).expect("a recording");
    let found = diff(folder.path(), "target=40MB,max=10", true).json();
    for (period, start) in [("before", 3), ("after", 2)] {
        let (real, simulated) = (real(start), simulated(&found["autoscale"][period]));
        let furthest = real.iter().zip(&simulated).map(|(real, simulated)| real.abs_diff(*simulated)).max();
        println!("{period}: furthest {furthest:?}\nreal      {real:?}\nsimulated {simulated:?}");
        assert!(furthest <= Some(1), "{period}:\n{real:?}\n{simulated:?}");
        assert!(real.iter().max() >= Some(&7), "the load needs more replicas: {real:?}");
        assert!(real.last() <= Some(&2), "{real:?}");
    }
    let text = diff(folder.path(), "target=50%,request=80MB,max=10", false);
    assert!(text.stdout.contains("simulated: replicas, mean (most)"), "{}", text.all());
    diff(folder.path(), "target=50%", false).expect(64, &[], &["no memory limit is known: add request=512Mi"]);
}

#[test]
fn a_trial_shows_the_replicas_of_each_variant() {
    let service = Subject::python("import sys; kept = b'x' * 90_000_000; print('ready', flush=True); sys.stdin.read()");
    let other = Subject::python("import sys; print('ready', flush=True); sys.stdin.read()");
    let line = format!("compare --live large={} small={} --for 2s --every 200ms", service.pid(), other.pid());
    let mut command = ebb(&format!("{line} --json --autoscale target=30MB,max=6"));
    let trial = Finished::by(&mut command).json();
    let of = |name: &str| trial["autoscale"]["variants"][name]["replicas"].as_f64();
    assert!(of("large") > of("small"), "{trial}");
    let mut command = ebb(&format!("{line} --autoscale target=70%"));
    Finished::by(&mut command).expect(64, &[], &["--autoscale: no memory limit is known"]);
}
