//! Writing and taking back, the JSON, the library that is placed, and files that are left alone.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::harness::{assert_refused, ebbmalloc, stderr, stdout};
use crate::{Place, assert_code};

const TEXT: &str = "# base\nFROM debian:12\nCOPY app /app\n# start\nCMD [\"/app\"]\n";

#[test]
fn what_others_changed_since_stays_when_it_is_taken_back() {
    let place = Place::with(&[("Dockerfile", TEXT)]);
    assert_code(&place.fix(&["Dockerfile", "--write"]), 0);
    let written = place.read("Dockerfile");
    let edited = format!("# new head\n{}", written.replace("# start", "EXPOSE 80\n\n# start"));
    place.write("Dockerfile", &edited);
    assert_code(&place.fix(&["Dockerfile", "--undo"]), 0);
    let expected = format!("# new head\n{}", TEXT.replace("# start", "EXPOSE 80\n\n# start"));
    assert_eq!(place.read("Dockerfile"), expected);
    // Where somebody changed the very lines, nothing is touched.
    place.write("Dockerfile", TEXT);
    assert_code(&place.fix(&["Dockerfile", "--write"]), 0);
    let edited = written.replace("ENV LD_PRELOAD=", "ENV A=1 LD_PRELOAD=");
    place.write("Dockerfile", &edited);
    assert_refused(&place.fix(&["Dockerfile", "--undo"]), 33, &["was changed where ebb fix wrote"]);
    assert_eq!(place.read("Dockerfile"), edited);
}

#[test]
fn changes_are_taken_back_one_by_one() {
    let place = Place::with(&[("Dockerfile", TEXT)]);
    assert_code(&place.fix(&["Dockerfile", "--write"]), 0);
    let first = place.read("Dockerfile");
    assert_code(&place.fix(&["Dockerfile", "-a", "jemalloc", "--write"]), 0);
    assert_code(&place.fix(&["Dockerfile", "--undo"]), 0);
    assert_eq!(place.read("Dockerfile"), first);
    assert_code(&place.fix(&["Dockerfile", "--undo"]), 0);
    assert_eq!(place.read("Dockerfile"), TEXT);
}

#[test]
fn the_library_is_placed_in_the_build_context_and_taken_away_again() {
    let place = Place::with(&[("Dockerfile", TEXT)]);
    let check = || crate::harness::output(&mut place.command("check", &["Dockerfile"]));
    let shown = place.fix(&["Dockerfile"]);
    assert_code(&shown, 17);
    let copy = place.path("libebbmalloc.so");
    assert!(!copy.exists() && stderr(&shown).contains("--write also copies the library"));
    let written = place.fix(&["Dockerfile", "--write"]);
    assert_code(&written, 0);
    assert!(
        stderr(&written).contains("libebbmalloc.so is copied to libebbmalloc.so, in the build context"),
        "{}",
        stderr(&written)
    );
    assert_eq!(fs::read(&copy).unwrap(), fs::read(ebbmalloc()).unwrap());
    assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o644);
    assert_code(&check(), 0);
    // Without it no build comes to its end.
    fs::remove_file(&copy).unwrap();
    let output = check();
    assert_code(&output, 14);
    let said = stdout(&output);
    assert!(said.contains("copy-missing") && said.contains("there is no libebbmalloc.so in this folder"), "{said}");
    // A file that is in order but for the library gets that alone.
    assert_code(&place.fix(&["Dockerfile"]), 17);
    assert_code(&place.fix(&["Dockerfile", "--write"]), 0);
    assert_code(&check(), 0);
    assert_code(&place.fix(&["Dockerfile", "--undo"]), 0);
    assert!(!copy.exists());
    assert_code(&place.fix(&["Dockerfile", "--undo"]), 0);
    assert_eq!(place.read("Dockerfile"), TEXT);
    // A library that already exists is somebody's.
    place.write("libebbmalloc.so", "theirs");
    assert_code(&place.fix(&["Dockerfile", "--write"]), 0);
    assert_code(&place.fix(&["Dockerfile", "--undo"]), 0);
    assert_eq!(place.read("libebbmalloc.so"), "theirs");
}

#[test]
fn a_compose_file_gets_the_library_that_its_service_mounts() {
    let text = "services:\n  web:\n    image: debian:12\n    command: sleep 9\n";
    let place = Place::with(&[("compose.yaml", text)]);
    assert_code(&place.fix(&["compose.yaml", "--write"]), 0);
    let copy = place.path("libebbmalloc.so");
    assert!(copy.exists());
    fs::remove_file(&copy).unwrap();
    assert_code(&place.fix(&["compose.yaml", "--write"]), 0);
    assert!(copy.exists(), "the file is settled, its library was not there");
    assert_code(&place.fix(&["compose.yaml", "--undo"]), 0);
    assert!(!copy.exists());
}

#[test]
fn a_library_that_the_builder_is_not_given_is_an_error() {
    let text = "FROM debian:12\nCOPY libebbmalloc.so /usr/local/lib/\n\
                ENV LD_PRELOAD=/usr/local/lib/libebbmalloc.so\nCMD [\"/app\"]\n";
    let place = Place::with(&[("Dockerfile", text), ("libebbmalloc.so", "x"), (".dockerignore", "*.so\n")]);
    let output = crate::harness::output(&mut place.command("check", &["Dockerfile"]));
    assert_code(&output, 14);
    assert!(stdout(&output).contains(".dockerignore keeps libebbmalloc.so from the builder"), "{}", stdout(&output));
    assert_code(&place.fix(&["Dockerfile", "--write"]), 0);
    assert_eq!(place.read(".dockerignore"), "*.so\n!libebbmalloc.so\n");
    assert_code(&crate::harness::output(&mut place.command("check", &["Dockerfile"])), 0);
}

#[test]
fn a_stage_that_is_not_there_is_named_with_those_that_are() {
    let text = "FROM debian:12 AS build\nRUN make\nFROM debian:12 AS run\nCMD [\"/app\"]\n";
    let place = Place::with(&[("Dockerfile", text)]);
    let expected = ["Dockerfile has no stage x; it has build, run"];
    assert_refused(&place.fix(&["Dockerfile", "--stage", "x"]), 64, &expected);
    let mut check = place.command("check", &["Dockerfile", "--stage", "x"]);
    assert_refused(&crate::harness::output(&mut check), 64, &expected);
}

#[test]
fn the_json_says_what_the_text_says() {
    let place = Place::with(&[("Dockerfile", TEXT)]);
    let output = place.fix(&["Dockerfile", "--json"]);
    assert_code(&output, 17);
    let said: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(said["format"], 1);
    assert_eq!(said["kind"], "dockerfile");
    assert_eq!(said["action"], "would-change");
    assert_eq!(said["allocator"], "ebbmalloc");
    let file = &said["files"][0];
    assert_eq!(file["path"], "Dockerfile");
    assert_eq!(file["lines"][1]["line"], 5);
    assert_eq!(file["lines"][1]["text"], "ENV LD_PRELOAD=/usr/local/lib/libebbmalloc.so");
    assert!(file["lines"][1]["why"].as_str().unwrap().contains("libc's malloc"));
    assert!(file["diff"].as_str().unwrap().contains("+ENV LD_PRELOAD="));
    assert_eq!(said["check"]["in_charge"], true);
    assert_eq!(stderr(&output), "");
    let written = place.fix(&["Dockerfile", "--json", "--write"]);
    let said: Value = serde_json::from_str(&stdout(&written)).unwrap();
    assert_eq!(said["action"], "written");
    let undone = place.fix(&["Dockerfile", "--json", "--undo"]);
    let said: Value = serde_json::from_str(&stdout(&undone)).unwrap();
    assert_eq!(said["action"], "undone");
    assert!(said["files"][0]["diff"].as_str().unwrap().contains("-ENV LD_PRELOAD="));
}

#[test]
fn where_nothing_can_be_recorded_nothing_is_written() {
    let place = Place::with(&[("Dockerfile", TEXT), ("file", "")]);
    let mut command = place.command("fix", &["Dockerfile", "--write"]);
    let output = crate::harness::output(command.env("XDG_STATE_HOME", place.path("file")));
    assert_ne!(output.status.code(), Some(0));
    assert!(stderr(&output).contains("nothing was written"), "{}", stderr(&output));
    assert_eq!(place.read("Dockerfile"), TEXT);
}

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
    assert_refused(&place.fix(&["Dockerfile", "--from", "little.json"]), 20, &["Not enough evidence"]);
    assert_refused(&place.fix(&["Dockerfile", "--from", "nobody.json"]), 64, &["without a name"]);
}
