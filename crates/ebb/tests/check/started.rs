//! Files that start a service on this machine: supervisor's configuration and scripts.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::*;
use crate::{assert_error, assert_fine, check, for_another_machine, found};

/// A file with this text, and its path.
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
        let text = format!(
            "[program:a]\ncommand={command}\nuser=nobody\nenvironment=LD_PRELOAD=\"{preload}\"\n"
        );
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
