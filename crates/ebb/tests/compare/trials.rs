//! `ebb compare` on a real service: what it shows, what it refuses, how it ends.
//!
//! The service of `fixtures/bursts` keeps every fiftieth buffer of a burst, so glibc holds the pages
//! and a jemalloc without delay does not. Needs python3 and libjemalloc.so.2.

use crate::MB;
use crate::bench::{self, Edited, Finished, compare, fixture, left_over, results, run};
use crate::harness;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

pub fn after_rest(variant: &serde_json::Value) -> f64 {
    variant["summary"]["figures"]["after_rest"]["median"].as_f64().unwrap() / MB
}

#[test]
fn a_trial_shows_what_glibc_keeps_and_recommends_what_does_not() {
    let output = tempfile::tempdir().unwrap();
    let folder = output.path().to_str().unwrap();
    let finished = run(
        &fixture(),
        &[
            "--variants",
            "glibc,jemalloc-now,missing",
            "-n",
            "2",
            // The bursts are short.
            "--interval",
            "20ms",
            "-o",
            folder,
        ],
    );
    finished.expect(
        0,
        &[
            "after rest",
            "Difference to glibc",
            "! missing: not run: /nowhere/libmissing.so is not installed",
            "Verdict: jemalloc-now holds",
        ],
        &["report.html"],
    );
    let trial = results(output.path());
    let [glibc, jemalloc, missing] = [0, 1, 2].map(|index| trial["variants"][index].clone());
    assert!(
        after_rest(&glibc) > after_rest(&jemalloc) + 25.0,
        "{} {}",
        after_rest(&glibc),
        after_rest(&jemalloc)
    );
    let reclaimable = glibc["summary"]["figures"]["reclaimable"]["median"].as_f64().unwrap() / MB;
    assert!(reclaimable > 25.0, "malloc_trim gave back {reclaimable} MB");
    assert!(
        jemalloc["summary"]["figures"].get("reclaimable").is_none(),
        "never 0 where it was not measured"
    );
    let live = glibc["summary"]["figures"]["live"]["median"].as_f64().unwrap() / MB;
    assert!((0.5..2.0).contains(&live), "240 buffers of 1 to 8 KiB are live: {live} MB");
    assert!(missing["summary"].is_null() && missing["runs"].as_array().unwrap().is_empty());
    assert!(glibc["summary"]["figures"]["after_rest"]["versus_first"].is_null());
    assert!(
        jemalloc["summary"]["figures"]["after_rest"]["versus_first"]["interval"][1]
            .as_f64()
            .unwrap()
            < 0.0
    );
    let counted = |variant: &serde_json::Value, column: &str| {
        let figure = &variant["summary"]["figures"][column]["median"];
        figure.as_f64().unwrap()
    };
    let (kept, returned) = (counted(&glibc, "refaults"), counted(&jemalloc, "refaults"));
    assert!(
        returned > 2000.0 && returned > 2.0 * kept,
        "a burst's pages come again where they went: {returned} {kept}"
    );
    assert!(returned <= counted(&jemalloc, "page_faults"));
    let samples = glibc["runs"][0]["samples"].as_array().unwrap();
    assert!(samples.len() > 8, "{} samples", samples.len());
    assert!(samples.iter().all(|sample| sample["rss_bytes"].as_f64().unwrap() > 5.0 * MB));
    let order: Vec<&str> = finished.stderr.lines().filter(|line| line.contains("run ")).collect();
    for (line, name) in order.iter().zip(["glibc", "jemalloc-now", "glibc", "jemalloc-now"]) {
        assert!(line.contains(name), "interleaved: {order:?}");
    }
    let markdown = std::fs::read_to_string(output.path().join("report.md")).unwrap();
    assert!(markdown.contains("**jemalloc-now holds"), "{markdown}");
    assert!(markdown.contains("Page faults cost: glibc "), "{markdown}");
    assert!(
        markdown.contains("Refaults cost at least: ") && markdown.contains("| refaults |"),
        "{markdown}"
    );
    assert!(output.path().join("logs/glibc-2/service.log").exists());
}

#[test]
fn a_program_that_should_have_its_allocator_inside_and_has_not_is_discarded() {
    let start = "[variants.missing]";
    let inside = "[variants.inside]\nallocator = \"jemalloc\"\nlinked = true\n\
                  command = [\"python3\", \"service.py\", \"{port}\"]\n\n[variants.missing]";
    let workload = Edited::new(&[(start, inside)]);
    let finished = run(workload.path(), &["--variants", "glibc,inside", "-n", "1"]);
    finished.expect(
        20,
        &["! inside: run 1 discarded: process", "has no jemalloc in its program"],
        &[],
    );
}

#[test]
fn ebbmallocs_published_counters_give_the_live_heap() {
    let ask = "[live]\nhttp = \"http://127.0.0.1:{port}/live\"";
    // Long enough for two ticks, at which the counters are published.
    let workload = Edited::new(&[(ask, ""), ("rest_s = 0.6", "rest_s = 2.5")]);
    let finished = Finished::of(
        &compare(workload.path())
            .args(["--variants", "ebbmalloc,glibc", "-n", "1", "--json"])
            .env("EBB_LIB", harness::ebbmalloc())
            .output()
            .unwrap(),
    );
    finished.expect(0, &[], &[]);
    let trial: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
    let live_of = |index: usize| -> Vec<f64> {
        let samples = trial["variants"][index]["runs"][0]["samples"].as_array().unwrap();
        samples
            .iter()
            .filter_map(|sample| sample["live_bytes"].as_f64())
            .map(|bytes| bytes / MB)
            .collect()
    };
    let live = live_of(0);
    assert!(live.len() > 3, "the library publishes no counters, or nobody finds them");
    let last = live[live.len() - 1];
    assert!((0.5..20.0).contains(&last), "{last} MB in use after the rest");
    assert!(live_of(1).is_empty(), "glibc publishes nothing, and nothing is not 0");
    let measured =
        trial["variants"][0]["summary"]["figures"]["live"]["median"].as_f64().unwrap() / MB;
    assert!((measured - last).abs() < 1.0, "{measured} {last}");
    // What both touch in the burst comes page by page.
    for variant in trial["variants"].as_array().unwrap() {
        let median = |column: &str| {
            let figure = &variant["summary"]["figures"][column]["median"];
            figure.as_f64().unwrap()
        };
        let grown_pages = (median("peak") - median("baseline")) / 4096.0;
        assert!(median("page_faults") > 0.8 * grown_pages, "{}", variant["name"]);
        let (all, system) = (median("cpu"), median("cpu_system"));
        assert!(0.0 < system && system < all, "{}: {system} of {all}", variant["name"]);
    }
    for cost in ["page_fault_s", "page_return_s"] {
        let cost_s = trial["machine"][cost].as_f64().unwrap();
        assert!(cost_s > 0.0 && cost_s < 1e-3, "{cost}: {cost_s}");
    }
}

#[test]
fn one_run_is_a_direction_only_and_json_is_whole() {
    let finished =
        run(&fixture(), &["--variants", "glibc,x=glibc+MALLOC_ARENA_MAX=1", "-n", "1", "--json"]);
    finished.expect(0, &[], &[]);
    let trial: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!((trial["format"].as_u64(), trial["interrupted"].as_bool()), (Some(1), Some(false)));
    assert_eq!(trial["variants"][1]["env"]["MALLOC_ARENA_MAX"], "1");
    let difference = &trial["variants"][1]["summary"]["figures"]["after_rest"]["versus_first"];
    assert!(difference["value"].is_number() && difference["interval"].is_null(), "{difference}");
    assert!(trial["verdict"]["sentence"].as_str().unwrap().ends_with("One run, direction only."));
    assert_eq!(trial["verdict"]["kind"], "none_helps");
    let marks = trial["variants"][0]["runs"][0]["marks"].as_array().unwrap();
    assert_eq!(marks.len(), 2, "a mark each time round");
}

#[test]
fn a_service_that_dies_ends_its_variant_with_its_last_lines_and_the_others_go_on() {
    let output = tempfile::tempdir().unwrap();
    let folder = output.path().to_str().unwrap();
    let finished = run(
        &fixture(),
        &["--profile", "dies", "--variants", "glibc,jemalloc-now", "-n", "2", "-o", folder],
    );
    finished.expect(
        20,
        &[
            "! glibc: run 1 failed: the service was ended by SIGABRT",
            "    | dying as asked",
            "Verdict: Not enough evidence",
        ],
        &["run 2/3: jemalloc-now", "no more runs of this variant"],
    );
    let trial = results(output.path());
    for variant in trial["variants"].as_array().unwrap() {
        assert_eq!(variant["runs"].as_array().unwrap().len(), 1, "{}", variant["name"]);
        assert_eq!(variant["runs"][0]["outcome"]["kind"], "failed");
        assert!(
            !variant["runs"][0]["samples"].as_array().unwrap().is_empty(),
            "what was measured is kept"
        );
    }
    assert!(output.path().join("report.html").exists());
}

#[test]
fn a_service_that_never_gets_ready_is_told() {
    let workload = Edited::new(&[("/health\" }", "/nowhere\" }\nready_timeout_s = 4")]);
    let finished = run(workload.path(), &["--variants", "glibc", "-n", "1"]);
    finished.expect(20, &["was not ready after 4 s", "404"], &[]);
}

#[test]
fn a_load_that_fails_is_told_with_its_last_lines() {
    let workload = Edited::new(&[("{port}/{path}\", \"3\"", "{port}/{path}-unknown\", \"3\"")]);
    let finished = run(workload.path(), &["--variants", "glibc", "-n", "1"]);
    finished.expect(
        20,
        &["the load of phase \"burst\" ended with status 1", "HTTP Error 404"],
        &[],
    );
}

#[test]
fn a_load_without_a_summary_counts_with_its_throughput_not_read() {
    let workload = Edited::new(&[(
        "command = [\"python3\", \"load.py\", \"http://127.0.0.1:{port}/{path}\", \"3\"]",
        "command = [\"echo\", \"well done\"]",
    )]);
    let finished = run(workload.path(), &["--variants", "glibc", "-n", "1"]);
    finished.expect(
        0,
        &[
            "requests/s",
            "not read",
            "! glibc: throughput not read: the load of phase \"burst\": its last line is not the JSON object",
            "well done; it is not a summary of oha, wrk,",
        ],
        &[],
    );
}

#[test]
fn a_run_whose_preload_did_not_happen_is_discarded() {
    let workload = Edited::new(&[(
        "[\"python3\", \"service.py\", \"{port}\"]",
        "[\"env\", \"-u\", \"LD_PRELOAD\", \"python3\", \"service.py\", \"{port}\"]",
    )]);
    let finished = run(workload.path(), &["--variants", "glibc,jemalloc-now", "-n", "1"]);
    finished.expect(
        20,
        &[
            "! jemalloc-now: run 1 discarded: process",
            "uses malloc from",
            "Verdict: Not enough evidence",
        ],
        &["run discarded"],
    );
}

#[test]
fn a_child_without_the_preload_discards_the_run_too() {
    let workload = Edited::new(&[(
        "[\"python3\", \"service.py\", \"{port}\"]",
        "[\"sh\", \"-c\", \"env -u LD_PRELOAD sleep 60 & exec python3 service.py {port}\"]",
    )]);
    let finished = run(workload.path(), &["--variants", "glibc,jemalloc-now", "-n", "1"]);
    finished.expect(20, &["! jemalloc-now: run 1 discarded", "(sleep) uses malloc from"], &[]);
}

#[test]
fn without_a_trim_reclaimable_is_not_measured() {
    let workload = Edited::new(&[("[trim]\nhttp = \"http://127.0.0.1:{port}/trim\"", "")]);
    let finished = run(workload.path(), &["--variants", "glibc", "-n", "1"]);
    finished.expect(0, &["not measured"], &[]);
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_starts() {
    run(&fixture(), &["--variants", "glibk"]).expect(
        64,
        &[],
        &["variant \"glibk\" is not known; known are jemalloc-now, missing, glibc"],
    );
    run(&fixture(), &["--profile", "no"]).expect(
        64,
        &[],
        &["there is no profile \"no\"; it has: dies, long"],
    );
    run(Path::new("/nowhere"), &[]).expect(64, &[], &["/nowhere"]);
    let workload = Edited::new(&[("{rest_s}", "{rest}")]);
    run(workload.path(), &[]).expect(64, &[], &["{rest} is not known here"]);
}

/// Starts a long trial and waits until its first rest.
fn start_long(workload: &Path, output: &Path) -> std::process::Child {
    let child = compare(workload)
        .args(["--profile", "long", "--variants", "glibc", "-n", "1", "-o"])
        .arg(output)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let summary = output.join("logs/glibc-1/burst-1.out");
    let deadline = Instant::now() + Duration::from_secs(60);
    while std::fs::metadata(&summary).map_or(0, |file| file.len()) == 0 {
        assert!(Instant::now() < deadline, "the burst never ended");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(500));
    child
}

fn interrupt(child: &std::process::Child) {
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
}

#[test]
fn ctrl_c_stops_the_services_and_keeps_what_was_measured() {
    let output = tempfile::tempdir().unwrap();
    let child = start_long(&fixture(), output.path());
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
    let trial = results(output.path());
    assert_eq!(trial["interrupted"], true);
    let run = &trial["variants"][0]["runs"][0];
    assert_eq!(run["outcome"]["kind"], "interrupted");
    assert!(run["samples"].as_array().unwrap().len() > 5);
    assert!(run["phases"].as_array().unwrap().len() >= 2);
    assert!(output.path().join("report.html").exists());
}

#[test]
fn a_second_ctrl_c_kills_at_once_and_keeps_what_was_measured() {
    // A service that does not mind SIGTERM and would be waited for.
    let workload = Edited::new(&[("stop_timeout_s = 2", "stop_timeout_s = 60")]);
    let service = workload.path().join("service.py");
    let text = std::fs::read_to_string(&service).unwrap();
    let text = text.replace("if __name__ == \"__main__\":", "if __name__ == \"__main__\":\n    __import__(\"signal\").signal(15, __import__(\"signal\").SIG_IGN)");
    std::fs::write(&service, text).unwrap();
    let output = tempfile::tempdir().unwrap();
    let mut child = start_long(workload.path(), output.path());
    let tool = child.id();
    interrupt(&child);
    std::thread::sleep(Duration::from_millis(700));
    assert!(child.try_wait().unwrap().is_none(), "it waits for the service's end");
    let before = Instant::now();
    interrupt(&child);
    Finished::of(&child.wait_with_output().unwrap()).expect(130, &[], &["interrupted twice"]);
    assert!(before.elapsed() < Duration::from_secs(5));
    // A killed process needs a moment until its memory is gone.
    let deadline = Instant::now() + Duration::from_secs(10);
    while !left_over(tool).is_empty() {
        assert!(Instant::now() < deadline, "{:?} run on", left_over(tool));
        std::thread::sleep(Duration::from_millis(20));
    }
    let trial = results(output.path());
    assert_eq!(trial["interrupted"], true);
    let run = &trial["variants"][0]["runs"][0];
    assert_eq!(run["outcome"]["kind"], "interrupted");
    assert!(run["samples"].as_array().unwrap().len() > 5);
}

/// A trial of a few seconds.
fn short() -> Edited {
    Edited::new(&[("rest_s = 0.6", "rest_s = 0.2"), ("bursts = 2", "bursts = 1")])
}

#[test]
fn a_load_that_is_not_there_is_found_out_before_the_service_starts() {
    let workload = Edited::new(&[]);
    let text = std::fs::read_to_string(workload.path().join("workload.toml")).unwrap();
    let (before, after) = text.split_at(text.rfind("command = [\"python3\"").unwrap());
    let mistyped = format!("{before}{}", after.replacen("python3", "pyhton3", 1));
    std::fs::write(workload.path().join("workload.toml"), mistyped).unwrap();
    let finished = run(workload.path(), &["--variants", "glibc"]);
    finished.expect(64, &[], &["program pyhton3 not found", "nothing was started"]);
    assert!(!finished.stderr.contains("run 1"), "{}", finished.stderr);
}

#[test]
fn bad_toml_is_told_with_its_line() {
    let workload = Edited::new(&[("rest_s = 0.6", "rest_s = = 0.6")]);
    let text = std::fs::read_to_string(workload.path().join("workload.toml")).unwrap();
    let line = text.lines().position(|line| line.contains("= =")).unwrap() + 1;
    let finished = run(workload.path(), &[]);
    finished.expect(64, &[], &[&format!("workload.toml:{line}: ")]);
    assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
    assert!(!finished.stderr.contains('|'), "{}", finished.stderr);
}

#[test]
fn an_earlier_trial_in_the_folder_is_kept() {
    let (workload, folder) = (short(), tempfile::tempdir().unwrap());
    let output = folder.path();
    std::fs::write(output.join("results.json"), "the earlier one").unwrap();
    std::fs::create_dir(output.join("logs")).unwrap();
    let arguments = ["--variants", "glibc", "-n", "1", "-o", output.to_str().unwrap()];
    run(workload.path(), &arguments).expect(0, &[], &["kept in"]);
    let kept = std::fs::read_to_string(output.join("earlier-1/results.json")).unwrap();
    assert_eq!(kept, "the earlier one");
    assert!(output.join("earlier-1/logs").is_dir());
    assert_eq!(bench::results(output)["variants"][0]["name"], "glibc");
}

#[test]
fn a_folder_that_cannot_be_written_is_found_out_before_the_start() {
    let finished = run(&fixture(), &["-o", "/proc/ebb"]);
    finished.expect(64, &[], &["-o /proc/ebb", "nothing was started"]);
    assert!(!finished.stderr.contains("run 1"), "{}", finished.stderr);
}

#[test]
fn files_that_cannot_be_written_at_the_end_cost_no_tables() {
    let (workload, folder) = (short(), tempfile::tempdir().unwrap());
    let output = folder.path();
    let child = bench::compare(workload.path())
        .args(["--variants", "glibc", "-n", "1", "-o"])
        .arg(output)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // The trial has begun: from here on the file's place is taken.
    while !output.join("logs").exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    std::fs::create_dir(output.join("results.json")).unwrap();
    let finished = bench::Finished::of(&child.wait_with_output().unwrap());
    finished.expect(
        74,
        &["Memory (RSS", "Verdict: "],
        &["results.json", "the results are on stdout"],
    );
}
