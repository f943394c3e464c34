//! `ebb snap --to` and `ebb diff DIR`: a real service over a restart under another allocator, kills of the recorder, bad input.

use crate::harness::{self, Finished, Subject};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use test_needs::needs;

/// Frees 90 MB of blocks and keeps every hundredth, so that glibc holds the pages.
const SERVICE: &str = "#!/usr/bin/env python3
import sys
blocks = [b'x' * 60000 for _ in range(1500)]
kept = blocks[::100]
del blocks
print('ready', flush=True)
sys.stdin.read()
";

fn ebb(line: &[&str]) -> Command {
    let mut command = harness::ebb();
    command.args(line).stdin(Stdio::null());
    command
}

struct Recorder {
    child: Child,
    folder: PathBuf,
}

impl Recorder {
    fn start(target: &str, folder: &Path) -> Self {
        let mut command = ebb(&["snap", target, "--every", "100ms", "--to"]);
        let child = command.arg(folder).spawn().expect("ebb");
        Self { child, folder: folder.to_owned() }
    }

    fn wait_for(&self, count: usize, what: &str, is_one: impl Fn(&Value) -> bool) {
        let end = Instant::now() + Duration::from_secs(120);
        while lines(&self.folder).iter().flatten().filter(|it| is_one(it)).count() < count {
            assert!(Instant::now() < end, "{count} records: {what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Every line of the plain files; none for one that is no JSON.
fn lines(folder: &Path) -> Vec<Option<Value>> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|it| it.path()).collect();
    files.sort();
    let text: String = files.iter().filter_map(|it| std::fs::read_to_string(it).ok()).collect();
    text.lines().map(|line| serde_json::from_str(line).ok()).collect()
}

fn allocator(record: &Value) -> Option<&str> {
    record["replicas"][0]["allocator"].as_str()
}

fn service(folder: &TempDir, name: &str) -> PathBuf {
    harness::script(folder, name, SERVICE)
}

/// A name that no other process has.
fn name(of: &str) -> String {
    format!("{of}-{}.py", std::process::id())
}

fn diff(folder: &Path, more: &[&str]) -> Finished {
    Finished::by(ebb(&["diff"]).arg(folder).args(more))
}

#[test]
fn a_restart_under_another_allocator_is_followed_and_the_drop_is_found() {
    needs!("python3", "libjemalloc2");
    let folder = harness::folder();
    let name = name("deploy");
    let program = service(&folder, &name);
    let dir = folder.path().join("recording");
    let glibc = Subject::start(&mut Command::new(&program));
    let recorder = Recorder::start(&name, &dir);
    recorder.wait_for(25, "on glibc", |it| allocator(it) == Some("glibc"));
    drop(glibc);
    recorder.wait_for(1, "gone", |it| it["replicas"] == Value::Array(Vec::new()));
    let mut other = Command::new(&program);
    other.env("LD_PRELOAD", harness::jemalloc());
    other.env("MALLOC_CONF", "dirty_decay_ms:0,muzzy_decay_ms:0");
    let _jemalloc = Subject::start(&mut other);
    let of_jemalloc = |it: &Value| allocator(it) == Some("jemalloc");
    recorder.wait_for(2, "on jemalloc", of_jemalloc);
    let first = lines(&dir).into_iter().flatten().filter(of_jemalloc).nth(1).expect("a record");
    let deploy = first["at"].as_str().expect("a time").to_owned();
    recorder.wait_for(27, "on jemalloc", of_jemalloc);
    Finished::by(ebb(&["snap", &name, "--to"]).arg(&dir)).expect(75, &[], &["another ebb snap writes"]);
    drop(recorder);

    let page = folder.path().join("report.html");
    let found = diff(&dir, &["--after", &deploy, "--json", "-o", &page.display().to_string()]);
    let found = found.expect(0, &[], &[]).json();
    let high = found["levels"][0]["interval"][1].as_f64().expect("an interval");
    assert!(high < -30e6, "{found}");
    assert_eq!(found["levels"][0]["reading"], "real");
    assert_eq!(
        (&found["before"]["allocators"][0], &found["after"]["allocators"][0]),
        (&"glibc".into(), &"jemalloc".into())
    );
    assert!(found["sustained_s"].as_f64() == found["after"]["seconds"].as_f64(), "{found}");
    let page = std::fs::read_to_string(page).expect("the page");
    assert!(page.contains("class=\"plot wide\"") && page.contains("</html>"));
    let text = diff(&dir, &["--before", &format!("..{deploy}"), "--after", &format!("{deploy}..now")]);
    text.expect(0, &["% lower", "sustained over", "typical", "floor", "OOM kills", "shorter than 6 hours"], &[]);
    // Both lives are in one period: one process took the place of another.
    let all = diff(&dir, &["--before", "1h..now", "--after", "now", "--json"]);
    all.expect(20, &[], &["no record of a running process in the period of --after"]);
    let whole = lines(&dir).into_iter().flatten().collect::<Vec<_>>();
    let last = whole.last().and_then(|it| it["at"].as_str()).expect("a time");
    let all = diff(&dir, &["--before", &format!("..{last}"), "--json"]);
    assert_eq!(all.json()["before"]["restarts"], 1, "{}", all.all());
}

#[test]
fn replicas_of_a_name_are_recorded_and_one_that_comes_back_is_a_restart() {
    needs!("python3");
    let folder = harness::folder();
    let name = name("replicas");
    let program = service(&folder, &name);
    let dir = folder.path().join("recording");
    let start = || Subject::start(&mut Command::new(&program));
    let (_first, second) = (start(), start());
    let recorder = Recorder::start(&name, &dir);
    let has = |count: usize| move |it: &Value| it["replicas"].as_array().is_some_and(|it| it.len() == count);
    recorder.wait_for(5, "of two", has(2));
    drop(second);
    recorder.wait_for(1, "of one", has(1));
    let _again = start();
    recorder.wait_for(10, "of two again", has(2));
    let _third = start();
    recorder.wait_for(2, "of three", has(3));
    drop(recorder);
    let records: Vec<Value> = lines(&dir).into_iter().flatten().collect();
    let last = records.last().and_then(|it| it["at"].as_str()).expect("a time");
    let found = diff(&dir, &["--before", &format!("..{last}"), "--json"]).json();
    // The third replica is an addition.
    assert_eq!((&found["before"]["restarts"], &found["before"]["most_replicas"]), (&1.into(), &3.into()), "{found}");
    let mean = found["before"]["replicas"].as_f64().expect("a mean");
    assert!((1.5..3.0).contains(&mean), "{found}");
    let tree = &records[0]["replicas"][0];
    assert!(tree["rss"].as_u64() > tree["anon"].as_u64() && tree["cgroup"]["others"].is_u64(), "{tree}");
}

#[test]
fn a_killed_recorder_loses_one_record_at_most() {
    needs!("python3");
    let folder = harness::folder();
    let name = name("killed");
    let program = service(&folder, &name);
    let _service = Subject::start(&mut Command::new(&program));
    let dir = folder.path().join("recording");
    for round in 1..=4 {
        let recorder = Recorder::start(&name, &dir);
        recorder.wait_for(5 * round, "of a round", |_| true);
        drop(recorder);
    }
    let lost = lines(&dir).iter().filter(|line| line.is_none()).count();
    assert!(lost <= 4, "{lost} lines lost in 4 kills");
    // As a crash of the machine would leave it.
    let file = std::fs::read_dir(&dir).expect("a folder").last().expect("a file").expect("a file").path();
    let text = std::fs::read_to_string(&file).expect("text");
    std::fs::write(&file, &text[..text.len() - 20]).expect("a cut");
    diff(&dir, &["--after", "1h"]).expect(20, &[], &["cut off by a crash and left out"]);
}

#[test]
fn bad_folders_times_and_targets_are_refused() {
    let folder = harness::folder();
    let dir = folder.path().display().to_string();
    let file = folder.path().join("file");
    std::fs::write(&file, "{}").expect("a file");
    let file = file.display().to_string();
    for (line, code, words) in [
        (&["diff", &dir][..], 64, "which periods? --after 14:00"),
        (&["diff", &dir, "--after", "noon"], 64, "\"noon\" is no time: write a moment"),
        (&["diff", &dir, "--before", "today", "--after", "14:00..15:00"], 64, "overlap"),
        (&["diff", &dir, "--after", "14:00"], 20, "no records; ebb snap TARGET --to writes them"),
        (&["diff", &file], 64, "or two files of `ebb snap`"),
        (&["diff", &file, "--after", "14:00"], 64, "is a file, not the folder of a recording"),
        (&["diff", "/no/such", "--after", "14:00"], 64, "it must be a folder of ebb snap --to"),
        (&["snap", "4194999", "--to", &dir], 64, "no process has the pid 4194999"),
        (&["snap", "1", "--to", &file], 74, "file"),
    ] {
        harness::assert_refused(&harness::output(&mut ebb(line)), code, &[words]);
    }
}
