//! Every case of `tests/fixtures/fix`. `EBB_BLESS=1` writes what is expected anew: read the difference then.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::assert_code;
use crate::case::cases;
use crate::harness::output;
use test_needs::needs;

const WOULD_CHANGE: i32 = 17;

/// Without what depends on the machine, whether it has the library itself, and without our version.
fn said(output: &std::process::Output) -> String {
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let lines = stderr.lines().filter(|it| !it.starts_with("ebb: check:"));
    let notes: String = lines.map(|it| format!("{it}\n")).collect();
    let text = format!("{}----\n{notes}", String::from_utf8_lossy(&output.stdout));
    text.replace(&format!("ebbmalloc=={VERSION}"), "ebbmalloc==VERSION")
        .replace(&format!("ebbmalloc = \"{VERSION}\""), "ebbmalloc = \"VERSION\"")
}

#[test]
fn the_difference_and_its_reasons_are_those_expected() {
    for case in cases() {
        let place = case.place();
        let output = place.fix(&case.arguments);
        let said = said(&output);
        if std::env::var_os("EBB_BLESS").is_some() {
            case.bless(&said);
        } else {
            assert_eq!(said, case.expected, "{}", case.name);
        }
        assert_code(&output, WOULD_CHANGE);
    }
}

#[test]
fn a_written_change_settles_the_file_and_the_check_agrees() {
    for case in cases() {
        let place = case.place();
        let mut arguments = case.arguments.clone();
        arguments.push("--write".to_owned());
        assert_code(&place.fix(&arguments), 0);
        let again = place.fix(&arguments);
        assert_code(&again, 0);
        assert!(
            again.stdout.is_empty(),
            "{}: {}",
            case.name,
            String::from_utf8_lossy(&again.stdout)
        );
        if arguments[0] == "Cargo.toml" {
            continue;
        }
        // Of all that was asked for only the place matters to the check.
        let mut check = vec![arguments[0].as_str()];
        for pair in
            arguments.windows(2).filter(|it| ["--service", "--stage"].contains(&it[0].as_str()))
        {
            check.extend([pair[0].as_str(), pair[1].as_str()]);
        }
        if ["from-trial-arenas", "supervisor-from-trial"].contains(&&*case.name) {
            check.extend(["-a", "glibc"]);
        }
        assert_code(&output(&mut place.command("check", &check)), 0);
    }
}

#[test]
fn undo_brings_back_every_byte() {
    for case in cases() {
        let place = case.place();
        let before = place.files();
        let mut arguments = case.arguments.clone();
        arguments.push("--write".to_owned());
        assert_code(&place.fix(&arguments), 0);
        assert_ne!(place.files(), before, "{}", case.name);
        assert_eq!(place.records(), 1);
        assert_code(&place.fix(&["--undo", &arguments[0]]), 0);
        assert_eq!(place.files(), before, "{}", case.name);
        assert_eq!(place.records(), 0);
        assert_code(&place.fix(&["--undo", &arguments[0]]), 64);
    }
}

/// What is shown is a patch: git applies it, and it makes what `--write` makes.
#[test]
fn the_difference_is_a_patch() {
    needs!("git");
    for case in cases() {
        let (shown, written) = (case.place(), case.place());
        let mut arguments = case.arguments.clone();
        let diff = shown.fix(&arguments).stdout;
        shown.write("the.patch", &String::from_utf8(diff).expect("UTF-8"));
        let applied = output(
            Command::new("git")
                .args(["apply", "--whitespace=nowarn", "the.patch"])
                .env("GIT_CEILING_DIRECTORIES", shown.path("").parent().expect("a folder"))
                .current_dir(shown.path("")),
        );
        assert!(applied.status.success(), "{}: {applied:?}", case.name);
        fs::remove_file(shown.path("the.patch")).expect("the patch");
        arguments.push("--write".to_owned());
        assert_code(&written.fix(&arguments), 0);
        // A patch has no binary file.
        let mut files = written.files();
        files.remove(Path::new("libebbmalloc.so"));
        assert_eq!(shown.files(), files, "{}", case.name);
    }
}
