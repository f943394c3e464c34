//! Every verb of `ebb` that looks at processes.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness;
use crate::programs::wait_until;

/// Calls each verb on process `pid`; `after` gets the name of each when it is done.
pub fn each(pid: i32, mut after: impl FnMut(&str)) {
    let folder = harness::folder();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let pid = pid.to_string();
    let sides = [format!("one={pid}"), format!("other={pid}")];
    let before = file("before");
    let verbs: [&[&str]; 7] = [
        &["why", &pid],
        &["why", &pid, "--watch", "2s", "--every", "1s"],
        &["snap", &pid, "-o", &before],
        &["diff", &before, &before],
        &["trim", &pid, "--dry-run"],
        &["check", &pid],
        &["compare", "--live", &sides[0], &sides[1], "--for", "3s", "--every", "500ms"],
    ];
    for arguments in verbs {
        let output = ebb().args(arguments).output().expect("ebb");
        let said = String::from_utf8_lossy(&output.stderr);
        // A finding of `check` is 1, `trim` that leaves it alone 10 and more: but it looked.
        assert!(output.status.code().is_some_and(|code| code < 64), "{arguments:?}: {said}");
        after(&arguments.join(" "));
    }
    scrape(&pid, &folder.path().join("figures.prom"));
    after("watch");
}

/// `ebb watch` until it has written once.
fn scrape(pid: &str, file: &Path) {
    let mut watch = ebb();
    watch.args(["watch", pid, "--every", "60s", "--prometheus"]).arg(file);
    let mut watch = watch.spawn().expect("ebb");
    wait_until("figures are written", || file.exists());
    let _ = watch.kill();
    let _ = watch.wait();
}

fn ebb() -> Command {
    let mut command = match std::env::var_os("EBB_TEST_EBB") {
        // An earlier one, to see the tests fail.
        Some(path) => Command::new(path),
        None => harness::ebb(),
    };
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}
