//! EBB_CONF as a user meets it: what it switches, and what it prints on stderr.

use crate::harness::{Outcome, Run};

fn settings(conf: &str, wait_ms: &str) -> Outcome {
    Run::program("returns held").arg(wait_ms).env("EBB_CONF", conf).run().passed()
}

/// MiB still held, as the program says.
fn held(outcome: &Outcome) -> u32 {
    outcome
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("held "))
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("{}", outcome.describe()))
}

#[test]
fn nothing_is_printed_unasked() {
    let outcome = settings("", "0");
    assert_eq!(outcome.stderr, "", "{}", outcome.describe());
}

#[test]
fn confirm_conf_prints_version_settings_and_mechanisms() {
    let outcome = settings("confirm_conf:true", "0");
    for part in ["ebbmalloc", env!("CARGO_PKG_VERSION"), "purge", "membarrier"] {
        assert!(outcome.stderr.contains(part), "{part}: {}", outcome.describe());
    }
}

#[test]
fn stats_print_writes_at_exit() {
    let outcome = settings("stats_print:true", "0");
    assert!(
        outcome.stderr.lines().count() > 3 && outcome.stderr.contains("resident"),
        "{}",
        outcome.describe()
    );
}

#[test]
fn purge_off_keeps_what_purge_on_returns() {
    let kept = held(&settings("purge:off", "4000"));
    let returned = held(&settings("purge:on", "4000"));
    assert!(kept >= 40, "{kept} MiB held with purge:off");
    assert!(returned <= 6, "{returned} MiB held with purge:on");
}

/// jemalloc's -1 means never.
#[test]
fn decay_of_minus_one_never_returns() {
    let kept = held(&settings("dirty_decay_ms:-1", "3000"));
    assert!(kept >= 40, "{kept} MiB held");
}

#[test]
fn malloc_conf_is_read_and_ebb_conf_wins() {
    let run = |ebb: Option<&str>| {
        let run = Run::program("returns held 4000")
            .env("MALLOC_CONF", "dirty_decay_ms:-1,background_thread:true");
        let run = match ebb {
            Some(conf) => run.env("EBB_CONF", conf),
            None => run,
        };
        held(&run.run().passed())
    };
    let kept = run(None);
    assert!(kept >= 40, "{kept} MiB held under MALLOC_CONF alone");
    let returned = run(Some("dirty_decay_ms:1000"));
    assert!(returned <= 6, "{returned} MiB held with EBB_CONF beside it");
}

#[test]
fn unknown_key_warns_once_and_the_program_runs() {
    let outcome = settings("no_such_key:1,purge:on", "0");
    let lines: Vec<_> = outcome.stderr.lines().collect();
    assert_eq!(lines.len(), 1, "{}", outcome.describe());
    assert!(lines[0].contains("no_such_key"), "{}", outcome.describe());
}
