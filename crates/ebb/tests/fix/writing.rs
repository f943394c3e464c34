//! Writing and taking back, the JSON, the library that is placed.

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
    let edited = format!(
        "# new head\n{}",
        written.replace("# start", "EXPOSE 80\n\n# start")
    );
    place.write("Dockerfile", &edited);
    assert_code(&place.fix(&["Dockerfile", "--undo"]), 0);
    let expected = format!(
        "# new head\n{}",
        TEXT.replace("# start", "EXPOSE 80\n\n# start")
    );
    assert_eq!(place.read("Dockerfile"), expected);
    // Where somebody changed the very lines, nothing is touched.
    place.write("Dockerfile", TEXT);
    assert_code(&place.fix(&["Dockerfile", "--write"]), 0);
    let edited = written.replace("ENV LD_PRELOAD=", "ENV A=1 LD_PRELOAD=");
    place.write("Dockerfile", &edited);
    assert_refused(
        &place.fix(&["Dockerfile", "--undo"]),
        33,
        &["was changed where ebb fix wrote"],
    );
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
fn the_library_is_placed_beside_the_file_and_taken_away_again() {
    let place = Place::with(&[("Dockerfile", TEXT)]);
    let arguments = ["Dockerfile", "--write", "--place-library"];
    let run = |arguments: &[&str]| {
        crate::harness::output(place.command("fix", arguments).env("EBB_LIB", ebbmalloc()))
    };
    assert_code(&run(&arguments), 0);
    let copy = place.path("libebbmalloc.so");
    assert_eq!(fs::read(&copy).unwrap(), fs::read(ebbmalloc()).unwrap());
    assert_eq!(
        fs::metadata(&copy).unwrap().permissions().mode() & 0o777,
        0o644
    );
    assert_code(&run(&["Dockerfile", "--undo"]), 0);
    assert!(!copy.exists());
    // Another library of that name is somebody's.
    place.write("libebbmalloc.so", "theirs");
    assert_refused(
        &run(&arguments),
        33,
        &["libebbmalloc.so", "another library"],
    );
    assert_eq!(place.read("Dockerfile"), TEXT);
    assert_eq!(place.read("libebbmalloc.so"), "theirs");
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
    assert_eq!(
        file["lines"][1]["text"],
        "ENV LD_PRELOAD=/usr/local/lib/libebbmalloc.so"
    );
    assert!(
        file["lines"][1]["why"]
            .as_str()
            .unwrap()
            .contains("libc's malloc")
    );
    assert!(file["diff"].as_str().unwrap().contains("+ENV LD_PRELOAD="));
    assert_eq!(said["check"]["in_charge"], true);
    assert_eq!(stderr(&output), "");
    let written = place.fix(&["Dockerfile", "--json", "--write"]);
    let said: Value = serde_json::from_str(&stdout(&written)).unwrap();
    assert_eq!(said["action"], "written");
    let undone = place.fix(&["Dockerfile", "--json", "--undo"]);
    let said: Value = serde_json::from_str(&stdout(&undone)).unwrap();
    assert_eq!(said["action"], "undone");
    assert!(
        said["files"][0]["diff"]
            .as_str()
            .unwrap()
            .contains("-ENV LD_PRELOAD=")
    );
}

#[test]
fn where_nothing_can_be_recorded_nothing_is_written() {
    let place = Place::with(&[("Dockerfile", TEXT), ("file", "")]);
    let mut command = place.command("fix", &["Dockerfile", "--write"]);
    let output = crate::harness::output(command.env("XDG_STATE_HOME", place.path("file")));
    assert_ne!(output.status.code(), Some(0));
    assert!(
        stderr(&output).contains("nothing was written"),
        "{}",
        stderr(&output)
    );
    assert_eq!(place.read("Dockerfile"), TEXT);
}
