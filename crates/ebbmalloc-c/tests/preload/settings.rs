//! Settings as a user meets them, ebbmalloc's and jemalloc's: each changes what can be seen from outside.

use crate::harness::{Flavour, Outcome, Run, program, program_with};

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
    assert!(outcome.stderr.lines().count() > 3 && outcome.stderr.contains("resident"), "{}", outcome.describe());
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
        let run = Run::program("returns held 4000").env("MALLOC_CONF", "dirty_decay_ms:-1,background_thread:true");
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

fn run(conf: &str, what: &str) -> Outcome {
    Run::program("figures").env("MALLOC_CONF", conf).arg(what).run()
}

fn figure(conf: &str, what: &str, name: &str) -> usize {
    let outcome = run(conf, what).passed();
    let line = outcome.stdout.lines().find_map(|line| {
        let (said, value) = line.split_once(' ')?;
        (said == name).then(|| value.parse().ok())?
    });
    line.unwrap_or_else(|| panic!("{name}: {}", outcome.describe()))
}

/// The program ended by SIGABRT, after a line that names `setting`.
fn aborts(conf: &str, what: &str, setting: &str) {
    let outcome = run(conf, what);
    let status = outcome.status.expect("it ended");
    assert!(!status.success(), "{}", outcome.describe());
    assert!(outcome.stderr.contains(setting), "{}", outcome.describe());
    assert!(outcome.stderr.contains("aborting"), "{}", outcome.describe());
}

#[test]
fn abort_conf_ends_the_process_for_a_wrong_setting() {
    aborts("abort_conf:true,narena:1", "much", "did you mean narenas?");
    aborts("narenas:x,abort_conf:true", "much", "abort_conf");
    let outcome = run("abort_conf:true,narenas:1,experimental_no_such:1", "much").passed();
    assert!(outcome.stderr.contains("experimental_no_such"), "{}", outcome.describe());
}

/// How often a tree of processes reports the wrong setting of its environment.
fn reports(run: Run, conf: &str) -> usize {
    let outcome = run.env("EBB_CONF", conf).run().succeeded();
    outcome.stderr.matches("did you mean narenas?").count()
}

/// A shell that runs `script`; it does not become the last command.
fn shell(script: &str) -> Run {
    Run::preloaded("sh").arg("-c").arg(format!("{script}; :"))
}

#[test]
fn a_wrong_setting_is_reported_once_for_a_tree() {
    const FIVE: &str = "for i in 1 2 3 4 5; do sh -c :; done";
    assert_eq!(reports(shell(FIVE), "narena:1"), 1);
    assert_eq!(reports(shell(&format!("sh -c '{FIVE}; :'")), "narena:1"), 1);
    assert_eq!(reports(shell(FIVE), "narena:1,confirm_conf:true"), 6);
}

#[test]
fn a_process_reports_a_wrong_setting_that_its_parent_has_not_seen() {
    let set = "EBB_CONF=narena:1 sh -c :; EBB_CONF=narena:2 sh -c :";
    assert_eq!(reports(shell(set), "narenas:1"), 2);
    // The same text with another list of libraries.
    let other = "LD_PRELOAD=\"$LD_PRELOAD:\" sh -c :; sh -c :";
    assert_eq!(reports(shell(other), "narena:1"), 2);
    // A parent without a loader has the variables and not the library.
    let launch = program_with("launch", Flavour::Plain, &["-static"]);
    let launched = Run::preloaded(launch).args(["/bin/sh", "-c", ":"]);
    assert_eq!(reports(launched, "narena:1"), 1);
}

#[test]
fn confirm_conf_says_what_was_set_and_what_has_no_counterpart() {
    let outcome = run("confirm_conf:true,narenas:1,utrace:false", "much").passed();
    for line in ["MALLOC_CONF: set: narenas:1", "MALLOC_CONF: set: utrace:false (no counterpart here)"] {
        assert!(outcome.stderr.contains(line), "{}", outcome.describe());
    }
    assert_eq!(run("utrace:false", "much").passed().stderr, "");
}

#[test]
fn tcache_false_keeps_nothing_in_caches() {
    assert!(figure("", "caches", "cached") > 100 * 48);
    assert_eq!(figure("tcache:false", "caches", "cached"), 0);
}

#[test]
fn tcache_max_bounds_what_caches_keep() {
    assert_eq!(figure("", "caches", "most"), 64 << 10);
    for conf in ["tcache_max:1024", "lg_tcache_max:10"] {
        assert_eq!(figure(conf, "caches", "most"), 1024, "{conf}");
        let cached = figure(conf, "caches", "cached");
        assert!((100 * 48..20_000).contains(&cached), "{conf}: {cached}");
    }
    assert_eq!(figure("tcache_max:0", "caches", "cached"), 0);
}

#[test]
fn oversize_blocks_go_at_once() {
    const BLOCK: usize = 20 << 20;
    assert!(figure("", "oversize", "resident") > BLOCK);
    assert!(figure("oversize_threshold:0", "oversize", "resident") > BLOCK);
    assert!(figure("oversize_threshold:30000000", "oversize", "resident") > BLOCK);
    assert!(figure("oversize_threshold:1000000", "oversize", "resident") < BLOCK / 8);
}

#[test]
fn a_decay_of_zero_returns_at_once() {
    const BYTES: usize = 20 << 20;
    for what in ["oversize", "crumbs"] {
        assert!(figure("", what, "resident") > BYTES / 2, "{what}");
        for conf in ["dirty_decay_ms:0", "dirty_decay_ms:0,background_thread:false"] {
            let resident = figure(conf, what, "resident");
            assert!(resident < BYTES / 8, "{what} {conf}: {resident}");
        }
        assert!(figure("dirty_decay_ms:0,purge:off", what, "resident") > BYTES / 2);
    }
}

#[test]
fn retain_false_gives_addresses_back() {
    assert!(figure("", "retained", "retained") > 16 << 20);
    assert!(figure("retain:false", "retained", "retained") < 4 << 20);
}

#[test]
fn resident_is_what_the_kernel_says() {
    let outcome = run("", "truth").passed();
    let said = |name: &str| -> usize {
        let mut values = outcome.stdout.lines().filter_map(|line| line.strip_prefix(name));
        values.next().unwrap().trim().parse().unwrap()
    };
    let (ours, kernels) = (said("ours"), said("kernels"));
    assert!(kernels > 20 << 20, "{}", outcome.describe());
    assert!(ours.abs_diff(kernels) * 50 <= kernels, "{}", outcome.describe());
}

#[test]
fn narenas_and_its_ratio_bound_the_arenas() {
    assert_eq!(figure("narenas:1", "arenas", "arenas"), 1);
    assert_eq!(figure("narenas:3", "arenas", "arenas"), 3);
    assert_eq!(figure("narenas_ratio:0.001", "arenas", "arenas"), 1);
}

#[test]
fn percpu_arena_takes_the_processors_arena() {
    let last = std::thread::available_parallelism().unwrap().get() - 1;
    if last == 0 {
        return;
    }
    let arenas = format!("narenas:{}", last + 1);
    let pinned = |conf: &str| {
        let program = program("figures", Flavour::Plain);
        let outcome = Run::preloaded("taskset")
            .env("MALLOC_CONF", conf)
            .arg("-c")
            .arg(last.to_string())
            .arg(program)
            .arg("arenas")
            .run()
            .passed();
        assert!(outcome.stdout.contains("own "), "{}", outcome.describe());
        outcome.stdout.contains(&format!("own {}", last % 8))
    };
    assert!(pinned(&format!("percpu_arena:percpu,{arenas}")));
    assert!(!pinned(&arenas), "without it the first thread is on the first arena");
}

#[test]
fn a_price_of_memory_changes_the_delay() {
    let delay = |conf: &str| figure(conf, "delay", "delay");
    assert!(delay("memory_price:1m") < delay(""));
    assert!(delay("memory_price:64g") > delay(""));
    assert_eq!(delay("dirty_decay_ms:100"), 100);
}

#[test]
fn thp_and_metadata_thp_show_in_the_mappings() {
    for (conf, name, expected) in [
        ("", "refused", 1),
        ("thp:default", "refused", 0),
        ("thp:default", "wanted", 0),
        ("thp:always", "wanted", 1),
        ("thp:never", "refused", 1),
        ("", "metadata_refused", 1),
        ("metadata_thp:auto", "metadata_refused", 0),
        ("metadata_thp:always", "metadata_wanted", 1),
    ] {
        assert_eq!(figure(conf, "huge", name), expected, "{conf} {name}");
    }
}

#[test]
fn xmalloc_ends_the_process_for_lack_of_memory() {
    run("", "exhaust").passed();
    aborts("xmalloc:true", "exhaust", "xmalloc");
}

#[test]
fn infallible_new_ends_the_process_for_lack_of_memory() {
    aborts("experimental_infallible_new:true", "exhaust_new", "experimental_infallible_new");
}

#[test]
fn stats_print_opts_choose_the_shape() {
    let text = run("stats_print:true", "much").passed().stderr;
    assert!(text.starts_with("___ Begin jemalloc statistics ___") && text.contains("Merged arenas"));
    let json = run("stats_print:true,stats_print_opts:Jgma", "much").passed().stderr;
    assert!(json.starts_with("{\"jemalloc\":{\"stats\":{\"allocated\":"), "{json}");
    assert!(!json.contains("\"opt\""), "{json}");
}

#[test]
fn stats_interval_prints_as_bytes_are_allocated() {
    let count = |conf: &str| {
        let stderr = run(conf, "much").passed().stderr;
        stderr.matches("{\"jemalloc\":").count()
    };
    assert_eq!(count("stats_interval_opts:Jgmablx"), 0);
    let often = count("stats_interval:20000,stats_interval_opts:Jgmablx");
    assert!((4..=6).contains(&often), "{often}");
}

#[test]
fn the_programs_own_text_comes_first_and_the_environments_wins() {
    let run = |name: &str, value: &str| {
        let outcome = Run::program("figures arenas").env("MALLOC_CONF", "narenas:4").env(name, value).run().passed();
        outcome.stdout
    };
    assert!(run("EBB_CONF", "narenas:2").contains("arenas 2"));
    assert!(run("OTHER", "narenas:2").contains("arenas 4"));
}
