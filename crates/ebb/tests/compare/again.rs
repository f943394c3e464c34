//! `ebb compare` against an earlier trial, and over the settings of one allocator.

use crate::workload::{ALIKE, SERVICE, SHORT, Workload, list, median};

/// The fixture with bursts that take a moment.
fn small() -> Workload {
    let env = format!("{SERVICE}\nenv = {{ BUFFERS = \"4000\" }}");
    Workload::edited(&[SHORT[0], SHORT[1], (SERVICE, &env)])
}

/// Changes what an earlier trial measured.
fn tamper(workload: &Workload, change: impl Fn(&mut serde_json::Value)) {
    let mut trial = workload.results();
    change(&mut trial);
    std::fs::write(workload.out().join("results.json"), trial.to_string()).unwrap();
}

#[test]
fn a_trial_says_what_changed_since_an_earlier_one() {
    let workload = small();
    workload.run(&format!("{ALIKE} -n 2 -o {{out}}")).expect(0, &[], &[]);

    // Variants and repetitions are those of then. Nothing but memory counts on a machine that does more.
    workload.run("--against {out} --worse-from 30").expect(
        0,
        &["Against 20", "then → now", " → ", "Nothing is worse than 20"],
        &["run 4/4: x, repetition 2"],
    );

    // Had it held a third of what it holds, this would be worse.
    tamper(&workload, |trial| {
        trial["machine"]["processors"] = 777.into();
        for run in trial["variants"][0]["runs"].as_array_mut().unwrap() {
            let measured = &mut run["measures"]["after_rest_bytes"];
            *measured = (measured.as_f64().unwrap() / 3.0).into();
        }
    });
    let worse = workload.run("--against {out} --json");
    let against = &worse.expect(16, &[], &[]).json()["against"];
    let told = against["worse"][0].as_str().unwrap();
    assert!(told.starts_with("glibc: after rest ") && told.ends_with(" % higher"), "{told}");
    let changes = &against["variants"][0]["columns"]["after_rest"];
    assert_eq!(changes["judgement"], "worse", "{changes}");
    assert!(against["machine_differs"][0].as_str().unwrap().starts_with("processors: 777 then"));

    let one_run = workload.run("--against {out} -n 1");
    one_run.expect(20, &["unclear", "the machine differs: processors"], &[]);
}

#[test]
fn another_workload_or_another_layout_is_refused_and_a_new_service_is_not() {
    let workload = small();
    let refused = |earlier: &str, words: &[&str]| {
        workload.run(&format!("--against {earlier}")).expect(64, &[], words);
    };
    workload.run("--variants glibc -n 1 -o {out}").expect(0, &[], &[]);
    workload.edit("service.py", "import json", "# changed\nimport json");
    workload.run("--against {out}").expect(20, &["one run, unclear"], &[]);
    workload.edit("load.py", "import json", "# changed\nimport json");
    let changed = ["phases, commands or load files have changed", "repeat that trial"];
    refused("{out}", &changed);
    tamper(&workload, |trial| trial["format"] = 99.into());
    refused("{out}", &["it has format 99; this ebb reads 1"]);
    std::fs::write(workload.out().join("results.json"), "{}").unwrap();
    refused("{out}", &["no results of a trial"]);
    refused("/nowhere.json", &["/nowhere.json"]);
}

#[test]
fn settings_are_tried_and_shown_best_first() {
    let finished = small().run("--tune glibc -n 1 --json");
    let trial = finished.expect(0, &[], &[]).json();
    let variants = list(&trial["variants"]);
    let names: Vec<&str> = variants.iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names[0], "glibc");
    assert_eq!(names[7..], ["glibc+PYTHONMALLOC=malloc", "glibc-arena-2+PYTHONMALLOC=malloc"]);
    let order = list(&trial["tuned"]["order"]);
    assert_eq!(order.len(), names.len());
    let held = |name| {
        let index = names.iter().position(|it| name == it).expect("a variant");
        median(&trial, index, "after_rest")
    };
    let held: Vec<f64> = order.iter().map(held).collect();
    assert!(held.is_sorted(), "{held:?}");
    let sentence = trial["tuned"]["sentence"].as_str().unwrap();
    assert!(sentence.starts_with("Settings of glibc matter: from "), "{sentence}");
    assert!(sentence.ends_with("One run, direction only."), "{sentence}");
}

#[test]
fn an_allocator_without_settings_to_try_is_refused() {
    let workload = small();
    for (line, word) in [
        ("--tune hoard", "--tune hoard: ebb knows no settings to try; known are ebbmalloc"),
        ("--tune glibc --variants glibc", "cannot be used with"),
    ] {
        workload.run(line).expect(64, &[], &[word]);
    }
}
