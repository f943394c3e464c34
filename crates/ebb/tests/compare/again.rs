//! `ebb compare` against an earlier trial, and over the settings of one allocator.
//!
//! On the service of `fixtures/bursts`. Needs python3.

use crate::bench::{Edited, results, run};
use std::path::Path;

/// The line of the fixture that an environment is added to.
const SERVICE: &str = "command = [\"python3\", \"service.py\", \"{port}\"]";

/// The fixture with bursts that take a moment.
fn small() -> Edited {
    Edited::new(&[
        ("rest_s = 0.6", "rest_s = 0.2"),
        ("bursts = 2", "bursts = 1"),
        (SERVICE, &format!("{SERVICE}\nenv = {{ BUFFERS = \"4000\" }}")),
    ])
}

/// Changes what an earlier trial measured.
fn tamper(folder: &Path, change: impl Fn(&mut serde_json::Value)) {
    let mut trial = results(folder);
    change(&mut trial);
    std::fs::write(folder.join("results.json"), trial.to_string()).unwrap();
}

#[test]
fn a_trial_says_what_changed_since_an_earlier_one() {
    let (workload, folder) = (small(), tempfile::tempdir().unwrap());
    let earlier = folder.path().to_str().unwrap();
    let variants = "glibc,x=glibc+MALLOC_ARENA_MAX=1";
    run(workload.path(), &["--variants", variants, "-n", "2", "-o", earlier]).expect(0, &[], &[]);

    // Variants and repetitions are those of then. Nothing but memory counts on a machine that does more.
    let again = run(workload.path(), &["--against", earlier, "--worse-from", "30"]);
    again.expect(
        0,
        &["Against 20", "then → now", " → ", "Nothing is worse than 20"],
        &["run 4/4: x, repetition 2"],
    );

    // Had it held a third of what it holds, this would be worse.
    tamper(folder.path(), |trial| {
        trial["machine"]["processors"] = 777.into();
        for run in trial["variants"][0]["runs"].as_array_mut().unwrap() {
            let measured = &mut run["measures"]["after_rest_bytes"];
            *measured = (measured.as_f64().unwrap() / 3.0).into();
        }
    });
    let worse = run(workload.path(), &["--against", earlier, "--json"]);
    worse.expect(16, &[], &[]);
    let trial: serde_json::Value = serde_json::from_str(&worse.stdout).unwrap();
    let against = &trial["against"];
    let told = against["worse"][0].as_str().unwrap();
    assert!(told.starts_with("glibc: after rest ") && told.ends_with(" % higher"), "{told}");
    let changes = &against["variants"][0]["columns"]["after_rest"];
    assert_eq!(changes["judgement"], "worse", "{changes}");
    assert!(against["machine_differs"][0].as_str().unwrap().starts_with("processors: 777 then"));

    let one_run = run(workload.path(), &["--against", earlier, "-n", "1"]);
    one_run.expect(20, &["unclear", "the machine differs: processors"], &[]);
}

#[test]
fn another_workload_or_another_layout_is_refused() {
    let (workload, folder) = (small(), tempfile::tempdir().unwrap());
    let earlier = folder.path().to_str().unwrap();
    run(workload.path(), &["--variants", "glibc", "-n", "1", "-o", earlier]).expect(0, &[], &[]);
    let text = std::fs::read_to_string(workload.path().join("load.py")).unwrap();
    std::fs::write(workload.path().join("load.py"), text + "# changed\n").unwrap();
    run(workload.path(), &["--against", earlier]).expect(
        64,
        &[],
        &["phases, commands or load files have changed", "repeat that trial"],
    );
    tamper(folder.path(), |trial| trial["format"] = 99.into());
    run(workload.path(), &["--against", earlier]).expect(
        64,
        &[],
        &["it has format 99; this ebb reads 1"],
    );
    std::fs::write(folder.path().join("results.json"), "{}").unwrap();
    run(workload.path(), &["--against", earlier]).expect(64, &[], &["no results of a trial"]);
    run(workload.path(), &["--against", "/nowhere.json"]).expect(64, &[], &["/nowhere.json"]);
}

#[test]
fn a_services_new_version_is_no_other_workload() {
    let (workload, folder) = (small(), tempfile::tempdir().unwrap());
    let earlier = folder.path().to_str().unwrap();
    run(workload.path(), &["--variants", "glibc", "-n", "1", "-o", earlier]).expect(0, &[], &[]);
    let text = std::fs::read_to_string(workload.path().join("service.py")).unwrap();
    std::fs::write(workload.path().join("service.py"), text + "# changed\n").unwrap();
    run(workload.path(), &["--against", earlier]).expect(20, &["one run, unclear"], &[]);
}

#[test]
fn settings_are_tried_and_shown_best_first() {
    let workload = small();
    let finished = run(workload.path(), &["--tune", "glibc", "-n", "1", "--json"]);
    finished.expect(0, &[], &[]);
    let trial: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
    let names: Vec<&str> = trial["variants"]
        .as_array()
        .unwrap()
        .iter()
        .map(|variant| variant["name"].as_str().unwrap())
        .collect();
    assert_eq!(names[0], "glibc");
    assert_eq!(names[5..], ["glibc+PYTHONMALLOC=malloc", "glibc-arena2+PYTHONMALLOC=malloc"]);
    let order = trial["tuned"]["order"].as_array().unwrap();
    assert_eq!(order.len(), names.len());
    let held = |name: &str| {
        let variants = trial["variants"].as_array().unwrap();
        let variant = variants.iter().find(|variant| variant["name"] == name).unwrap();
        variant["summary"]["figures"]["after_rest"]["median"].as_f64().unwrap()
    };
    let held: Vec<f64> = order.iter().map(|name| held(name.as_str().unwrap())).collect();
    assert!(held.is_sorted(), "{held:?}");
    let sentence = trial["tuned"]["sentence"].as_str().unwrap();
    assert!(sentence.starts_with("Settings of glibc matter: from "), "{sentence}");
    assert!(sentence.ends_with("One run, direction only."), "{sentence}");
}

#[test]
fn an_allocator_without_settings_to_try_is_refused() {
    run(small().path(), &["--tune", "hoard"]).expect(
        64,
        &[],
        &["--tune hoard: ebb knows no settings to try; known are ebbmalloc"],
    );
    run(small().path(), &["--tune", "glibc", "--variants", "glibc"]).expect(
        64,
        &[],
        &["cannot be used with"],
    );
}
