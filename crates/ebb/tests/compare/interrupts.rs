//! A trial that is interrupted keeps what was measured and leaves nothing running.

use crate::harness::Finished;
use crate::workload::{Workload, left_over, list, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::process::Child;
use std::time::{Duration, Instant};

/// Starts a long trial and waits until its first rest.
fn start_long(workload: &Workload) -> Child {
    let child = workload.start("--profile long --variants glibc -n 1 -o {out}");
    let summary = workload.out().join("logs/glibc-1/burst-1.out");
    wait_until("the burst never ended", || {
        std::fs::metadata(&summary).is_ok_and(|file| file.len() > 0)
    });
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
