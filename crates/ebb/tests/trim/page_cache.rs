//! The page cache of a cgroup goes, and nothing anonymous with it.

use std::process::Command;

use crate::harness::{self, Finished, Subject, subjects::Cgroup};
use test_needs::skip;

const FILE_BYTES: u64 = 64 << 20;

#[test]
fn files_go_and_anonymous_memory_stays() {
    let Some(cgroup) = Cgroup::new("cache").filter(|it| it.0.join("memory.stat").exists()) else {
        skip!("no right to make a memory cgroup");
    };
    // Not on tmpfs, whose pages are no cache.
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let script = format!(
        "head -c {FILE_BYTES} /dev/urandom > {file}; sync {file}; cat {file} > /dev/null; echo ready; read line",
        file = file.path().display(),
    );
    let _shell = Subject::start(&mut cgroup.with(Command::new("sh").args(["-c", &script])));
    let mut command = harness::ebb();
    let trim = Finished::by(command.args(["trim", "--page-cache", "--json"]).arg(&cgroup.0)).json();
    let cache = &trim["page_cache"];
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
}
