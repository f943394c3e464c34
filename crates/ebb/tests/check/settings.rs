//! Settings that the allocator in charge has not read.

use std::process::Command;

use crate::harness::*;
use crate::{Running, assert_error, assert_fine, check, found};
use test_needs::needs;

fn on_jemalloc(name: &str, value: &str) -> (tempfile::TempDir, Running) {
    let folder = folder();
    let program = compile(&folder, "cc", "allocating", ALLOCATING, &[]);
    let running = Running::start(
        Command::new(program).arg("30000").env("LD_PRELOAD", jemalloc()).env(name, value),
    );
    (folder, running)
}

#[test]
fn set_by_the_program_itself() {
    let code = "import os, sys; os.environ['MALLOC_CONF'] = 'narenas:1'; print(flush=True); sys.stdin.read()";
    let running =
        Running::start(Command::new("python3").args(["-c", code]).env("LD_PRELOAD", jemalloc()));
    let said = assert_error(&[&running.pid()], "settings-too-late");
    assert_eq!(said["processes"][0]["in_charge"], true, "{said:#}");
    let text = stdout(&output(ebb().args(["check", &running.pid()])));
    assert!(text.contains("but not with the settings given"), "{text}");
}

#[test]
fn no_list_of_pairs() {
    let (_folder, running) = on_jemalloc("MALLOC_CONF", "narenas=1");
    assert_error(&[&running.pid()], "settings-malformed");
}

#[test]
fn of_another_allocator() {
    let (_folder, running) = on_jemalloc("MALLOC_ARENA_MAX", "2");
    let said = assert_fine(&[&running.pid()]);
    assert_eq!(found(&said, "note"), ["settings-of-another"], "{said:#}");
}

/// A program with jemalloc under the names that Rust's crates give it, by its symbols and, stripped, by
/// its texts. It has those names and nothing else of jemalloc.
#[test]
fn a_jemalloc_under_prefixed_names() {
    needs!("libmimalloc2.0");
    let folder = folder();
    let source = format!(
        "#include <stdlib.h>\nvoid *_rjem_malloc(size_t n) {{ return malloc(n); }}\n\
         const char *where = \"_RJEM_MALLOC_CONF\";\n{}",
        ALLOCATING.replace("malloc(100000)", "_rjem_malloc(100000)")
    );
    for flags in [&["-O0"][..], &["-O0", "-s"]] {
        let program = compile(&folder, "cc", "prefixed", &source, flags);
        let start = |name: &str| {
            Running::start(
                Command::new(&program)
                    .arg("30000")
                    .env("LD_PRELOAD", peer("libmimalloc.so.2.0", "libmimalloc2.0"))
                    .env(name, "narenas:1"),
            )
        };
        let running = start("_RJEM_MALLOC_CONF");
        let said = assert_fine(&[&running.pid(), "-a", "jemalloc"]);
        assert_eq!(said["processes"][0]["settings"][0], "_RJEM_MALLOC_CONF=narenas:1");
        let (said, _) = check(&[&running.pid()]);
        assert_eq!(found(&said, "error"), ["allocator-inside"], "{said:#}");
        let running = start("MALLOC_CONF");
        assert_error(&[&running.pid(), "-a", "jemalloc"], "settings-unread");
    }
}

/// A jemalloc that has other settings than it was asked for, as one that was built without
/// `background_thread`: its variables are what counts. Like the one above it is jemalloc by its names only.
#[test]
fn settings_that_the_allocator_does_not_have() {
    let folder = folder();
    let source = format!(
        "#include <stdbool.h>\n#include <stdlib.h>\nlong _rjem_je_opt_dirty_decay_ms = 10000;\n\
         bool _rjem_je_opt_background_thread = false;\n\
         void *_rjem_malloc(size_t n) {{ _rjem_je_opt_dirty_decay_ms = 1000; return malloc(n); }}\n{}",
        ALLOCATING.replace("malloc(100000)", "_rjem_malloc(100000)")
    );
    let program = compile(&folder, "cc", "prefixed", &source, &["-O0"]);
    let start = |text: &str| {
        Running::start(Command::new(&program).arg("30000").env("_RJEM_MALLOC_CONF", text))
    };
    let running = start("dirty_decay_ms:1000");
    assert_fine(&[&running.pid(), "-a", "jemalloc"]);
    let running = start("background_thread:true,dirty_decay_ms:1000");
    let said = assert_error(&[&running.pid(), "-a", "jemalloc"], "settings-unread");
    let what = said["findings"][0]["what"].as_str().unwrap();
    assert!(what.contains("has background_thread:false"), "{what}");
}
