//! A trial on a real service: what it shows, what it refuses, what it discards.

use crate::MB;
use crate::harness::{self, Finished, each};
use crate::workload::{ALIKE, SERVICE, Workload, ebb, list, median};
use std::path::PathBuf;
use std::process::Command;

#[test]
fn a_trial_shows_what_glibc_keeps_and_recommends_what_does_not() {
    let workload = Workload::plain();
    // The bursts are short.
    let finished = workload.run("--variants glibc,jemalloc-now,missing -n 2 --interval 20ms -o {out}");
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
    let trial = workload.results();
    let [glibc, jemalloc, missing] = [0, 1, 2].map(|index| &trial["variants"][index]);
    let [held, other] = [0, 1].map(|index| median(&trial, index, "after_rest") / MB);
    assert!(held > other + 25.0, "{held} {other}");
    let reclaimable = median(&trial, 0, "reclaimable") / MB;
    assert!(reclaimable > 25.0, "malloc_trim gave back {reclaimable} MB");
    let unmeasured = jemalloc["summary"]["figures"].get("reclaimable");
    assert!(unmeasured.is_none(), "never 0 where it was not measured");
    let live = median(&trial, 0, "live") / MB;
    assert!((0.5..2.0).contains(&live), "240 buffers of 1 to 8 KiB are live: {live} MB");
    assert!(missing["summary"].is_null() && list(&missing["runs"]).is_empty());
    let [first, difference] = [glibc, jemalloc].map(|it| &it["summary"]["figures"]["after_rest"]["versus_first"]);
    assert!(first.is_null());
    assert!(difference["interval"][1].as_f64().unwrap() < 0.0);
    let [kept, returned] = [0, 1].map(|index| median(&trial, index, "refaults"));
    assert!(
        returned > 2000.0 && returned > 2.0 * kept,
        "a burst's pages come again where they went: {returned} {kept}"
    );
    assert!(returned <= median(&trial, 1, "page_faults"));
    let samples = list(&glibc["runs"][0]["samples"]);
    assert!(samples.len() > 8, "{} samples", samples.len());
    assert!(samples.iter().all(|sample| sample["rss_bytes"].as_f64().unwrap() > 5.0 * MB));
    let order: Vec<&str> = finished.stderr.lines().filter(|line| line.contains("run ")).collect();
    for (line, name) in order.iter().zip(["glibc", "jemalloc-now", "glibc", "jemalloc-now"]) {
        assert!(line.contains(name), "interleaved: {order:?}");
    }
    let costs = ["Page faults cost: glibc ", "Refaults cost at least: ", "| refaults |"];
    workload.assert_written("report.md", &[&["**jemalloc-now holds"], &costs[..]].concat());
    assert!(workload.out().join("logs/glibc-2/service.log").exists());
}

#[test]
fn ebbmallocs_published_counters_give_the_live_heap() {
    let ask = "[live]\nhttp = \"http://127.0.0.1:{port}/live\"";
    // Long enough for two ticks, at which the counters are published.
    let workload = Workload::edited(&[(ask, ""), ("rest_s = 0.6", "rest_s = 2.5")]);
    let mut command = workload.compare("--variants ebbmalloc,glibc -n 1 --json");
    let finished = Finished::by(command.env("EBB_LIB", harness::ebbmalloc()));
    let trial = finished.expect(0, &[], &[]).json();
    let live_of = |index: usize| -> Vec<f64> {
        let samples = list(&trial["variants"][index]["runs"][0]["samples"]);
        samples.iter().filter_map(|it| it["live_bytes"].as_f64()).map(|it| it / MB).collect()
    };
    let live = live_of(0);
    assert!(live.len() > 3, "the library publishes no counters, or nobody finds them");
    let last = live[live.len() - 1];
    assert!((0.5..20.0).contains(&last), "{last} MB in use after the rest");
    assert!(live_of(1).is_empty(), "glibc publishes nothing, and nothing is not 0");
    let measured = median(&trial, 0, "live") / MB;
    assert!((measured - last).abs() < 1.0, "{measured} {last}");
    // What both touch in the burst comes page by page.
    for index in 0..2 {
        let [peak, baseline, faults, all, system] =
            ["peak", "baseline", "page_faults", "cpu", "cpu_system"].map(|figure| median(&trial, index, figure));
        assert!(faults > 0.8 * (peak - baseline) / 4096.0, "variant {index}");
        assert!(0.0 < system && system < all, "variant {index}: {system} of {all}");
    }
    for cost in ["page_fault_s", "page_return_s"] {
        let cost_s = trial["machine"][cost].as_f64().unwrap();
        assert!(cost_s > 0.0 && cost_s < 1e-3, "{cost}: {cost_s}");
    }
}

#[test]
fn one_run_is_a_direction_only_and_json_is_whole() {
    let finished = Workload::plain().run(&format!("{ALIKE} -n 1 --json"));
    let trial = finished.expect(0, &[], &[]).json();
    assert_eq!((trial["format"].as_u64(), trial["interrupted"].as_bool()), (Some(1), Some(false)));
    assert_eq!(trial["variants"][1]["env"]["MALLOC_ARENA_MAX"], "1");
    let difference = &trial["variants"][1]["summary"]["figures"]["after_rest"]["versus_first"];
    assert!(difference["value"].is_number() && difference["interval"].is_null(), "{difference}");
    assert!(trial["verdict"]["sentence"].as_str().unwrap().ends_with("One run, direction only."));
    assert_eq!(trial["verdict"]["kind"], "none_helps");
    let marks = list(&trial["variants"][0]["runs"][0]["marks"]);
    assert_eq!(marks.len(), 2, "a mark each time round");
}

#[test]
fn a_service_that_dies_ends_its_variant_with_its_last_lines_and_the_others_go_on() {
    let workload = Workload::plain();
    let finished = workload.run("--profile dies --variants glibc,jemalloc-now -n 2 -o {out}");
    finished.expect(
        20,
        &[
            "! glibc: run 1 failed: the service was ended by SIGABRT",
            "    | dying as asked",
            "Verdict: Not enough evidence",
        ],
        &["run 2/3: jemalloc-now", "no more runs of this variant"],
    );
    for variant in list(&workload.results()["variants"]) {
        let [run] = list(&variant["runs"]) else { panic!("one run: {variant}") };
        assert_eq!(run["outcome"]["kind"], "failed");
        assert!(!list(&run["samples"]).is_empty(), "what was measured is kept");
    }
    assert!(workload.out().join("report.html").exists());
}

/// A shared object for a variant of its own, a reference: the floor of `workloads/floor`, built as a workload's setup does it.
fn floor() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../workloads/floor");
    assert!(Command::new(folder.join("build.sh")).status().unwrap().success());
    folder.join("floor.so")
}

/// The fixture's variant `missing`, with one before it that preloads an object besides its allocator.
fn with_beside(beside: &str) -> String {
    format!(
        "[variants.floor]\nallocator = \"glibc\"\nbeside = \"{beside}\"\n\
         env = {{ MALLOC_ARENA_MAX = \"1\" }}\n\n[variants.missing]"
    )
}

#[test]
fn the_floor_holds_least_and_is_never_recommended() {
    let variant = with_beside(floor().to_str().unwrap());
    // The rest has room for several trims.
    let changes = [("[variants.missing]", variant.as_str()), ("rest_s = 0.6", "rest_s = 2")];
    let workload = Workload::edited(&changes);
    let finished = workload.run("--variants glibc,floor,jemalloc-now -n 1 -o {out}");
    finished.expect(0, &["Verdict: jemalloc-now holds"], &[]);
    let trial = workload.results();
    let [glibc, floor] = [0, 1].map(|index| median(&trial, index, "after_rest") / MB);
    assert!(glibc > floor + 25.0, "{glibc} {floor}");
    let reclaimable = median(&trial, 1, "reclaimable");
    assert!(reclaimable.abs() < 5.0 * MB, "nothing is left for a trim: {reclaimable}");
    workload.assert_written("report.md", &["floor.so"]);
}

/// The fixture with a question when its rest begins.
const MARK: &str = "mark = \"after_rest\"";

fn asking(path: &str) -> String {
    format!("{MARK}\nask = {{ http = \"http://127.0.0.1:{{port}}/{path}\" }}")
}

#[test]
fn the_service_is_asked_when_the_rest_begins() {
    let workload = Workload::edited(&[(MARK, &asking("trim"))]);
    workload.run("--variants glibc -n 1 -o {out}").expect(0, &[], &[]);
    let left = median(&workload.results(), 0, "reclaimable");
    assert!(left < 5.0 * MB, "it was trimmed when the rest began, and {left} bytes go at the end");
}

/// Changes to the fixture, variants, the exit code, parts of stdout.
type Ending<'a> = (&'a [(&'a str, &'a str)], &'a str, i32, &'a [&'a str]);

#[test]
fn how_a_run_ends_is_said() {
    let load = "[\"python3\", \"load.py\", \"http://127.0.0.1:{port}/{path}\", \"3\"]";
    let without = SERVICE.replace("[\"", "[\"env\", \"-u\", \"LD_PRELOAD\", \"");
    let child = "command = [\"sh\", \"-c\", \
                 \"env -u LD_PRELOAD sleep 60 & exec python3 service.py {port}\"]";
    let inside = "[variants.inside]\nallocator = \"jemalloc\"\nlinked = true\n\
                  command = [\"python3\", \"service.py\", \"{port}\"]\n\n[variants.missing]";
    let gone = with_beside("{workload}/nowhere.so");
    let unloaded = with_beside(floor().to_str().unwrap());
    let question = asking("nothing");
    let cases: &[(&str, Ending)] = &[
        (
            "an allocator that should be inside the program and is not",
            (
                &[("[variants.missing]", inside)],
                "glibc,inside",
                20,
                &["! inside: run 1 discarded: process", "has no jemalloc in its program"],
            ),
        ),
        (
            "never ready",
            (&[("/health\" }", "/nowhere\" }\nready_timeout_s = 4")], "glibc", 20, &["was not ready after 4 s", "404"]),
        ),
        (
            "a load that fails, with its last lines",
            (
                &[("{port}/{path}\", \"3\"", "{port}/{path}-unknown\", \"3\"")],
                "glibc",
                20,
                &["the load of phase \"burst\" ended with status 1", "HTTP Error 404"],
            ),
        ),
        (
            "a load without a summary counts, its throughput is not read",
            (
                &[(load, "[\"echo\", \"well done\"]")],
                "glibc",
                0,
                &[
                    "requests/s",
                    "not read",
                    "! glibc: throughput not read: the load of phase \"burst\": its last line is not the JSON object",
                    "well done; it is not a summary of oha, wrk,",
                ],
            ),
        ),
        (
            "a preload that did not happen",
            (
                &[(SERVICE, &without)],
                "glibc,jemalloc-now",
                20,
                &["! jemalloc-now: run 1 discarded: process", "uses malloc from", "Verdict: Not enough evidence"],
            ),
        ),
        (
            "a child without the preload",
            (
                &[(SERVICE, child)],
                "glibc,jemalloc-now",
                20,
                &["! jemalloc-now: run 1 discarded", "(sleep) uses malloc from"],
            ),
        ),
        (
            "no trim, so reclaimable is not measured",
            (&[("[trim]\nhttp = \"http://127.0.0.1:{port}/trim\"", "")], "glibc", 0, &["not measured"]),
        ),
        (
            "a question without an answer",
            (&[(MARK, &question)], "glibc", 20, &["! glibc: run 1 failed: the `ask` of phase \"rest\"", "404"]),
        ),
        (
            "an object beside the allocator that is not there",
            (
                &[("[variants.missing]", &gone)],
                "glibc,floor",
                20,
                &["! floor: not run: ", "nowhere.so, which is preloaded with the allocator: No such file"],
            ),
        ),
        (
            "an object beside the allocator that is not loaded",
            (
                &[("[variants.missing]", &unloaded), (SERVICE, &without)],
                "glibc,floor",
                20,
                &["! floor: run 1 discarded: process", "runs without"],
            ),
        ),
    ];
    each(cases, |(changes, variants, code, stdout)| {
        let finished = Workload::edited(changes).run(&format!("--variants {variants} -n 1"));
        finished.expect(*code, stdout, &[]);
        let discarded = stdout.iter().any(|text| text.contains("uses malloc from"));
        assert!(!discarded || finished.stderr.contains("run discarded"), "{}", finished.all());
    });
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_starts() {
    let load = "\"python3\", \"load.py\", \"http://127.0.0.1:{port}/{path}";
    let mistyped = "\"pyhton3\", \"load.py\", \"http://127.0.0.1:{port}/{path}";
    type Refused<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a [&'a str]);
    let cases: &[(&str, Refused)] = &[
        (
            "a variant",
            (&[], "--variants glibk", &["variant \"glibk\" is not known; known are jemalloc-now, missing, glibc"]),
        ),
        ("a profile", (&[], "--profile no", &["there is no profile \"no\"; it has: dies, long"])),
        ("a variable", (&[("{rest_s}", "{rest}")], "", &["{rest} is not known here"])),
        (
            "a load that is not there",
            (&[(load, mistyped)], "--variants glibc", &["program pyhton3 not found", "nothing was started"]),
        ),
        ("a folder that cannot be written", (&[], "-o /proc/ebb", &["-o /proc/ebb", "nothing was started"])),
    ];
    each(cases, |(changes, line, stderr)| {
        Workload::edited(changes).run(line).expect(64, &[], stderr).expect_nothing_started();
    });
    Finished::by(&mut ebb("compare /nowhere")).expect(64, &[], &["/nowhere"]);
}

#[test]
fn bad_toml_is_told_with_its_line() {
    let workload = Workload::edited(&[("rest_s = 0.6", "rest_s = = 0.6")]);
    let text = std::fs::read_to_string(workload.path().join("workload.toml")).unwrap();
    let line = text.lines().position(|line| line.contains("= =")).unwrap() + 1;
    let finished = workload.run("");
    finished.expect(64, &[], &[&format!("workload.toml:{line}: ")]);
    assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
    assert!(!finished.stderr.contains('|'), "{}", finished.stderr);
}
