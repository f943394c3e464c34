use super::*;

fn script(text: &str) -> Script {
    Script::parse(Path::new("/d/run.sh"), text).unwrap()
}

/// The value that the program gets.
fn preload(text: &str) -> Option<String> {
    let service = script(text).service;
    service.variable("LD_PRELOAD")?.value.clone()
}

/// The results that stand in the way, by line.
fn errors(text: &str) -> Vec<(usize, Id)> {
    let remarks = script(text).service.remarks.into_iter();
    let errors = remarks.filter(|it| !it.is_note);
    errors.map(|it| (it.line, it.id)).collect()
}

#[test]
fn exported_variables_are_those_of_the_program() {
    for text in [
        "#!/bin/sh\nexport LD_PRELOAD=/a.so\nexec app\n",
        "#!/bin/sh\nLD_PRELOAD=/a.so\nexport A=1 LD_PRELOAD\napp\n",
        "#!/bin/bash\ndeclare -x LD_PRELOAD='/a.so'\napp\n",
        "#!/bin/sh\nset -ae\nLD_PRELOAD=/a.so\napp\n",
        "export LD_PRELOAD=\"/a.so\" && exec app",
        "export LD_PRELOAD=/a.so${LD_PRELOAD:+:$LD_PRELOAD}\nf() { exec \"$@\"; }\nf app\n",
        "cat <<E\nexport LD_PRELOAD=/b.so\nE\n# export LD_PRELOAD=/c.so\nexport LD_PRELOAD=/a.so\nexec app\n",
    ] {
        assert_eq!(preload(text).as_deref(), Some("/a.so"), "{text}");
        assert_eq!(errors(text), [], "{text}");
    }
    let twice = "export LD_PRELOAD=/a.so\nexport LD_PRELOAD=\"/b.so:$LD_PRELOAD\"\nexec app\n";
    assert_eq!(preload(twice).as_deref(), Some("/b.so:/a.so"));
}

#[test]
fn what_comes_too_late_or_is_dropped_is_an_error() {
    for (text, line, id) in [
        ("exec app\nexport LD_PRELOAD=/a.so\n", 2, Id::PreloadTooLate),
        ("app --x\nexport LD_PRELOAD=/a.so\nexit 0\n", 2, Id::PreloadTooLate),
        ("LD_PRELOAD=/a.so\nexec app\n", 1, Id::EnvironmentDropped),
        ("export LD_PRELOAD=/a.so\nunset A LD_PRELOAD\nexec app\n", 2, Id::EnvironmentDropped),
    ] {
        assert_eq!(errors(text), [(line, id)], "{text}");
    }
    // An earlier program is not the service.
    let text = "mkdir -p /d\nexport LD_PRELOAD=/a.so\nexec app\n";
    assert_eq!(errors(text), []);
}

#[test]
fn conditions_are_notes() {
    let notes = |text: &str| {
        let remarks = script(text).service.remarks.into_iter();
        let notes = remarks.filter(|it| it.is_note && it.id != Id::EntrypointBypassed);
        notes.map(|it| (it.line, it.id)).collect::<Vec<_>>()
    };
    let text = "if [ -f /a.so ]; then\n  export LD_PRELOAD=/a.so\nfi\nexec app\n";
    assert_eq!(notes(text), [(2, Id::NotAsked)]);
    assert_eq!(preload(text).as_deref(), Some("/a.so"));
    let text = "export LD_PRELOAD=/a.so\nif root; then\n  exec sudo -u app \"$0\"\nfi\nexec app\n";
    assert_eq!(notes(text), [(3, Id::EnvironmentDropped)]);
    let text = "export LD_PRELOAD=/a.so\nif root; then\n  exec gosu app \"$0\"\nfi\nexec app\n";
    assert_eq!(notes(text), []);
}

#[test]
fn the_program_is_the_first_exec_or_the_last_command() {
    let words = |text: &str| script(text).service.start.unwrap().words;
    assert_eq!(words("a\nexec 2>&1\nexec b 'c d'\ne\n"), ["exec", "b", "c d"]);
    assert_eq!(words("a\nb c\ncd /\nexit 1\n"), ["b", "c"]);
    assert_eq!(words("if x; then exec y; fi\nexec \"$@\"\n"), ["exec", "$@"]);
}

#[test]
fn scripts_of_others_are_named() {
    for (line, who) in [
        ("#!/usr/bin/env python3", "python3"),
        ("#!/usr/bin/env -S node --x", "node"),
        ("#!/usr/bin/perl -w", "perl"),
        ("#!/usr/bin/fish", "fish"),
    ] {
        let why = Script::parse(Path::new("x"), &format!("{line}\n")).unwrap_err();
        assert!(why.contains(who), "{why}");
    }
    for line in [
        "#!/bin/sh -e",
        "#! /usr/bin/env bash",
        "#!/usr/bin/with-contenv bash",
        "#!/bin/busybox sh",
    ] {
        assert!(Script::parse(Path::new("x"), &format!("{line}\n")).is_ok(), "{line}");
    }
}

#[test]
fn the_top_is_the_comment_and_the_options() {
    let rest = |text: &str| text[top(text)..].to_owned();
    assert_eq!(rest("#!/bin/sh\nset -e\n\nexec a\n"), "\nexec a\n");
    assert_eq!(rest("#!/bin/sh\n# b\n#\n\n# c\nexec a\n"), "\n# c\nexec a\n");
    assert_eq!(rest("#!/bin/sh\n\n# b\nset -eu # c\nset -o pipefail\nexec a"), "exec a");
    assert_eq!(rest("#!/bin/sh\nset -- a\nexec a\n"), "set -- a\nexec a\n");
    assert_eq!(rest("#!/bin/sh\nset -e; a\n"), "set -e; a\n");
    assert_eq!(rest("exec a\n"), "exec a\n");
    assert_eq!(rest("#!/bin/sh"), "");
}
