//! Advice to C programs, by allocator.

use std::process::Command;

use super::process::{Process, call, start, states};
use crate::harness::subjects::preload;

const BACKGROUND: &str = "background_thread:true,dirty_decay_ms:1000";

/// `state` under an allocator that is preloaded.
fn under(allocator: &str, state: &str, remedy: &str, settings: &[(&str, &str)]) -> Command {
    let mut command = states(state, remedy, settings);
    command.env("LD_PRELOAD", preload(allocator));
    command
}

#[test]
fn glibc_trimmed() {
    let process = Process::start(&mut states("burst", "trim", &[]));
    call(process, "malloc_trim(0) in the program").helps("malloc_trim(0)");
}

#[test]
fn glibc_with_a_fixed_trim_threshold() {
    let setting = "MALLOC_TRIM_THRESHOLD_=131072";
    let process = Process::start(&mut states("ends", "", &[]));
    let mut again = states("ends", "", &[("MALLOC_TRIM_THRESHOLD_", "131072")]);
    start(&process, setting, &mut again).helps(setting);
}

#[test]
fn jemalloc_with_a_background_thread() {
    let process = Process::start(&mut under("jemalloc", "burst", "", &[]));
    let mut again = under("jemalloc", "burst", "", &[("MALLOC_CONF", BACKGROUND)]);
    start(&process, BACKGROUND, &mut again).helps(BACKGROUND);
}

#[test]
fn jemalloc_that_never_purged() {
    let never = [("MALLOC_CONF", "dirty_decay_ms:-1")];
    let process = Process::start(&mut under("jemalloc", "burst", "", &never));
    let mut again = under("jemalloc", "burst", "", &[("MALLOC_CONF", BACKGROUND)]);
    start(&process, BACKGROUND, &mut again).helps("dirty_decay_ms:1000 for -1");
}

#[test]
fn jemalloc_purged() {
    let process = Process::start(&mut under("jemalloc", "burst", "purge", &[]));
    let said = process.trim();
    assert!(said.contains("arena.4096.purge"), "{said}");
    call(process, "dirty pages").helps("arena.4096.purge");
}

#[test]
fn jemalloc_in_a_forked_process_that_turns_its_thread_on() {
    let settings = [("MALLOC_CONF", BACKGROUND)];
    let process = Process::start(&mut under("jemalloc", "child", "thread", &settings));
    call(process, "mallctl \"background_thread\"").helps("background_thread after a fork");
}

#[test]
fn jemalloc_without_muzzy_pages() {
    let lazy = "background_thread:true,dirty_decay_ms:100,muzzy_decay_ms:-1";
    let prompt = "background_thread:true,dirty_decay_ms:100,muzzy_decay_ms:0";
    let process = Process::start(&mut under("jemalloc", "burst", "", &[("MALLOC_CONF", lazy)]));
    let mut again = under("jemalloc", "burst", "", &[("MALLOC_CONF", prompt)]);
    start(&process, "muzzy_decay_ms:0", &mut again).helps("muzzy_decay_ms:0");
}

#[test]
fn jemalloc_with_smaller_caches() {
    let setting = "tcache_max:4096,background_thread:true,dirty_decay_ms:1000";
    let process = Process::start(&mut under("jemalloc", "caches", "", &[]));
    let mut again = under("jemalloc", "caches", "", &[("MALLOC_CONF", setting)]);
    start(&process, setting, &mut again).helps(setting);
}

#[test]
fn mimalloc_of_2_0_that_decommits_at_once() {
    let process = Process::start(&mut under("mimalloc", "burst", "collect-each", &[]));
    let setting = "MIMALLOC_DECOMMIT_DELAY";
    let mut again = under("mimalloc", "burst", "", &[(setting, "0")]);
    start(&process, setting, &mut again).helps(setting);
}

#[test]
fn tcmalloc_that_decommits_at_once() {
    let setting = "TCMALLOC_AGGRESSIVE_DECOMMIT";
    let process = Process::start(&mut under("tcmalloc", "burst", "", &[]));
    let mut again = under("tcmalloc", "burst", "", &[(setting, "t")]);
    start(&process, "TCMALLOC_AGGRESSIVE_DECOMMIT=t", &mut again).helps(setting);
}

#[test]
fn tcmalloc_that_never_released() {
    let never = [("TCMALLOC_RELEASE_RATE", "0")];
    let process = Process::start(&mut under("tcmalloc", "burst", "release", &never));
    call(process, "free spans are never returned").helps("ReleaseFreeMemory() after a rate of 0");
}

#[test]
fn tcmalloc_released() {
    let process = Process::start(&mut under("tcmalloc", "burst", "release", &[]));
    call(process, "MallocExtension::ReleaseFreeMemory()").helps("ReleaseFreeMemory()");
}

#[test]
fn tcmalloc_with_smaller_caches() {
    let prompt = ("TCMALLOC_AGGRESSIVE_DECOMMIT", "t");
    let bound = ("TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES", "1048576");
    let process = Process::start(&mut under("tcmalloc", "burst", "", &[prompt]));
    let mut again = under("tcmalloc", "burst", "", &[prompt, bound]);
    start(&process, "TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES=1048576", &mut again).helps(bound.0);
}
