//! Settings of glibc's malloc in a trial: which help, which are placebos and why, and what one malloc_trim would do.

use crate::MB;
use crate::harness::Finished;
use crate::workload::{Workload, ebb, list, median};

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
