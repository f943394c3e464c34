//! Files that are left alone, and the line that says why.

use std::fs;

use crate::harness::{assert_refused, stderr, stdout};
use crate::{Place, assert_code};

#[test]
fn what_is_not_understood_is_left_alone_with_one_line() {
    // `== FILE ARGUMENTS | EXIT CODE | WORDS OF THE LINE | ... ==`, and the file's text.
    for case in include_str!("refusals.cases").split("== ").skip(1) {
        let (heading, text) = case.split_once(" ==\n").unwrap();
        let mut parts = heading.split(" | ");
        let mut arguments = shlex::split(parts.next().unwrap()).unwrap();
        let code = parts.next().unwrap().parse().unwrap();
        let words: Vec<&str> = parts.collect();
        let place = Place::with(&[(&arguments[0], text)]);
        let before = place.files();
        arguments.push("--write".to_owned());
        assert_refused(&place.fix(&arguments), code, &words);
        assert_eq!(place.files(), before, "{case}");
        assert_eq!(place.records(), 0, "{case}");
    }
    let place = Place::with(&[]);
    fs::write(place.path("Dockerfile"), b"FROM \xff\n").unwrap();
    assert_refused(&place.fix(&["Dockerfile"]), 64, &["is not text", "nothing was changed"]);
    assert_refused(&place.fix(&["nobody"]), 64, &["nobody"]);
    assert_refused(&place.fix(&["."]), 64, &["not a file"]);
}

#[test]
fn an_unknown_channel_is_refused_with_the_known_ones() {
    let place = Place::with(&[("Dockerfile", "FROM alpine\n")]);
    let output = place.fix(&["Dockerfile", "--channel", "nightly"]);
    assert_code(&output, 64);
    let said = stderr(&output);
    assert!(said.contains("nightly") && said.contains("local, release"), "{said}");
}

/// A change that would not put the allocator in charge is shown with the reason, and not written.
#[test]
fn what_would_be_useless_is_not_written() {
    for (text, id) in [
        ("FROM scratch\nCOPY x /x\nCMD [\"/x\"]\n", "static-program"),
        ("FROM gcr.io/distroless/static-debian12\nCOPY x /x\nCMD [\"/x\"]\n", "static-program"),
        (
            "FROM golang:1 AS b\nRUN go build -o /x\nFROM debian\nCOPY --from=b /x /x\nCMD [\"/x\"]\n",
            "allocator-inside",
        ),
        ("FROM debian\nRUN setcap cap_net_raw+ep /bin/x\nCMD [\"/bin/x\"]\n", "secure-mode"),
        ("FROM debian\nCMD [\"sudo\", \"-E\", \"x\"]\n", "environment-dropped"),
    ] {
        let place = Place::with(&[("Dockerfile", text)]);
        let output = place.fix(&["Dockerfile", "--write"]);
        assert_code(&output, 14);
        assert!(stderr(&output).contains(id), "{text}: {}", stderr(&output));
        assert!(stdout(&output).starts_with("--- a/Dockerfile"), "{}", stdout(&output));
        assert_eq!(place.read("Dockerfile"), text);
    }
}

/// A script of the image that sets the variable itself would have the last word.
#[test]
fn an_entrypoint_that_sets_it_is_named() {
    let place = Place::with(&[
        ("Dockerfile", "FROM debian\nCOPY start.sh /start.sh\nENTRYPOINT [\"/start.sh\"]\n"),
        ("start.sh", "#!/bin/sh\nexport LD_PRELOAD=libjemalloc.so.2\nexec app\n"),
    ]);
    assert_refused(&place.fix(&["Dockerfile"]), 31, &["start.sh", "remove it from the script"]);
}

#[test]
fn a_trial_that_recommends_nothing_changes_nothing() {
    let verdict = |kind: &str, sentence: &str| {
        format!(
            "{{\"format\":1,\"ebb_version\":\"0\",\"started\":\"\",\"seconds\":1.0,\"workload\":{{\"name\":\"w\",\"description\":\"\",\
             \"vars\":{{}},\"cycles\":{{}}}},\"machine\":{{}},\"repetitions\":1,\"interval_ms\":1,\"metric\":\"rss\",\"interrupted\":false,\
             \"variants\":[],\"verdict\":{{\"kind\":\"{kind}\",\"sentence\":\"{sentence}\"}}}}"
        )
    };
    let place = Place::with(&[
        ("Dockerfile", "FROM debian\n"),
        ("grows.json", &verdict("live_heap_grows", "No allocator helps, the live heap grows.")),
        ("little.json", &verdict("not_enough", "Not enough evidence.")),
        ("nobody.json", &verdict("recommend", "x.")),
    ]);
    let output = place.fix(&["Dockerfile", "--from", "grows.json", "--write"]);
    assert_code(&output, 0);
    assert_eq!(stdout(&output), "");
    assert!(stderr(&output).contains("No allocator helps"), "{}", stderr(&output));
    assert_eq!(place.read("Dockerfile"), "FROM debian\n");
    assert_refused(
        &place.fix(&["Dockerfile", "--from", "little.json"]),
        20,
        &["Not enough evidence"],
    );
    assert_refused(&place.fix(&["Dockerfile", "--from", "nobody.json"]), 64, &["without a name"]);
}
