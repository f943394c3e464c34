//! `ebb compare` against an earlier trial, over the settings of one allocator, and over those of glibc: which help, which are placebos
//! and why, and what one malloc_trim would do.

use crate::MB;
use crate::harness::Finished;
use crate::workload::{ALIKE, SERVICE, SHORT, Workload, ebb, list, median};

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

/// A longer rest, and one burst.
const CALM: [(&str, &str); 2] = [("rest_s = 0.6", "rest_s = 1.5"), ("bursts = 2", "bursts = 1")];

#[test]
fn settings_are_placebos_where_live_blocks_pin_the_top() {
    // Every fiftieth buffer is kept, the last of them near the top.
    let workload = Workload::edited(&CALM);
    let variants = "glibc,glibc-trim-64k,glibc-trim-64k-arena-2";
    let finished = workload.run(&format!("--variants {variants} -n 2 -o {{out}}"));
    let sentence = "glibc-trim-64k and glibc-trim-64k-arena-2 are placebos here, with no real difference to glibc after the \
                    rest: its automatic trim returns only the top of an arena larger than";
    finished.expect(0, &[sentence, "lie between live blocks", "What remains: "], &[]);
    let trial = workload.results();
    let free = &trial["placebos"]["free"];
    let [top, inside] = ["top_bytes", "inside_bytes"].map(|part| free[part].as_f64().unwrap() / MB);
    assert!(inside > 25.0 && top < 0.2 * inside, "{free}");
    assert_eq!(free["arenas"], 1);
    for run in list(&trial["variants"][1]["runs"]) {
        assert_eq!(run["free"]["trim_threshold_bytes"], 65536, "{}", run["free"]);
    }
    let remains = &trial["remains"];
    let [peak, margin, enough] =
        ["peak_bytes", "margin_bytes", "enough_bytes"].map(|part| remains[part].as_u64().unwrap());
    assert!(margin >= peak / 10 && peak + margin - enough <= 1, "{remains}");
    for file in ["report.md", "report.html"] {
        workload.assert_written(file, &["are placebos here", "What remains: "]);
    }
}

#[test]
fn a_setting_that_helps_is_recommended_and_no_placebo() {
    let workload = Workload::edited(&CALM);
    // A large block that is freed raises the trim threshold to twice its size; then nothing is kept above the free memory.
    workload.edit(
        "service.py",
        "    kept[:] = buffers[::50]\n    return sum(map(len, buffers))",
        "    kept[:] = []\n    size = sum(map(len, buffers))\n    buffers.clear()\n    return size",
    );
    workload.edit("service.py", "    rng = random", "    bytearray(30 << 20)\n    rng = random");
    let finished = workload.run("--variants glibc,glibc-trim-64k -n 2 -o {out}");
    finished.expect(0, &["Verdict: glibc-trim-64k holds", "glibc-trim-64k needs a limit of"], &[]);
    let trial = workload.results();
    assert!(trial["placebos"].is_null(), "{}", trial["placebos"]);
    let [plain, trimmed] = [0, 1].map(|index| median(&trial, index, "after_rest") / MB);
    assert!(plain > trimmed + 25.0, "{plain} {trimmed}");
    let free = &trial["variants"][0]["runs"][0]["free"];
    let top = free["top_bytes"].as_f64().unwrap() / MB;
    assert!(top > 25.0 && free["trim_threshold_bytes"].as_f64().unwrap() / MB > top, "{free}");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn one_trim_from_outside_shows_what_it_returns_and_is_never_recommended() {
    let workload = Workload::edited(&CALM);
    let finished = workload.run("--variants glibc,glibc+trim-once -n 2 -o {out}");
    finished.expect(20, &["Verdict: Not enough evidence: "], &[]);
    let trial = workload.results();
    let [plain, trimmed] = [0, 1].map(|index| median(&trial, index, "after_rest") / MB);
    assert!(plain > trimmed + 25.0, "{plain} {trimmed}");
    assert_eq!(trial["variants"][1]["trim_once"], true);
    assert!(trial["variants"][0].get("trim_once").is_none());
}

#[test]
fn the_known_variants_are_listed_with_their_settings() {
    let listed = Finished::by(&mut ebb("compare --list-variants"));
    listed.expect(
        0,
        &[
            "glibc-trim-64k          MALLOC_TRIM_THRESHOLD_=65536\n",
            "glibc-trim-4m           MALLOC_TRIM_THRESHOLD_=4194304\n",
            "glibc-arena-2           MALLOC_ARENA_MAX=2\n",
            "glibc-trim-64k-arena-2  MALLOC_ARENA_MAX=2 MALLOC_TRIM_THRESHOLD_=65536\n",
            "glibc+trim-once         malloc_trim(0) is called once from outside",
            "jemalloc-1000           MALLOC_CONF=background_thread:true,dirty_decay_ms:1000,",
            "jemalloc-5000           ",
            "jemalloc-10000          ",
            "jemalloc-arena-1        MALLOC_CONF=narenas:1\n",
            "jemalloc-no-tcache      MALLOC_CONF=tcache:false\n",
        ],
        &[],
    );
}
