//! One example in all renderings.

use ebb_process::profile::{Growth, Location, Profile, Stack, Sum};
use ebb_process::symbols::Line;
use serde_json::{Value, json};

use super::*;

/// Two stacks below `main`: one leaks, one allocates and frees. `main` calls itself.
fn example(leaked: f64) -> Profile {
    let location = |name: &str| Location {
        lines: vec![Line { function: name.to_owned(), file: Some("/src/a.c".into()), line: 3 }],
        ..Location::default()
    };
    let sum = |bytes| Sum { bytes, objects: bytes / 100.0 };
    Profile {
        title: "service (7)".to_owned(),
        seconds: Some(60.0),
        interval: 1 << 19,
        heap: Some(500_000_000),
        stacks: vec![
            Stack { locations: vec![0, 1, 3, 3], allocated: sum(leaked), live: sum(leaked), growth: None },
            Stack { locations: vec![2, 3, 3], allocated: sum(9e8), live: sum(1e6), growth: None },
        ],
        locations: ["operator new(unsigned long)", "leak", "churn;x", "main"].map(location).into(),
        ..Profile::default()
    }
}

#[test]
fn the_leak_is_the_first_row_and_the_first_stack() {
    let text = render(&example(5e7), Shown::Live, 80);
    assert!(text.starts_with("service (7): 950.0 MB ±"), "{text}");
    assert!(text.contains("live heap 500.0 MB: 449.0 MB are from before the profile"), "{text}");
    let rows: Vec<&str> = text.lines().skip_while(|it| !it.contains("function")).collect();
    assert!(rows[1].ends_with(" leak a.c:3"), "{text}");
    assert!(!rows.iter().any(|row| row.starts_with(' ') && row.ends_with(" main a.c:3") && row.len() > 50), "{text}");
    assert!(text.contains("blocks, from\n  leak a.c:3\n  main a.c:3\n"), "{text}");
    let text = render(&example(5e7), Shown::Allocated, 80);
    assert!(text.lines().nth(4).is_some_and(|row| row.ends_with("churn;x a.c:3")), "{text}");
}

#[test]
fn a_small_leak_comes_before_a_large_cache_that_is_full() {
    let mut profile = example(5e6);
    let growth = |bytes: f64, error: f64| Some(Growth { bytes, variance: error * error });
    profile.stacks[0].growth = growth(2e6, 0.5e6);
    profile.stacks[1].live.bytes = 400e6;
    profile.stacks[1].growth = growth(30e6, 20e6);
    let text = render(&profile, Shown::Live, 80);
    let rows: Vec<&str> = text.lines().skip_while(|it| !it.contains("function")).collect();
    assert!(rows[1].contains("+2.00    0.50  leak"), "{text}");
    assert!(text.contains("1 function surely grew"), "{text}");
    assert!(text.contains("blocks, from\n  leak a.c:3\n"), "{text}");
}

#[test]
fn formats_of_other_tools_have_every_stack() {
    let profile = example(5e7);
    let text = folded(&profile, Shown::Live);
    assert_eq!(text, "main;main;churn:x 1000000\nmain;main;leak;operator new(unsigned long) 50000000\n");
    let file: Value = serde_json::from_str(&speedscope(&profile).unwrap()).unwrap();
    let live = &file["profiles"][0];
    assert_eq!((&live["endValue"], live["samples"].as_array().unwrap().len()), (&json!(51_000_000), 2));
    assert!(tree(&profile, Shown::Live, 80).contains("50.0 MB  98.0 %   leak a.c:3"));
    let page = page(&example(5e7)).unwrap();
    assert!(page.contains("\"leak a.c:3\"") && !page.contains("://"), "{page}");
}

#[test]
fn only_what_is_more_than_noise_has_changed() {
    let (before, after) = (example(5e7), example(9e7));
    let found = changes(&before, &after);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].bytes, found[0].frames[0].as_str()), (4e7, "leak"));
    assert_eq!(changes(&before, &example(5.5e7)).len(), 0);
    assert!(render_changes(&before, &before, 5, 80).contains("no stack grew"));
    assert!(render_changes(&before, &after, 5, 80).contains("+40.0 MB ±"));
}
