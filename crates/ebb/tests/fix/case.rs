//! The cases of `tests/fixtures/fix`: a file for each kind of start file, in it `== CASE ==` before each case, and in a case sections
//! that begin with `-- NAME --`, as in Go's txtar. `args` are the words after `ebb fix`, `expected` is what it says, and
//! every other section is a file. A file whose last line does not end is `-- NAME (no newline) --`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use test_needs::needs;

use crate::harness::output;
use crate::{Place, assert_code};

const EXPECTED: &str = "-- expected --\n";
const UNENDED: &str = " (no newline)";

pub struct Case {
    pub name: String,
    pub arguments: Vec<String>,
    pub expected: String,
    files: Vec<(String, String)>,
    path: PathBuf,
}

/// All of them.
pub fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/fix");
    let entries = fs::read_dir(folder).expect("the cases").flatten();
    let mut paths: Vec<PathBuf> = entries.map(|it| it.path()).collect();
    paths.sort();
    let mut cases = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).expect("cases");
        let named = parts(&text, "== ", " ==\n").into_iter();
        cases.extend(named.map(|(name, text)| Case::read(name, &text, &path)));
    }
    assert!(cases.len() >= 50, "{} cases", cases.len());
    cases
}

impl Case {
    fn read(name: String, text: &str, path: &Path) -> Self {
        let mut files = parts(text, "-- ", " --\n");
        for (name, text) in &mut files {
            if let Some(bare) = name.strip_suffix(UNENDED) {
                *name = bare.to_owned();
                text.pop();
            }
        }
        let mut take = |name: &str| {
            let at = files.iter().position(|it| it.0 == name).expect(name);
            files.remove(at).1
        };
        let arguments = shlex::split(&take("args")).expect("words");
        let expected = take("expected");
        Self { name, arguments, expected, files, path: path.to_owned() }
    }

    pub fn place(&self) -> Place {
        let files = self.files.iter().map(|(name, text)| (name.as_str(), text.as_str()));
        Place::with(&files.collect::<Vec<_>>())
    }

    /// Writes what is expected anew: the last section of the case.
    pub fn bless(&self, said: &str) {
        let text = fs::read_to_string(&self.path).expect("cases");
        let start = text.find(&format!("== {} ==\n", self.name)).expect("it");
        let expected = start + text[start..].find(EXPECTED).expect("expected") + EXPECTED.len();
        let end = text[expected..].find("\n== ").map_or(text.len(), |it| expected + it + 1);
        let text = format!("{}{said}{}", &text[..expected], &text[end..]);
        fs::write(&self.path, text).expect("cases");
    }
}

/// The parts of a text by their headings, which are lines that begin and end so.
fn parts(text: &str, before: &str, after: &str) -> Vec<(String, String)> {
    let mut parts: Vec<(String, String)> = Vec::new();
    for line in text.split_inclusive('\n') {
        let heading = line.strip_prefix(before).and_then(|it| it.strip_suffix(after));
        match (heading, parts.last_mut()) {
            (Some(name), _) => parts.push((name.to_owned(), String::new())),
            (None, Some((_, text))) => text.push_str(line),
            (None, None) => panic!("a line before the first heading: {line}"),
        }
    }
    parts
}

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
        assert!(again.stdout.is_empty(), "{}: {}", case.name, String::from_utf8_lossy(&again.stdout));
        if arguments[0] == "Cargo.toml" {
            continue;
        }
        // Of all that was asked for only the place matters to the check.
        let mut check = vec![arguments[0].as_str()];
        for pair in arguments.windows(2).filter(|it| ["--service", "--stage"].contains(&it[0].as_str())) {
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
