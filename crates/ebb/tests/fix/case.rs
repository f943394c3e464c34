//! The cases of `tests/fixtures/fix`: a file for each kind of start file, in it `== CASE ==` before each case, and in a case sections
//! that begin with `-- NAME --`, as in Go's txtar. `args` are the words after `ebb fix`, `expected` is what it says, and
//! every other section is a file. A file whose last line does not end is `-- NAME (no newline) --`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Place;

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

    /// Its files in a place of their own.
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
