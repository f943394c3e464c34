//! `--autoscale`: the simulated replicas against a real loop, which starts and stops processes by the HPA's formula.

use crate::harness::{self, Finished, Subject};
use crate::workload::ebb;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

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
        statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("pages")
            * procfs::page_size()
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
        let replica = |(worker, rss): (&Worker, u64)| json!({ "pid": worker.0.id, "started": 1, "processes": 1, "rss": rss });
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
        let wish = if (0.9..=1.1).contains(&ratio) {
            count
        } else {
            (count as f64 * ratio).ceil() as usize
        };
        wishes.push_back((step * STEP_S, wish));
        wishes.retain(|(at, _)| step * STEP_S - at <= 300);
        let highest = wishes.iter().map(|(_, wish)| *wish).max().unwrap_or(wish);
        let next =
            if wish >= count { wish.min((count + 4).max(count * 2)) } else { highest.min(count) };
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
        let furthest =
            real.iter().zip(&simulated).map(|(real, simulated)| real.abs_diff(*simulated)).max();
        println!("{period}: furthest {furthest:?}\nreal      {real:?}\nsimulated {simulated:?}");
        assert!(furthest <= Some(1), "{period}:\n{real:?}\n{simulated:?}");
        assert!(real.iter().max() >= Some(&7), "the load needs more replicas: {real:?}");
        assert!(real.last() <= Some(&2), "{real:?}");
    }
    let text = diff(folder.path(), "target=50%,request=80MB,max=10", false);
    assert!(text.stdout.contains("simulated: replicas, mean (most)"), "{}", text.all());
    diff(folder.path(), "target=50%", false).expect(
        64,
        &[],
        &["no memory limit is known: add request=512Mi"],
    );
}

#[test]
fn a_trial_shows_the_replicas_of_each_variant() {
    let service = Subject::python(
        "import sys; kept = b'x' * 90_000_000; print('ready', flush=True); sys.stdin.read()",
    );
    let other = Subject::python("import sys; print('ready', flush=True); sys.stdin.read()");
    let line = format!(
        "compare --live large={} small={} --for 2s --every 200ms",
        service.pid(),
        other.pid()
    );
    let mut command = ebb(&format!("{line} --json --autoscale target=30MB,max=6"));
    let trial = Finished::by(&mut command).json();
    let of = |name: &str| trial["autoscale"]["variants"][name]["replicas"].as_f64();
    assert!(of("large") > of("small"), "{trial}");
    let mut command = ebb(&format!("{line} --autoscale target=70%"));
    Finished::by(&mut command).expect(64, &[], &["--autoscale: no memory limit is known"]);
}
