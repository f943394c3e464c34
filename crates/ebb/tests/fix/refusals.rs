//! What is left alone, and the line that says why.

use std::fs;

use crate::harness::{assert_refused, stderr, stdout};
use crate::{Place, assert_code};

/// The file, its text, further arguments, the exit code, words of the line.
type Refusal = (&'static str, &'static str, &'static [&'static str], i32, &'static [&'static str]);

const REFUSALS: &[Refusal] = &[
    (
        "Dockerfile",
        "HELLO world\n",
        &[],
        64,
        &["cannot parse the Dockerfile", "nothing was changed"],
    ),
    ("Dockerfile", "", &[], 64, &["nothing was changed"]),
    ("Dockerfile", "FROM debian\n", &["--stage", "x"], 64, &["has no stage"]),
    (
        "notes.txt",
        "hello\n",
        &[],
        64,
        &["not a kind of file that ebb fix knows", "nothing was changed"],
    ),
    ("values.yaml", "a: 1\n", &[], 64, &["not a kind of file that ebb fix knows"]),
    ("compose.yaml", "services: [\n", &[], 64, &["not YAML", "nothing was changed"]),
    (
        "compose.yaml",
        "services:\n  a: {image: x}\n  b: {image: y}\n",
        &[],
        64,
        &["2 services", "--service", "a, b"],
    ),
    (
        "compose.yaml",
        "services:\n  a: {image: x}\n",
        &["--service", "c"],
        64,
        &["no service c", "it has a"],
    ),
    (
        "compose.yaml",
        "services:\n  a:\n    image: x\n    environment:\n      LD_PRELOAD: ${P}\n",
        &[],
        31,
        &["compose.yaml:2", "outside this file"],
    ),
    (
        "compose.yaml",
        "x: &e {A: 1}\nservices:\n  a:\n    image: x\n    environment: *e\n",
        &[],
        31,
        &["alias"],
    ),
    (
        "compose.yaml",
        "x-a: &a\n  environment: {A: 1}\nservices:\n  a:\n    <<: *a\n    image: x\n",
        &[],
        31,
        &["anchor"],
    ),
    ("Procfile", "no colon\n", &[], 64, &["line 1"]),
    ("Procfile", "web: LD_PRELOAD=$X run\n", &[], 31, &["filled in by the shell"]),
    ("Procfile", "web: env LD_PRELOAD=a.so run\n", &[], 31, &["middle of the command"]),
    ("a.service", "[Unit]\nDescription=x\n", &[], 64, &["ExecStart", "nothing was changed"]),
    ("a.service", "[Service]\nnonsense\n", &[], 64, &["line 2"]),
    (
        "a.service",
        "[Service]\nExecStart=/bin/x\nEnvironment=LD_PRELOAD=%h/x.so\n",
        &[],
        31,
        &["specifier"],
    ),
    (
        "supervisord.conf",
        "[program:a]\ncommand=x\n[program:b]\ncommand=y\n",
        &[],
        64,
        &["2 services", "--service", "a, b"],
    ),
    (
        "supervisord.conf",
        "[supervisord]\n[include]\nfiles = conf.d/*.conf\n",
        &[],
        64,
        &["no [program:NAME]", "conf.d/*.conf"],
    ),
    (
        "app.conf",
        "[program:a]\nenvironment=MALLOC_CONF=a:1,b:2\n",
        &[],
        64,
        &["line 2", "supervisor refuses it"],
    ),
    (
        "app.conf",
        "[program:a]\nenvironment=LD_PRELOAD=\"%(ENV_P)s\"\n",
        &[],
        31,
        &["app.conf:1", "expansion of supervisor"],
    ),
    (
        "app.conf",
        "[program:a]\ncommand=env LD_PRELOAD=x.so y\n",
        &[],
        31,
        &["app.conf:2", "the command itself"],
    ),
    (
        "app.conf",
        "[program:a]\ncommand=y\n",
        &["--env", "A=b ;c"],
        31,
        &["cannot express the value", "b ;c"],
    ),
    (
        "nginx.conf",
        "http {\n}\n",
        &[],
        64,
        &[
            "not a kind of file that ebb fix knows",
            "supervisor's configuration",
            "entrypoint scripts",
        ],
    ),
    (
        "entrypoint.py",
        "#!/usr/bin/env python3\nimport os\n",
        &[],
        64,
        &["entrypoint.py: it is a script for python3, not for a shell", "nothing was changed"],
    ),
    ("run.sh", "#!/bin/sh\necho \"\n", &[], 64, &["line 2", "a quotation is not closed"]),
    (
        "run.sh",
        "#!/bin/sh\nexport LD_PRELOAD=\"$(find / -name x.so)\"\nexec x\n",
        &[],
        31,
        &["filled in by the shell"],
    ),
    (
        "run.sh",
        "#!/bin/sh\nif x; then\n  export LD_PRELOAD=x.so\nfi\nexec x\n",
        &[],
        31,
        &["run.sh:3", "under a condition"],
    ),
    ("run.sh", "#!/bin/sh\nLD_PRELOAD=x.so exec x\n", &[], 31, &["run.sh:2", "a command itself"]),
    ("Cargo.toml", "[workspace]\nmembers = []\n", &[], 64, &["workspace"]),
    ("Cargo.toml", "[package\n", &[], 64, &["Cargo.toml", "nothing was changed"]),
    ("Cargo.toml", "[package]\nname = \"x\"\n", &[], 31, &["no program"]),
    (
        "Dockerfile",
        "FROM python:3.12-slim\nCMD [\"x\"]\n",
        &["-a", "mimalloc"],
        31,
        &["which release"],
    ),
    (
        "Dockerfile",
        "FROM gcr.io/distroless/base-debian12\nCMD [\"x\"]\n",
        &["-a", "jemalloc"],
        31,
        &["libstdc++"],
    ),
    (
        "Dockerfile",
        "FROM debian\nCMD LD_PRELOAD=x.so run\n",
        &[],
        31,
        &["Dockerfile:2", "the command itself"],
    ),
    (
        "Dockerfile",
        "FROM debian\nENTRYPOINT [\"ebb\", \"run\", \"-a\", \"jemalloc\", \"--\", \"x\"]\n",
        &[],
        31,
        &["ebb run"],
    ),
    ("Dockerfile", "FROM debian\n", &["-a", "hoard"], 64, &["hoard", "known are ebbmalloc"]),
    ("Dockerfile", "FROM debian\n", &["--library", "lib/x.so"], 64, &["--library lib/x.so"]),
    ("Dockerfile", "FROM debian\n", &["--env", "LD_PRELOAD=x"], 64, &["--allocator"]),
    ("Dockerfile", "FROM debian\n", &["--from", "none.json"], 64, &["none.json"]),
    (
        "Dockerfile",
        "FROM debian\n",
        &["--from", "Dockerfile"],
        64,
        &["no results of a trial", "ebb compare"],
    ),
];

#[test]
fn what_is_not_understood_is_left_alone_with_one_line() {
    for (name, text, arguments, code, words) in REFUSALS {
        let place = Place::with(&[(name, text)]);
        let before = place.files();
        let mut all = vec![*name, "--write"];
        all.extend(*arguments);
        assert_refused(&place.fix(&all), *code, words);
        assert_eq!(place.files(), before, "{name} {text}");
        assert_eq!(place.records(), 0, "{name} {text}");
    }
    let place = Place::with(&[]);
    fs::write(place.path("Dockerfile"), b"FROM \xff\n").unwrap();
    assert_refused(&place.fix(&["Dockerfile"]), 64, &["is not text", "nothing was changed"]);
    assert_refused(&place.fix(&["nobody"]), 64, &["nobody"]);
    assert_refused(&place.fix(&["."]), 64, &["not a file"]);
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
