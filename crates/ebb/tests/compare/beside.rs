//! A variant with a shared object beside its allocator: the floor of `workloads/floor`, a reference.

use crate::MB;
use crate::bench::{Edited, results, run};
use crate::trials::after_rest;
use std::path::PathBuf;
use std::process::Command;

/// The object, built as a workload's setup does it.
fn floor() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../workloads/floor");
    let built = Command::new(folder.join("build.sh")).status().unwrap();
    assert!(built.success());
    folder.join("floor.so")
}

/// The fixture with such a variant, `beside` as its object; the rest has room for several trims.
fn edited(beside: &str, change: (&str, &str)) -> Edited {
    let variant = format!(
        "[variants.floor]\nallocator = \"glibc\"\nbeside = \"{beside}\"\n\
         env = {{ MALLOC_ARENA_MAX = \"1\" }}\n\n[variants.missing]"
    );
    Edited::new(&[("[variants.missing]", variant.as_str()), ("rest_s = 0.6", "rest_s = 2"), change])
}

#[test]
fn the_floor_holds_least_and_is_never_recommended() {
    let output = tempfile::tempdir().unwrap();
    let folder = output.path().to_str().unwrap();
    let workload = edited(floor().to_str().unwrap(), ("[profile.dies]", "[profile.dies]"));
    let variants = ["--variants", "glibc,floor,jemalloc-now", "-n", "1", "-o", folder];
    run(workload.path(), &variants).expect(0, &["Verdict: jemalloc-now holds"], &[]);
    let trial = results(output.path());
    let [glibc, floor] = [0, 1].map(|index| after_rest(&trial["variants"][index]));
    assert!(glibc > floor + 25.0, "{glibc} {floor}");
    let reclaimable =
        trial["variants"][1]["summary"]["figures"]["reclaimable"]["median"].as_f64().unwrap();
    assert!(reclaimable.abs() < 5.0 * MB, "nothing is left for a trim: {reclaimable}");
    let markdown = std::fs::read_to_string(output.path().join("report.md")).unwrap();
    assert!(markdown.contains("floor.so"), "{markdown}");
}

#[test]
fn without_its_object_such_a_variant_is_not_run_or_discarded() {
    let plain = ("[profile.dies]", "[profile.dies]");
    let arguments = ["--variants", "glibc,floor", "-n", "1"];
    let gone = edited("{workload}/nowhere.so", plain);
    run(gone.path(), &arguments).expect(
        20,
        &["! floor: not run: ", "nowhere.so, which is preloaded with the allocator: No such file"],
        &[],
    );
    let unset = (
        "[\"python3\", \"service.py\", \"{port}\"]",
        "[\"env\", \"-u\", \"LD_PRELOAD\", \"python3\", \"service.py\", \"{port}\"]",
    );
    let unset = edited(floor().to_str().unwrap(), unset);
    run(unset.path(), &arguments).expect(
        20,
        &["! floor: run 1 discarded: process", "runs without"],
        &[],
    );
}
