//! Files that start a service on this machine, and settings that the allocator in charge has not read.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use test_needs::needs;

use crate::harness::*;
use crate::{Running, assert_error, assert_fine, check, for_another_machine, found};

fn written(folder: &TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    fs::write(&path, text).expect("a file");
    path.to_str().expect("UTF-8").to_owned()
}

fn library() -> String {
    ebbmalloc().to_str().expect("UTF-8").to_owned()
}

/// Where the only error is.
fn place(said: &Value) -> String {
    let findings = said["findings"].as_array().expect("findings");
    let error = findings.iter().find(|it| it["severity"] == "error");
    let file = error.and_then(|it| it["file"].as_str()).expect("a file");
    file.rsplit('/').next().expect("a name").to_owned()
}

#[test]
fn programs_of_a_supervisor_in_order() {
    let folder = folder();
    let library = library();
    let with = |text: &str| written(&folder, "supervisord.conf", text);
    let own = format!("[program:a]\ncommand=/bin/cat\nenvironment=LD_PRELOAD=\"{library}\"\n");
    let said = assert_fine(&[&with(&own), "-a", "ebbmalloc"]);
    assert_eq!(said["subject"], "supervisor");
    assert_eq!(found(&said, "note"), [""; 0], "{said:#}");
    // That of the daemon reaches every program.
    let shared = format!(
        "[supervisord]\nenvironment=LD_PRELOAD=\"{library}\"\n[program:a]\ncommand=/bin/cat\n[program:b]\ncommand=/bin/ls\n"
    );
    let said = assert_fine(&[&with(&shared)]);
    assert_eq!(found(&said, "note"), [""; 0], "{said:#}");
    // But for one that takes it back.
    let path = with(&format!("{shared}environment=LD_PRELOAD=\"\"\n"));
    let said = assert_fine(&[&path]);
    assert_eq!(found(&said, "note"), ["not-asked"], "{said:#}");
    let said = assert_error(&[&path, "--service", "b"], "not-asked");
    assert_eq!(place(&said), "supervisord.conf:7");
}

#[test]
fn one_of_two_programs_of_a_supervisor_is_not_covered() {
    let folder = folder();
    let text = format!(
        "[program:a]\ncommand=/bin/cat\nenvironment=LD_PRELOAD=\"{}\"\n[program:b]\ncommand=/bin/ls\n",
        library()
    );
    let path = written(&folder, "app.conf", &text);
    let said = assert_fine(&[&path]);
    assert_eq!(found(&said, "note"), ["not-asked"], "{said:#}");
    let note = &said["findings"][0];
    assert!(note["what"].as_str().unwrap().starts_with("b: "), "{said:#}");
    assert_error(&[&path, "--service", "b"], "not-asked");
    assert_error(&[&path, "--service", "a", "--service", "b"], "not-asked");
    let none = written(&folder, "none.conf", "[program:b]\ncommand=/bin/ls\n");
    assert_error(&[&none], "not-asked");
}

#[test]
fn what_keeps_a_library_from_a_supervisors_program() {
    let folder = folder();
    let foreign = folder.path().join("libjemalloc.so.2");
    for_another_machine(&jemalloc(), &foreign);
    let foreign = foreign.to_str().unwrap();
    let set_uid = folder.path().join("cat");
    fs::copy("/bin/cat", &set_uid).expect("a copy");
    fs::set_permissions(&set_uid, fs::Permissions::from_mode(0o4755)).expect("a mode");
    let library = library();
    for (command, preload, id) in [
        ("/bin/cat", foreign, "wrong-architecture"),
        (set_uid.to_str().unwrap(), &*library, "secure-mode"),
        ("sudo -u app app", &*library, "environment-dropped"),
        ("/bin/cat", "/l/*/libjemalloc.so.2", "not-expanded"),
    ] {
        let text = format!("[program:a]\ncommand={command}\nuser=nobody\nenvironment=LD_PRELOAD=\"{preload}\"\n");
        let path = written(&folder, "app.conf", &text);
        let said = assert_error(&[&path], id);
        assert_eq!(place(&said), "app.conf:4", "{said:#}");
    }
    // Of a file elsewhere than in the folders of this machine it is not known where it runs.
    let text = "[program:a]\ncommand=/bin/cat\nenvironment=LD_PRELOAD=/l/libjemalloc.so.2\n";
    let said = assert_fine(&[&written(&folder, "app.conf", text)]);
    assert_eq!(found(&said, "note"), ["library-missing"], "{said:#}");
}

#[test]
fn a_script_in_order() {
    let folder = folder();
    let text = format!("#!/bin/sh\nexport LD_PRELOAD={}\nexec /bin/cat\n", library());
    let said = assert_fine(&[&written(&folder, "run", &text), "-a", "ebbmalloc"]);
    assert_eq!(said["subject"], "script");
    assert_eq!(found(&said, "note"), ["entrypoint-bypassed"], "{said:#}");
    // What `ebb fix` writes.
    let text = text.replace(".so\n", ".so${LD_PRELOAD:+:$LD_PRELOAD}\n");
    assert_fine(&[&written(&folder, "run", &text)]);
}

#[test]
fn what_keeps_a_library_from_a_scripts_program() {
    let folder = folder();
    let foreign = folder.path().join("libjemalloc.so.2");
    for_another_machine(&jemalloc(), &foreign);
    let foreign = format!("export LD_PRELOAD={}\nexec \"$@\"", foreign.display());
    let export = format!("export LD_PRELOAD={}", library());
    for (text, id, line) in [
        ("exec app".to_owned(), "not-asked", 0),
        (foreign, "wrong-architecture", 2),
        (format!("exec app\n{export}"), "preload-too-late", 3),
        (format!("app --x\n{export}\n"), "preload-too-late", 3),
        (export.replace("export ", "") + "\nexec app", "environment-dropped", 2),
        (format!("{export}\nexec env -i A=1 app"), "environment-dropped", 2),
        (format!("{export}\nexec sudo -E -u app app"), "environment-dropped", 2),
        (format!("{export}\nunset LD_PRELOAD\nexec app"), "environment-dropped", 3),
    ] {
        let path = written(&folder, "run.sh", &format!("#!/bin/sh\n{text}\n"));
        let said = assert_error(&[&path], id);
        if line > 0 {
            assert_eq!(place(&said), format!("run.sh:{line}"), "{said:#}");
        }
    }
    for kept in ["gosu app app", "su-exec app app", "env A=1 app", "setpriv --reuid=1 app"] {
        let text = format!("#!/bin/sh\n{export}\nexec {kept}\n");
        assert_fine(&[&written(&folder, "run.sh", &text)]);
    }
}

#[test]
fn what_is_not_known_of_a_script_is_said() {
    let folder = folder();
    let text = "#!/bin/sh\nexport LD_PRELOAD=\"$(find / -name libjemalloc.so.2)\"\nexec app\n";
    let (said, code) = check(&[&written(&folder, "run.sh", text)]);
    assert_eq!((found(&said, "unknown"), code), (vec!["unreadable"], 20), "{said:#}");
    let library = library();
    let text = format!("#!/bin/sh\nif x; then\n  export LD_PRELOAD={library}\nfi\nexec app\n");
    let said = assert_fine(&[&written(&folder, "run.sh", &text)]);
    assert_eq!(found(&said, "note"), ["not-asked", "entrypoint-bypassed"], "{said:#}");
    let text = format!("#!/bin/sh\r\nexport LD_PRELOAD={library}\r\nexec app\r\n");
    let said = assert_fine(&[&written(&folder, "run.sh", &text)]);
    assert_eq!(found(&said, "note"), ["entrypoint-bypassed", "line-ends"], "{said:#}");
}

#[test]
fn other_scripts_are_refused_in_one_line() {
    let folder = folder();
    let path = written(&folder, "run", "#!/usr/bin/env python3\nimport os\n");
    let refused = output(ebb().args(["check", &path]));
    assert_eq!(refused.status.code(), Some(64));
    let said = stderr(&refused);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("it is a script for python3, not for a shell"), "{said}");
}

fn on_jemalloc(name: &str, value: &str) -> (tempfile::TempDir, Running) {
    let folder = folder();
    let program = compile(&folder, "cc", "allocating", ALLOCATING, &[]);
    let running = Running::start(Command::new(program).arg("30000").env("LD_PRELOAD", jemalloc()).env(name, value));
    (folder, running)
}

#[test]
fn set_by_the_program_itself() {
    let code = "import os, sys; os.environ['MALLOC_CONF'] = 'narenas:1'; print(flush=True); sys.stdin.read()";
    let running = Running::start(Command::new("python3").args(["-c", code]).env("LD_PRELOAD", jemalloc()));
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
    let start = |text: &str| Running::start(Command::new(&program).arg("30000").env("_RJEM_MALLOC_CONF", text));
    let running = start("dirty_decay_ms:1000");
    assert_fine(&[&running.pid(), "-a", "jemalloc"]);
    let running = start("background_thread:true,dirty_decay_ms:1000");
    let said = assert_error(&[&running.pid(), "-a", "jemalloc"], "settings-unread");
    let what = said["findings"][0]["what"].as_str().unwrap();
    assert!(what.contains("has background_thread:false"), "{what}");
}
