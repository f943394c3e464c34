//! The example of a profile, in processes of their own: as Go's pprof reads it, and the probes in the file.

#![cfg(target_os = "linux")]

use std::process::Command;

use test_needs::needs;

#[path = "../examples/pprof.rs"]
mod example;

fn output(command: &mut Command) -> String {
    let done = command.output().expect("a program");
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{text}{}", String::from_utf8_lossy(&done.stderr));
    text
}

/// This program again, to run the example.
fn again() -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the test's own path"));
    command.args(["--exact", "the_example", "--nocapture"]).env("EXAMPLE", "1");
    command.env_remove("MALLOC_CONF").env_remove("EBB_CONF");
    command
}

#[test]
fn the_example() {
    if std::env::var_os("EXAMPLE").is_some() {
        example::main();
    }
}

#[test]
fn pprof_reads_the_bytes_and_the_build_ids() {
    needs!("golang-go");
    let file = std::env::temp_dir().join(format!("ebbmalloc-{}.pb.gz", std::process::id()));
    let conf = "profile:on,lg_prof_sample:14";
    output(again().env("EBB_CONF", conf).env("HEAP_PROFILE", &file));
    let pprof = |options: &[&str]| output(Command::new("go").args(["tool", "pprof"]).args(options).arg(&file));
    let (top, raw) = (pprof(&["-top", "-unit=mb"]), pprof(&["-raw"]));
    std::fs::remove_file(&file).expect("the file");
    let total = top.split("accounting for ").nth(1).and_then(|it| it.split("MB").next());
    let total: f64 = total.and_then(|it| it.parse().ok()).unwrap_or(0.0);
    // 20,000 blocks of 2048 bytes; pprof's MB are MiB.
    assert!(top.contains("Type: inuse_space") && (30.0..50.0).contains(&total), "{top}");
    let mappings = raw.split("Mappings").nth(1).expect("mappings");
    let own = std::env::current_exe().expect("the test's own path");
    let own = mappings.lines().find(|it| it.contains(&*own.to_string_lossy()));
    // "1: 0x.../0x.../0x... FILE BUILD-ID [FN]"
    let build_id = own.and_then(|it| it.split_whitespace().nth(3)).unwrap_or_default();
    assert!(build_id.len() == 40, "{mappings}");
}

#[test]
fn nothing_sampled_is_no_profile() {
    let text = output(&mut again());
    assert!(text.contains("nothing is sampled"), "{text}");
}

#[test]
fn a_rust_program_has_the_probes() {
    let own = std::env::current_exe().expect("the test's own path");
    let notes = output(Command::new("readelf").arg("-nW").arg(own));
    assert_eq!(notes.matches("Provider: otel_memory").count(), 2, "{notes}");
}
