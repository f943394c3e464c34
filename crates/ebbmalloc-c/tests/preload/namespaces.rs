//! unshare and setns without a fork, at several moments of the allocator's own life: right after a
//! burst was freed, while it is being returned, and when all is quiet again.

use crate::harness::{Flavour, Run, program};

fn at_all_moments(form: &str) {
    let mut failed = Vec::new();
    for wait_ms in ["0", "100", "700", "1500", "5000"] {
        let outcome =
            Run::preloaded(program("namespaces", Flavour::Plain)).args([form, wait_ms]).run();
        if !outcome.status.is_some_and(|status| status.success()) {
            failed.push(outcome.describe());
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn unshare_user_namespace() {
    at_all_moments("unshare_user");
}

#[test]
fn unshare_mount_namespace() {
    at_all_moments("unshare_mount");
}

#[test]
fn setns_user_namespace() {
    at_all_moments("setns_user");
}

#[test]
fn setns_mount_namespace() {
    at_all_moments("setns_mount");
}
