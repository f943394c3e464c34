//! The page cache of a cgroup goes, and nothing anonymous with it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::harness::{self, output, stderr};
use test_needs::skip;

const FILE_BYTES: u64 = 64 << 20;

/// A memory cgroup of our own; removed in the end.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new() -> Option<Self> {
        let mounts = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"].map(Path::new);
        let mount = mounts.iter().find(|mount| mount.join("memory.stat").exists())?;
        let folder = mount.join(format!("ebb-trim-{}", std::process::id()));
        std::fs::create_dir(&folder).ok()?;
        let cgroup = Self(folder);
        cgroup.0.join("memory.stat").exists().then_some(cgroup)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn files_go_and_anonymous_memory_stays() {
    let Some(cgroup) = Cgroup::new() else {
        skip!("no right to make a memory cgroup");
    };
    // Not on tmpfs, whose pages are no cache.
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let script = format!(
        "echo $$ > {}/cgroup.procs; head -c {FILE_BYTES} /dev/urandom > {file}; sync {file}; cat {file} > /dev/null; \
         echo ready; read line",
        cgroup.0.display(),
        file = file.path().display(),
    );
    let mut shell = Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    use std::io::BufRead;
    std::io::BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line.trim(), "ready");
    let mut command = harness::ebb();
    let trim = output(command.args(["trim", "--page-cache", "--json"]).arg(&cgroup.0));
    let value: serde_json::Value = serde_json::from_slice(&trim.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", stderr(&trim)));
    let cache = &value["page_cache"];
    let figure = |name: &str| cache[name].as_u64();
    if cache["refused"].is_null() {
        assert!(figure("before") > Some(FILE_BYTES / 2), "{cache}");
        assert!(figure("after") < Some(FILE_BYTES / 4), "{cache}");
        // The shell's own pages; a page or two of it may come or go meanwhile.
        let changed = figure("anon_before").unwrap().abs_diff(figure("anon_after").unwrap());
        assert!(changed < 1 << 20, "{cache}");
    } else {
        // With swap on version 1, or a kernel that is too old: said so, and nothing done.
        assert!(cache["refused"]["remedy"].is_string(), "{cache}");
    }
    shell.kill().unwrap();
    shell.wait().unwrap();
}
