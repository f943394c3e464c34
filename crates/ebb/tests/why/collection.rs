//! The labelled collection: real processes, what is true of them, and what `ebb why` says.
//!
//! `EBB_LONG=1 EBB_WRITE_MATRIX=1` writes the table of true against reported causes into
//! `docs/proof.md`; else the table there must be the one that a run of all cases gives.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::harness::subjects::{self, Cgroup};
use crate::harness::{self, Finished, Subject};

/// Processes looked at side by side.
const LANES: usize = 2;
/// A case is watched for at most four times this.
const LONGEST_WATCH: Duration = Duration::from_secs(60);

#[derive(Debug, serde::Deserialize)]
struct Table {
    case: Vec<Case>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    program: String,
    truth: String,
    main: Option<String>,
    says: Option<String>,
    because: Option<String>,
    preload: Option<String>,
    file: Option<String>,
    settle: Option<String>,
    watch: Option<String>,
    #[serde(default)]
    cgroup: bool,
    #[serde(default)]
    root: bool,
}

/// The report about one case.
struct Said {
    truth: String,
    verdict: String,
    because: Option<String>,
    name: String,
}

#[test]
fn the_labelled_collection() {
    collection("cases.toml", "matrix");
}

#[test]
fn the_second_set() {
    collection("second.toml", "second matrix");
}

/// `place` is the name of a matrix in the documentation.
fn collection(file: &str, place: &str) {
    let text = std::fs::read_to_string(subjects::fixtures().join(file)).unwrap();
    let table: Table = toml::from_str(&text).unwrap();
    let names: BTreeSet<&str> = table.case.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names.len(), table.case.len(), "a name twice");
    let next = AtomicUsize::new(0);
    let (said, failures) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                // Relaxed: it only hands out numbers.
                while let Some(case) = table.case.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Some(result) = run(case) else { continue };
                    if let Err(failure) = check(case, &result) {
                        failures.lock().unwrap().push(failure);
                    }
                    said.lock().unwrap().push(Said {
                        truth: case.truth.clone(),
                        verdict: word(&result, "kind"),
                        because: case.because.clone(),
                        name: case.name.clone(),
                    });
                }
            });
        }
    });
    let (said, failures) = (said.into_inner().unwrap(), failures.into_inner().unwrap());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    // On a machine that lets us make no cgroup, or without the long cases, the table would be another.
    if said.len() == table.case.len() {
        published(&matrix(&said), place);
    }
}

/// What `ebb why --json` says of a case; nothing where the machine cannot show it. Cases that are watched
/// for seconds depend on the machine's pace, and Rust programs take minutes to build with their allocators: they belong to the
/// long tests.
fn run(case: &Case) -> Option<serde_json::Value> {
    let is_long = case.watch.is_some() || case.program.starts_with("rust:");
    if is_long && !harness::is_long() {
        return None;
    }
    if case.root && !nix::unistd::Uid::effective().is_root() {
        test_needs::note(&format!("case {}: only root can start it", case.name));
        return None;
    }
    if !test_needs::installed(&subjects::packages(&case.program, case.preload.as_deref())) {
        return None;
    }
    let cgroup = if case.cgroup { Some(Cgroup::new(&case.name)?) } else { None };
    let folder = harness::folder();
    let mut command = subjects::command(&case.program);
    if let Some(file) = &case.file {
        let place = match file.as_str() {
            "disk" => disk(&folder),
            memory => PathBuf::from(memory),
        };
        command.arg(place.join(format!("ebb-why-{}-{}", std::process::id(), case.program.len())));
    }
    if let Some(allocator) = &case.preload {
        command.env("LD_PRELOAD", subjects::preload(allocator));
    }
    let mut command = match &cgroup {
        // The shell enters before anything is charged to it.
        Some(cgroup) => cgroup.with(&command),
        None => command,
    };
    let subject = Subject::start(&mut command);
    let settle = case.settle.as_deref().unwrap_or("0s");
    std::thread::sleep(humantime::parse_duration(settle).unwrap());
    let Some(time) = &case.watch else {
        return Some(said(case, &subject, &[]));
    };
    let mut time = humantime::parse_duration(time).unwrap();
    loop {
        let watch = ["--watch", &format!("{}s", time.as_secs()), "--every", "100ms"];
        let value = said(case, &subject, &watch);
        // What it says then is done: a machine that is busy gives too few looks in that time.
        if time > LONGEST_WATCH || !word(&value, "sentence").contains("Watch it for longer") {
            return Some(value);
        }
        time *= 4;
    }
}

/// What `ebb why --json` with `options` says of the process of a case.
fn said(case: &Case, subject: &Subject, options: &[&str]) -> serde_json::Value {
    let mut why = harness::ebb();
    let why = Finished::by(why.args(["why", "--json", &subject.pid()]).args(options));
    let mut value: serde_json::Value =
        serde_json::from_str(&why.stdout).unwrap_or_else(|error| panic!("{}: {error}: {}", case.name, why.all()));
    // One look is a list of one.
    if let Some(first) = value.as_array_mut().and_then(Vec::pop) {
        value = first;
    }
    value
}

fn word(result: &serde_json::Value, field: &str) -> String {
    result["verdict"][field].as_str().unwrap_or("none").to_owned()
}

fn check(case: &Case, result: &serde_json::Value) -> Result<(), String> {
    let (kind, main) = (word(result, "kind"), word(result, "main"));
    let expected = case.says.as_ref().unwrap_or(&case.truth);
    let sentence = word(result, "sentence");
    if kind != *expected {
        return Err(format!("{}: {kind}, not {expected}: {sentence}", case.name));
    }
    if let Some(expected) = case.main.as_ref().filter(|expected| **expected != main) {
        return Err(format!("{}: by {main}, not {expected}: {sentence}", case.name));
    }
    if case.watch.is_none() && sentence.contains("leak") {
        return Err(format!("{}: a leak from one look: {sentence}", case.name));
    }
    let diagnosis = match result.get("last") {
        Some(last) => last,
        None => result,
    };
    adds_up(diagnosis, case.watch.is_none()).map_err(|why| format!("{}: {why}", case.name))
}

/// The lines and the remainder make the total; of a process that is `still` the remainder is small. One
/// under cycles may free all it has between the reading of its mappings and that of its heap.
fn adds_up(diagnosis: &serde_json::Value, still: bool) -> Result<(), String> {
    let ledger = &diagnosis["ledger"];
    let lines = ledger["lines"].as_array().ok_or("no ledger")?;
    let sum: i64 = lines.iter().filter_map(|line| line["bytes"].as_i64()).sum();
    let (total, remainder) =
        (ledger["total"].as_i64().ok_or("no total")?, ledger["remainder"].as_i64().ok_or("no remainder")?);
    if sum + remainder != total {
        return Err(format!("{sum} + {remainder} is not {total}"));
    }
    let most = total / 4 + 4_000_000;
    if remainder.abs() <= most || !still { Ok(()) } else { Err(format!("a remainder of {remainder} in {total}")) }
}

/// A folder that is not on tmpfs.
fn disk(folder: &tempfile::TempDir) -> PathBuf {
    let is_tmpfs = nix::sys::statfs::statfs(folder.path())
        .is_ok_and(|found| found.filesystem_type() == nix::sys::statfs::TMPFS_MAGIC);
    if is_tmpfs { PathBuf::from("/var/tmp") } else { folder.path().to_owned() }
}

/// True against reported causes, in Markdown.
fn matrix(said: &[Said]) -> String {
    let kinds: BTreeSet<&str> = said.iter().flat_map(|said| [said.truth.as_str(), said.verdict.as_str()]).collect();
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for case in said {
        *counts.entry((&case.truth, &case.verdict)).or_default() += 1;
    }
    let mut text = String::from("| true \\ said |");
    for kind in &kinds {
        let _ = write!(text, " {kind} |");
    }
    let _ = write!(text, "\n|---|{}\n", "---:|".repeat(kinds.len()));
    for truth in &kinds {
        let _ = write!(text, "| {truth} |");
        for verdict in &kinds {
            match counts.get(&(truth, verdict)) {
                Some(count) => drop(write!(text, " {count} |")),
                None => text.push_str(" |"),
            }
        }
        text.push('\n');
    }
    let mut wrong: Vec<&Said> = said.iter().filter(|said| said.truth != said.verdict).collect();
    wrong.sort_by(|left, right| left.name.cmp(&right.name));
    let _ = write!(text, "\n{} of {} right. Not:\n\n", said.len() - wrong.len(), said.len());
    for case in wrong {
        let because = case.because.as_deref().unwrap_or("no reason given");
        let _ = writeln!(text, "- {}: said {}; {because}.", case.name, case.verdict);
    }
    text
}

/// The table in the documentation is this one, or becomes it.
fn published(matrix: &str, place: &str) {
    static FILE: Mutex<()> = Mutex::new(());
    let _alone = FILE.lock().unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/proof.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let begin = format!("<!-- {place}: written by the collection's test -->\n");
    let from = text.find(&begin).expect("the place of the matrix") + begin.len();
    let to = text.find(&format!("<!-- end of {place} -->\n")).expect("the end of the matrix");
    if std::env::var_os("EBB_WRITE_MATRIX").is_some() {
        let changed = format!("{}{matrix}{}", &text[..from], &text[to..]);
        std::fs::write(&path, changed).unwrap();
    } else {
        assert_eq!(&text[from..to], matrix, "docs/proof.md: EBB_WRITE_MATRIX=1 writes it");
    }
}
