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
    let set = "export LD_PRELOAD=/a.so\n";
    for (text, expected) in [
        (format!("if [ -f /a.so ]; then\n  {set}fi\nexec app\n"), vec![(2, Id::NotAsked)]),
        (
            format!("{set}if root; then\n  exec sudo -u app \"$0\"\nfi\nexec app\n"),
            vec![(3, Id::EnvironmentDropped)],
        ),
        (format!("{set}if root; then\n  exec gosu app \"$0\"\nfi\nexec app\n"), vec![]),
    ] {
        let remarks = script(&text).service.remarks.into_iter();
        let notes = remarks.filter(|it| it.is_note && it.id != Id::EntrypointBypassed);
        assert_eq!(notes.map(|it| (it.line, it.id)).collect::<Vec<_>>(), expected, "{text}");
        assert_eq!(preload(&text).as_deref(), Some("/a.so"));
    }
}

#[test]
fn the_program_is_the_first_exec_or_the_last_command() {
    for (text, words) in [
        ("a\nexec 2>&1\nexec b 'c d'\ne\n", "exec|b|c d"),
        ("a\nb c\ncd /\nexit 1\n", "b|c"),
        ("if x; then exec y; fi\nexec \"$@\"\n", "exec|$@"),
    ] {
        assert_eq!(script(text).service.start.unwrap().words.join("|"), words, "{text}");
    }
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
    for shell in
        ["/bin/sh -e", " /usr/bin/env bash", "/usr/bin/with-contenv bash", "/bin/busybox sh"]
    {
        assert!(Script::parse(Path::new("x"), &format!("#!{shell}\n")).is_ok(), "{shell}");
    }
}

#[test]
fn the_top_is_the_comment_and_the_options() {
    for (head, rest) in [
        ("#!/bin/sh\nset -e\n", "\nexec a\n"),
        ("#!/bin/sh\n# b\n#\n", "\n# c\nexec a\n"),
        ("#!/bin/sh\n\n# b\nset -eu # c\nset -o pipefail\n", "exec a"),
        ("#!/bin/sh\n", "set -- a\nexec a\n"),
        ("#!/bin/sh\n", "set -e; a\n"),
        ("", "exec a\n"),
        ("#!/bin/sh", ""),
    ] {
        assert_eq!(top(&format!("{head}{rest}")), head.len(), "{head}{rest}");
    }
}
