//! From text to settings: what is meant, what is wrong, and who wins.

use super::*;
use std::vec::Vec;

fn ebb(text: &str) -> (Config<'_>, Problems<'_>) {
    parse(Some(text.as_bytes()), None)
}

fn clean(text: &str) -> Config<'_> {
    let (config, problems) = ebb(text);
    assert_eq!(problems.iter().count(), 0, "{text}");
    config
}

#[test]
fn nothing_set_is_the_default() {
    for (ebb, malloc) in [
        (None, None),
        (Some(b"".as_slice()), Some(b" , ,".as_slice())),
    ] {
        let (config, problems) = parse(ebb, malloc);
        assert_eq!(config, Config::DEFAULT);
        assert_eq!(problems.iter().count(), 0);
    }
}

#[test]
fn each_key_sets_its_field_alone() {
    let default = Config::DEFAULT;
    for (text, expected) in [
        (
            "purge:off",
            Config {
                purge: false,
                ..default
            },
        ),
        ("purge:off,purge:on", default),
        (
            "background_thread:false",
            Config {
                background_thread: false,
                ..default
            },
        ),
        (
            "thp:default",
            Config {
                huge_pages: true,
                ..default
            },
        ),
        ("thp:default,thp:never", default),
        (
            "stats_print:true",
            Config {
                stats_print: true,
                ..default
            },
        ),
        (
            " confirm_conf:true ,",
            Config {
                confirm_conf: true,
                ..default
            },
        ),
        (
            "dirty_decay_ms:-1",
            Config {
                idle_limit: IdleLimit::Never,
                ..default
            },
        ),
        (
            "dirty_decay_ms:0",
            Config {
                idle_limit: IdleLimit::AtMostMs(0),
                ..default
            },
        ),
        (
            "dirty_decay_ms:10000",
            Config {
                idle_limit: IdleLimit::AtMostMs(10_000),
                ..default
            },
        ),
        ("muzzy_decay_ms:5", default),
        (
            "narenas:3",
            Config {
                narenas: Some(3),
                ..default
            },
        ),
        (
            "narenas:0",
            Config {
                narenas: Some(1),
                ..default
            },
        ),
        ("narenas:3,narenas:default", default),
        (
            "memory_price:4294967296",
            Config {
                memory_price: 4 << 30,
                ..default
            },
        ),
        (
            "memory_price:512m",
            Config {
                memory_price: 512 << 20,
                ..default
            },
        ),
        ("memory_price:1K,memory_price:2G", default),
        (
            "stats_file:/run/ebb/%p",
            Config {
                stats_file: Some(b"/run/ebb/%p"),
                ..default
            },
        ),
        (
            "stats_file:/a:b",
            Config {
                stats_file: Some(b"/a:b"),
                ..default
            },
        ),
    ] {
        assert_eq!(clean(text), expected, "{text}");
    }
}

#[test]
fn values_that_mean_nothing_change_nothing_and_are_told() {
    for text in [
        "purge",
        "purge:",
        "purge:true",
        "stats_print:1",
        "confirm_conf:on",
        "background_thread:",
        "dirty_decay_ms:-2",
        "dirty_decay_ms:+2",
        "dirty_decay_ms:1s",
        "dirty_decay_ms:18446744073709551616",
        "muzzy_decay_ms:x",
        "thp:always",
        "narenas:4294967296",
        "memory_price:0",
        "memory_price:0g",
        "memory_price:g",
        "memory_price:-1",
        "memory_price:1t",
        "memory_price:18446744073709551615k",
        "narenas:\u{e4}",
        "stats_file:",
        "stats_file:relative",
        "stats_file:/run/%d",
        "stats_file:/run/%",
    ] {
        let (config, problems) = ebb(text);
        assert_eq!(config, Config::DEFAULT, "{text}");
        let told: Vec<_> = problems.iter().collect();
        let problem = Problem {
            variable: Variable::Ebb,
            fault: Fault::BadValue,
            text: text.as_bytes(),
        };
        assert_eq!(told, [problem], "{text}");
    }
}

#[test]
fn jemallocs_keys_are_silent_in_its_own_variable_only() {
    let text = b"tcache:false,prof_active:true,purge:decay,lg_tcache_max:13,stats_file:/x,typo:1";
    let (config, problems) = parse(Some(b"tcache:false"), Some(text));
    assert_eq!(config, Config::DEFAULT);
    let told: Vec<_> = problems
        .iter()
        .map(|p| (p.variable, p.fault, p.text))
        .collect();
    assert_eq!(
        told,
        [
            (
                Variable::Malloc,
                Fault::UnknownKey,
                b"stats_file:/x".as_slice()
            ),
            (Variable::Malloc, Fault::UnknownKey, b"typo:1".as_slice()),
            (Variable::Ebb, Fault::UnknownKey, b"tcache:false".as_slice()),
        ]
    );
}

#[test]
fn what_ebb_conf_says_wins() {
    let malloc = b"background_thread:true,dirty_decay_ms:5000,narenas:1,stats_print:true";
    let (config, problems) = parse(Some(b"dirty_decay_ms:100,stats_print:false"), Some(malloc));
    assert_eq!(problems.iter().count(), 0);
    let expected = Config {
        idle_limit: IdleLimit::AtMostMs(100),
        narenas: Some(1),
        ..Config::DEFAULT
    };
    assert_eq!(config, expected);
}

#[test]
fn many_problems_are_counted_beyond_the_first() {
    let (_, problems) = ebb("a,b,c,d,e,f,g,h,i,j,k");
    assert_eq!(problems.iter().count(), 8);
    assert_eq!(problems.untold(), 3);
    assert_eq!(ebb("a").1.untold(), 0);
}

#[test]
fn paths_hold_the_process_id_and_never_overflow() {
    let mut room = [0; PATH_BYTES];
    for (pattern, id, expected) in [
        ("/run/ebb/%p", 4_194_304, "/run/ebb/4194304"),
        ("/%p-%p", 0, "/0-0"),
        ("/plain", 7, "/plain"),
    ] {
        let path = expand_path(pattern.as_bytes(), id, &mut room).unwrap();
        assert_eq!(path.to_str().unwrap(), expected);
    }
    let fits = [b'/'; PATH_BYTES - 1];
    assert!(expand_path(&fits, 1, &mut room).is_some());
    assert!(expand_path(&[b'/'; PATH_BYTES], 1, &mut room).is_none());
    assert!(expand_path(b"/a\0b", 1, &mut room).is_none());
    let mut tail = fits;
    tail[PATH_BYTES - 3..].copy_from_slice(b"%p");
    assert!(expand_path(&tail, 99, &mut room).is_some());
    assert!(expand_path(&tail, 100, &mut room).is_none());
}
