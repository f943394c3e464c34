//! The parsers of files on mutated texts of this repository: what `ebb` reads because a user named it.

use std::fs;
use std::path::{Path, PathBuf};

use ebb_allocators::Allocator;
use ebb_deploy::check::declared::{self, Kind};
use ebb_deploy::check::dockerfile::Stages;
use ebb_deploy::fix::{
    Desired, compose, dockerfile, kubernetes, procfile, script, supervisor, unit,
};
use ebb_process::record::Record;
use ebb_process::recording;
use ebb_process::snapshot::{Process, Snapshot};
use ebb_report::diagnosis::Form;
use ebb_trial::results::Trial;
use ebb_trial::workload::Workload;
use fastrand::Rng;

use crate::harness;

/// Numbers and words at which parsers go wrong.
const WORDS: [&str; 24] = [
    "18446744073709551615",
    "-9223372036854775808",
    "1e308",
    "-1",
    "0",
    "NaN",
    "null",
    "\"",
    "'",
    "\\",
    "${",
    "$(",
    "`",
    "[",
    "{",
    "}",
    "]",
    ": ",
    "- ",
    "&a ",
    "*a",
    "\u{0}",
    "\u{2028}",
    "\t",
];
const NESTED: usize = 3000;

fn texts(folder: &str, ends: &[&str]) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let mut left = vec![root];
    let mut found = Vec::new();
    while let Some(path) = left.pop() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && name != "node_modules" && name != "target" {
            let entries = fs::read_dir(&path).expect("a folder").flatten();
            let mut entries: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
            entries.sort();
            left.extend(entries);
        } else if ends.iter().any(|end| name.ends_with(end)) {
            found.extend(fs::read_to_string(&path).ok().filter(|text| text.len() < 300_000));
        }
    }
    assert!(!found.is_empty(), "{folder}");
    found
}

/// A text with parts removed, doubled, taken from another, or replaced by words that do harm.
fn mutated(random: &mut Rng, texts: &[String]) -> String {
    let mut text = texts[random.usize(..texts.len())].clone().into_bytes();
    for _ in 0..random.usize(1..8) {
        let at = random.usize(..=text.len());
        let most = 1 << random.u32(1..8);
        let to = (at + random.usize(..most)).min(text.len());
        match random.u8(..8) {
            0 => drop(text.drain(at..to)),
            1 => {
                let part = text[at..to].to_vec();
                text.splice(at..at, part);
            }
            2 => {
                let other = texts[random.usize(..texts.len())].as_bytes();
                let from = random.usize(..=other.len());
                let part = &other[from..(from + random.usize(..200)).min(other.len())];
                text.splice(at..to, part.iter().copied());
            }
            3 => {
                let digits =
                    text[at..].iter().position(u8::is_ascii_digit).map_or(text.len(), |it| at + it);
                let end = text[digits..].iter().position(|it| !it.is_ascii_digit());
                let end = end.map_or(text.len(), |it| digits + it);
                text.splice(digits..end, WORDS[random.usize(..7)].bytes());
            }
            4 if at < text.len() => text[at] ^= 1 << random.u8(..8),
            5 if random.u8(..50) == 0 => {
                let word = WORDS[random.usize(13..20)].repeat(NESTED);
                text.splice(at..at, word.bytes());
            }
            _ => drop(text.splice(at..at, WORDS[random.usize(..WORDS.len())].bytes())),
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn desired() -> Desired {
    Desired {
        allocator: Allocator::Ebbmalloc,
        library: Some("/usr/lib/libebbmalloc.so".to_owned()),
        release: None,
        variables: [("EBB_CONF".to_owned(), "dirty_decay_ms:0".to_owned())].into(),
        keep_existing: false,
        why: "it is fuzzed".to_owned(),
    }
}

/// The parts of a file of cases, each one text.
fn cases(name: &str) -> Vec<String> {
    let file = format!("crates/ebb/tests/fixtures/fix/{name}.cases");
    let all = texts(&file, &[".cases"]).concat();
    // Without the headings, at which every parser would stop.
    all.split("\n-- ").filter_map(|part| Some(part.split_once(" --\n")?.1.to_owned())).collect()
}

#[test]
fn files_that_start_services() {
    let kinds = [
        ("compose", Kind::Compose),
        ("kubernetes", Kind::Kubernetes),
        ("procfile", Kind::Procfile),
        ("supervisor", Kind::Supervisor),
        ("script", Kind::Script),
        ("unit", Kind::Unit),
    ];
    let kinds = kinds.map(|(name, kind)| (cases(name), kind));
    let desired = desired();
    crate::fuzz("files that start services", |random| {
        let (texts, kind) = &kinds[random.usize(..kinds.len())];
        let text = mutated(random, texts);
        let _ = declared::kind(Path::new("f"), &text);
        let _ = declared::services(*kind, Path::new("f"), &text);
        let _ = match kind {
            Kind::Compose => compose::fix("f", &text, &|_| true, &desired),
            Kind::Kubernetes => kubernetes::fix("f", &text, &|_| true, Some("i"), &desired),
            Kind::Procfile => procfile::fix("f", &text, &|_| true, &desired),
            Kind::Supervisor => supervisor::fix("f", &text, &|_| true, &desired),
            Kind::Script => script::fix("f", &text, &desired),
            Kind::Unit => {
                unit::fix(&unit::Files { name: "f", text: &text, drop_ins: &[] }, &desired)
            }
        };
    });
}

#[test]
fn dockerfiles() {
    let (texts, desired) = (cases("dockerfile"), desired());
    crate::fuzz("Dockerfiles", |random| {
        let text = mutated(random, &texts);
        let _ = Stages::parse(&text);
        let _ = dockerfile::fix("f", &text, None, &|_: &str| None, &desired);
    });
}

#[test]
fn snapshots_and_recordings() {
    let process = Process { pid: 7, name: "service".into(), ..Process::default() };
    let shell =
        harness::Subject::python("print('ready', flush=True)\nimport sys; sys.stdin.read()");
    let real = harness::Finished::by(harness::ebb().args(["snap", &shell.pid()])).stdout;
    let made = serde_json::to_string(&ebb_process::example::snapshot(vec![process])).expect("JSON");
    let texts = [real, made];
    let folder = harness::folder();
    crate::fuzz("snapshots and recordings", |random| {
        let text = mutated(random, &texts);
        if let Ok(snapshot) = Snapshot::from_json(&text) {
            let diagnosis = [ebb_diagnosis::of(snapshot)];
            for form in [Form::Full, Form::Short(80)] {
                let _ = ebb_report::diagnosis::render(&diagnosis, form);
            }
        }
        let _ = serde_json::from_str::<Record>(&text);
        fs::write(folder.path().join("2026-11-26.jsonl.gz"), &text).expect("a file");
        let _ = recording::read(folder.path());
    });
}

#[test]
fn trials() {
    let texts = texts("crates/ebb-report/examples", &["results.json"]);
    crate::fuzz("JSON of trials", |random| {
        if let Ok(trial) = serde_json::from_str::<Trial>(&mutated(random, &texts)) {
            let _ = ebb_report::text::render(&trial, 80);
            let _ = ebb_report::markdown::render(&trial);
            let _ = ebb_report::html::render(&trial);
        }
    });
}

#[test]
fn workloads() {
    let texts = texts("workloads", &["workload.toml"]);
    crate::fuzz("workload.toml", |random| {
        let _ = Workload::from_text(&mutated(random, &texts), "/".into());
    });
}
