use super::*;

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
