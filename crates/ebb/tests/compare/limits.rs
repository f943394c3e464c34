//! Limits of a trial: a cgroup with too little memory or processor time, a rest that is too high, the health address under
//! load. Where no cgroup can be made (no root, no delegation) the tests of cgroups check the message about that.

use std::process::Child;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::{self, Finished, wait_until};
use crate::workload::{ALIKE, Workload, left_over, list, median};

/// Whether cgroups can be made here; where not, the tool must have said so.
fn allowed(finished: &Finished) -> bool {
    if finished.code != Some(30) {
        return true;
    }
    finished.expect(30, &[], &["none can be made", "systemd-run --user --scope"]);
    test_needs::note("no cgroup can be made here");
    false
}

fn cgroups_of(variant: &str) -> usize {
    walkdir::WalkDir::new("/sys/fs/cgroup")
        .into_iter()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("ebb-") && name.contains(variant))
        .count()
}

#[test]
fn who_is_killed_for_want_of_memory_is_a_result() {
    let workload = Workload::plain();
    // A name of its own, since leftover cgroups are looked for on the whole machine.
    let small = format!("small{}", std::process::id());
    let variants = format!("--variants glibc,{small}=glibc+BUFFERS=500");
    let finished = workload.run(&format!("--memory-max 40M {variants} -n 2 -o {{out}}"));
    if !allowed(&finished) {
        return;
    }
    finished.expect(
        0,
        &[
            "OOM-killed",
            "2 of 2 runs",
            "! glibc: run 1 failed: the service was OOM-killed",
            "during burst (limit 40 MB)",
            &format!("Verdict: {small} stays within the limit with a peak of"),
            "in 2 of 2 runs, under a limit of 40 MB",
        ],
        &["run 3/4: glibc, repetition 2"],
    );
    let trial = workload.results();
    assert_eq!(trial["limits"]["memory_max_bytes"], 40_000_000);
    let oom = &trial["variants"][0]["runs"][0]["oom"];
    assert!(oom["kills"].as_u64().unwrap() >= 1, "{oom}");
    assert!(oom["limit_bytes"].as_u64().unwrap() <= 40_000_000, "{oom}");
    assert!(oom["at_s"].as_f64().unwrap() > 0.0, "{oom}");
    assert!(trial["variants"][1]["runs"][0]["oom"].is_null());
    assert!(median(&trial, 1, "peak") < 40e6);
    // The page's bars say it.
    workload.assert_written("report.html", &["OOM-killed after"]);
    assert_eq!(cgroups_of(&format!("-{small}-")), 0);
}

#[test]
fn where_everybody_is_killed_no_allocator_helps() {
    let finished = Workload::plain().run(&format!("--memory-max 40M {ALIKE} -n 1"));
    let verdict = "Verdict: No allocator helps: glibc is OOM-killed";
    if allowed(&finished) {
        finished.expect(0, &[verdict, "so is every other variant (x)"], &[]);
    }
}

#[test]
fn too_little_processor_time_is_seen_as_throttling() {
    // So little that a loaded machine gives it more at times; it takes its time to be ready.
    let patient = "/health\" }\nready_timeout_s = 300\nenv = { BUFFERS = \"3000\" }";
    let workload = Workload::edited(&[("/health\" }", patient)]);
    let finished = workload.run("--cpus 0.03 --variants glibc -n 1 -o {out}");
    if !allowed(&finished) {
        return;
    }
    finished.expect(0, &["throttled s"], &[]);
    let throttled_s = median(&workload.results(), 0, "throttled");
    assert!(throttled_s > 0.0, "{throttled_s} s");
    let limits = "The service of each run had a cgroup with 0.03 processors.";
    workload.assert_written("report.md", &[limits]);
}

#[test]
fn a_user_without_the_right_is_told_what_to_do() {
    let folder = harness::folder();
    let mut command = harness::unprivileged_ebb(&folder);
    let line = "compare --burst http://127.0.0.1:{port}/ --memory-max 1G -- sleep 9";
    let finished = Finished::by(command.args(harness::words(line)).current_dir("/"));
    // A machine may let its users do it.
    if finished.code == Some(30) {
        let what = "--memory-max and --cpus need a cgroup, which cannot be created";
        finished.expect(30, &[], &[what, "systemd-run --user --scope"]);
        assert_eq!(finished.stderr.trim().lines().count(), 1, "{}", finished.stderr);
    }
}

#[test]
fn a_rest_that_is_too_high_has_an_exit_code() {
    // It is unknown what a service that died would hold.
    let died = "! glibc: did not reach its rest, so it is not within --max-rest of 1000 MB";
    let unknown = "--max-rest y: this trial has no such variant; it has: glibc, x";
    for (options, code, stdout, stderr) in [
        ("--max-rest 1Gi --max-rest x=1M", 15, &["! x: holds ", "above --max-rest of 1.00 MB"][..], ""),
        ("--max-rest 1Gi", 0, &["Verdict"], ""),
        ("--max-rest y=1G", 64, &[], unknown),
        ("--max-rest little", 64, &[], "512Mi"),
        ("--profile dies --max-rest 1G", 15, &[died], ""),
    ] {
        let finished = Workload::plain().run(&format!("{ALIKE} -n 1 {options}"));
        finished.expect(code, stdout, &[stderr]);
    }
}

#[test]
fn the_health_address_is_asked_under_load_and_never_in_a_rest() {
    let sick = "health = \"http://127.0.0.1:{port}/nowhere\"\nstop_timeout_s = 2";
    let workload = Workload::edited(&[("stop_timeout_s = 2", sick)]);
    workload.run("--variants glibc -n 1").expect(0, &["the health address failed"], &[]);
    let workload = Workload::edited(&[("rest_s = 0.6", "rest_s = 2.5")]);
    workload.run("--variants glibc -n 1 -o {out}").expect(0, &["health max ms"], &[]);
    let trial = workload.results();
    let run = &trial["variants"][0]["runs"][0];
    let asked: Vec<f64> = list(&run["health"]).iter().map(|it| it["at_s"].as_f64().unwrap()).collect();
    assert!(!asked.is_empty());
    for phase in list(&run["phases"]).iter().filter(|phase| phase["kind"] == "idle") {
        let [from, to] = ["from_s", "to_s"].map(|key| phase[key].as_f64().unwrap());
        // The asker may have looked just before the phase began, and be slow on a loaded machine.
        let outside = |at: &f64| *at <= from + 1.0 || *at >= to;
        assert!(asked.iter().all(outside), "{asked:?} in {from} to {to}");
    }
}

/// Starts a long trial and waits until its first rest.
fn start_long(workload: &Workload) -> Child {
    let child = workload.start("--profile long --variants glibc -n 1 -o {out}");
    let summary = workload.out().join("logs/glibc-1/burst-1.out");
    wait_until("the burst never ended", || std::fs::metadata(&summary).is_ok_and(|file| file.len() > 0));
    std::thread::sleep(Duration::from_millis(500));
    child
}

fn interrupt(child: &Child) {
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
}

#[track_caller]
fn assert_kept(workload: &Workload) {
    let trial = workload.results();
    assert_eq!(trial["interrupted"], true);
    let run = &trial["variants"][0]["runs"][0];
    assert_eq!(run["outcome"]["kind"], "interrupted");
    assert!(list(&run["samples"]).len() > 5);
    assert!(list(&run["phases"]).len() >= 2);
    assert!(workload.out().join("report.html").exists());
}

#[test]
fn ctrl_c_stops_the_services_and_keeps_what_was_measured() {
    let workload = Workload::plain();
    let child = start_long(&workload);
    let tool = child.id();
    assert!(left_over(tool).len() >= 2, "the service and its companion run");
    interrupt(&child);
    let finished = Finished::of(&child.wait_with_output().unwrap());
    finished.expect(
        130,
        &["! interrupted: finished runs are kept", "! glibc: run 1 was interrupted"],
        &["interrupted: stopping all processes"],
    );
    assert_eq!(left_over(tool), Vec::<i32>::new());
    assert_kept(&workload);
}

#[test]
fn a_second_ctrl_c_kills_at_once_and_keeps_what_was_measured() {
    // A service that does not mind SIGTERM and would be waited for.
    let workload = Workload::edited(&[("stop_timeout_s = 2", "stop_timeout_s = 60")]);
    let start = "if __name__ == \"__main__\":";
    let ignoring = "__import__(\"signal\").signal(15, __import__(\"signal\").SIG_IGN)";
    workload.edit("service.py", start, &format!("{start}\n    {ignoring}"));
    let mut child = start_long(&workload);
    let tool = child.id();
    interrupt(&child);
    std::thread::sleep(Duration::from_millis(700));
    assert!(child.try_wait().unwrap().is_none(), "it waits for the service's end");
    let before = Instant::now();
    interrupt(&child);
    Finished::of(&child.wait_with_output().unwrap()).expect(130, &[], &["interrupted twice"]);
    assert!(before.elapsed() < Duration::from_secs(5));
    // A killed process needs a moment until its memory is gone.
    wait_until("the service runs on", || left_over(tool).is_empty());
    assert_kept(&workload);
}
