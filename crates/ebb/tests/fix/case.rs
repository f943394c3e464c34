//! A case in one file of `tests/fixtures/fix`: sections that each begin with a line `-- NAME --`, as in Go's txtar. `args` are the
//! words after `ebb fix`, `expected` is what it says, and every other section is a file. A file whose last line does not end
//! is `-- NAME (no newline) --`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Place;

const UNENDED: &str = " (no newline)";

pub struct Case {
    pub name: String,
    pub arguments: Vec<String>,
    pub expected: String,
    files: Vec<(String, String)>,
    path: PathBuf,
}

/// All of them, by name.
pub fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/fix");
    let entries = fs::read_dir(folder).expect("the cases").flatten();
    let mut cases: Vec<Case> = entries.map(|it| Case::read(it.path())).collect();
    cases.sort_by(|one, other| one.name.cmp(&other.name));
    assert!(cases.len() >= 50, "{} cases", cases.len());
    cases
}

impl Case {
    fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(&path).expect("a case");
        let mut files = sections(&text);
        let mut take = |name: &str| {
            let at = files.iter().position(|it| it.0 == name).expect(name);
            files.remove(at).1
        };
        let arguments = shlex::split(&take("args")).expect("words");
        let expected = take("expected");
        let stem = path.file_stem().expect("a name");
        Self {
            name: stem.to_string_lossy().into_owned(),
            arguments,
            expected,
            files,
            path,
        }
    }

    /// Its files in a place of their own.
    pub fn place(&self) -> Place {
        let files: Vec<(&str, &str)> = self
            .files
            .iter()
            .map(|(name, text)| (&**name, &**text))
            .collect();
        Place::with(&files)
    }

    /// Writes what is expected anew.
    pub fn bless(&self, said: &str) {
        let text = fs::read_to_string(&self.path).expect("a case");
        let heading = "-- expected --\n";
        let (before, _) = text.rsplit_once(heading).expect("expected, last");
        fs::write(&self.path, format!("{before}{heading}{said}")).expect("a case");
    }
}

fn sections(text: &str) -> Vec<(String, String)> {
    let mut sections: Vec<(String, String)> = Vec::new();
    for line in text.split_inclusive('\n') {
        let heading = line
            .strip_prefix("-- ")
            .and_then(|it| it.strip_suffix(" --\n"));
        match (heading, sections.last_mut()) {
            (Some(name), _) => sections.push((name.to_owned(), String::new())),
            (None, Some((_, text))) => text.push_str(line),
            (None, None) => panic!("a line before the first heading: {line}"),
        }
    }
    for (name, text) in &mut sections {
        if let Some(bare) = name.strip_suffix(UNENDED) {
            *name = bare.to_owned();
            text.pop();
        }
    }
    sections
}
