//! Limits of a trial on a real service: a cgroup with too little memory or processor time, a rest that is
//! too high, the health address under load.
//!
//! The service is that of `fixtures/bursts`. Needs python3; where no cgroup can be made (no root, no
//! delegation) the tests of cgroups check that this is said, since nothing else can be had there.

use crate::bench::{Edited, Finished, fixture, results, run};
use crate::harness;
use std::path::Path;

/// Whether cgroups can be made here; where not, the tool must have said so.
fn allowed(finished: &Finished) -> bool {
    if finished.code != Some(30) {
        return true;
    }
    finished.expect(30, &[], &["none can be made", "systemd-run --user --scope"]);
    test_needs::note("no cgroup can be made here");
    false
}

/// Cgroups of runs of a variant.
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
    let output = tempfile::tempdir().unwrap();
    let folder = output.path().to_str().unwrap();
    // A name of its own, since the cgroups left behind are looked for on the whole machine.
    let small = format!("small{}", std::process::id());
    let finished = run(
        &fixture(),
        &[
            "--memory-max",
            "40M",
            "--variants",
            &format!("glibc,{small}=glibc+BUFFERS=500"),
            "-n",
            "2",
            "-o",
            folder,
        ],
    );
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
    let trial = results(output.path());
    assert_eq!(trial["limits"]["memory_max_bytes"], 40_000_000);
    let oom = &trial["variants"][0]["runs"][0]["oom"];
    assert!(
        oom["kills"].as_u64().unwrap() >= 1 && oom["limit_bytes"].as_u64().unwrap() <= 40_000_000,
        "{oom}"
    );
    assert!(oom["at_s"].as_f64().unwrap() > 0.0, "{oom}");
    let survivor = &trial["variants"][1];
    assert!(survivor["runs"][0]["oom"].is_null());
    assert!(survivor["summary"]["figures"]["peak"]["median"].as_f64().unwrap() < 40e6);
    let page = std::fs::read_to_string(output.path().join("report.html")).unwrap();
    assert!(page.contains("OOM-killed after"), "the page's bars say it");
    assert_eq!(cgroups_of(&format!("-{small}-")), 0);
}

#[test]
fn where_everybody_is_killed_no_allocator_helps() {
    let finished = run(
        &fixture(),
        &["--memory-max", "40M", "--variants", "glibc,x=glibc+MALLOC_ARENA_MAX=1", "-n", "1"],
    );
    if allowed(&finished) {
        finished.expect(
            0,
            &["Verdict: No allocator helps: glibc is OOM-killed", "so is every other variant (x)"],
            &[],
        );
    }
}

#[test]
fn too_little_processor_time_is_seen_as_throttling() {
    let output = tempfile::tempdir().unwrap();
    let folder = output.path().to_str().unwrap();
    // So little that a loaded machine gives it more at times; it takes its time to be ready.
    let workload = Edited::new(&[(
        "/health\" }",
        "/health\" }\nready_timeout_s = 300\nenv = { BUFFERS = \"3000\" }",
    )]);
    let limits = ["--cpus", "0.03", "--variants", "glibc", "-n", "1", "-o", folder];
    let finished = run(workload.path(), &limits);
    if !allowed(&finished) {
        return;
    }
    finished.expect(0, &["throttled s"], &[]);
    let trial = results(output.path());
    let throttled =
        trial["variants"][0]["summary"]["figures"]["throttled"]["median"].as_f64().unwrap();
    assert!(throttled > 0.0, "{throttled} s");
    let markdown = std::fs::read_to_string(output.path().join("report.md")).unwrap();
    assert!(
        markdown.contains("The service of each run had a cgroup with 0.03 processors."),
        "{markdown}"
    );
}

#[test]
fn a_user_without_the_right_is_told_what_to_do() {
    let scratch = tempfile::tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(scratch.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let mut command = harness::unprivileged_ebb(&scratch);
    let arguments = [
        "compare",
        "--burst",
        "http://127.0.0.1:{port}/",
        "--memory-max",
        "1G",
        "--",
        "sleep",
        "9",
    ];
    let finished = Finished::of(&command.args(arguments).current_dir("/").output().unwrap());
    // A machine may let its users do it.
    if finished.code == Some(30) {
        finished.expect(
            30,
            &[],
            &[
                "--memory-max and --cpus need a cgroup, which cannot be created",
                "systemd-run --user --scope",
            ],
        );
        assert_eq!(finished.stderr.trim().lines().count(), 1, "{}", finished.stderr);
    }
}

#[test]
fn a_rest_that_is_too_high_has_an_exit_code() {
    let variants = ["--variants", "glibc,x=glibc+MALLOC_ARENA_MAX=1", "-n", "1"];
    let with = |limits: &[&str]| {
        let all: Vec<&str> = variants.iter().chain(limits).copied().collect();
        run(&fixture(), &all)
    };
    with(&["--max-rest", "1Gi", "--max-rest", "x=1M"]).expect(
        15,
        &["! x: holds ", "above --max-rest of 1.00 MB"],
        &[],
    );
    with(&["--max-rest", "1Gi"]).expect(0, &["Verdict"], &[]);
    with(&["--max-rest", "y=1G"]).expect(
        64,
        &[],
        &["--max-rest y: this trial has no such variant; it has: glibc, x"],
    );
    with(&["--max-rest", "little"]).expect(64, &[], &["512Mi"]);
    // Nobody knows what a service that died would hold.
    run(&fixture(), &["--profile", "dies", "--variants", "glibc", "-n", "1", "--max-rest", "1G"])
        .expect(
            15,
            &["! glibc: did not reach its rest, so it is not within --max-rest of 1000 MB"],
            &[],
        );
}

#[test]
fn the_health_address_is_asked_under_load_and_never_in_a_rest() {
    let output = tempfile::tempdir().unwrap();
    let folder = output.path().to_str().unwrap();
    let sick = "health = \"http://127.0.0.1:{port}/nowhere\"\nstop_timeout_s = 2";
    let workload = Edited::new(&[("stop_timeout_s = 2", sick)]);
    run(workload.path(), &["--variants", "glibc", "-n", "1"]).expect(
        0,
        &["the health address failed"],
        &[],
    );
    let workload = Edited::new(&[("rest_s = 0.6", "rest_s = 2.5")]);
    run(workload.path(), &["--variants", "glibc", "-n", "1", "-o", folder]).expect(
        0,
        &["health max ms"],
        &[],
    );
    let trial = results(Path::new(folder));
    let run = &trial["variants"][0]["runs"][0];
    let asked: Vec<f64> =
        run["health"].as_array().unwrap().iter().map(|it| it["at_s"].as_f64().unwrap()).collect();
    assert!(!asked.is_empty());
    for phase in run["phases"].as_array().unwrap().iter().filter(|phase| phase["kind"] == "idle") {
        let (from, to) = (phase["from_s"].as_f64().unwrap(), phase["to_s"].as_f64().unwrap());
        // The asker may have looked just before the phase began, and be slow on a loaded machine.
        assert!(
            asked.iter().all(|at| *at <= from + 1.0 || *at >= to),
            "{asked:?} in {from} to {to}"
        );
    }
}
