//! What settings make the libraries say and how they end a process: the same words and ends on both,
//! as far as programs and people read them.

use std::fs;
use std::os::unix::process::ExitStatusExt;

use crate::either::Library;
use crate::harness::{Outcome, Scratch};

/// A test of each library.
macro_rules! both {
    ($name:ident) => {
        mod $name {
            use super::Library;

            #[test]
            fn on_jemalloc() {
                super::$name(Library::Jemalloc);
            }

            #[test]
            fn on_ebbmalloc() {
                super::$name(Library::Ebbmalloc);
            }
        }
    };
}

const SIGABRT: i32 = 6;

fn outcome(library: Library, program: &str, settings: &str) -> Outcome {
    let folder = Scratch::new();
    library.run(program, settings, &folder).run()
}

fn is_aborted(outcome: &Outcome) -> bool {
    outcome.status.and_then(|status| status.signal()) == Some(SIGABRT)
}

both!(an_unknown_key_is_named_and_the_program_runs);
fn an_unknown_key_is_named_and_the_program_runs(library: Library) {
    let outcome = outcome(library, "stats_at_exit", "dirty_decay:5,narenas:2").passed();
    assert!(outcome.stderr.contains("dirty_decay:5"), "{}", outcome.describe());
}

both!(a_value_that_is_none_is_named);
fn a_value_that_is_none_is_named(library: Library) {
    for pair in ["dirty_decay_ms:soon", "tcache:perhaps", "zero_realloc:panic"] {
        let outcome = outcome(library, "stats_at_exit", pair).passed();
        assert!(outcome.stderr.contains(pair), "{}", outcome.describe());
    }
}

both!(abort_conf_ends_the_process);
fn abort_conf_ends_the_process(library: Library) {
    let outcome = outcome(library, "stats_at_exit", "abort_conf:true,nonsense:1");
    assert!(is_aborted(&outcome), "{}", outcome.describe());
    assert!(outcome.stderr.contains("nonsense:1"), "{}", outcome.describe());
}

both!(settings_that_are_all_known_say_nothing);
fn settings_that_are_all_known_say_nothing(library: Library) {
    let settings = "abort_conf:true,narenas:2,dirty_decay_ms:500,muzzy_decay_ms:0,\
                    background_thread:true,tcache_max:4096,lg_extent_max_active_fit:4,\
                    retain:true,thp:default,metadata_thp:disabled,percpu_arena:disabled,\
                    oversize_threshold:0,dss:secondary,prof:false,abort:false";
    let outcome = outcome(library, "stats_at_exit", settings).passed();
    assert_eq!(outcome.stderr, "", "{library:?}");
}

both!(zero_realloc_may_end_the_process);
fn zero_realloc_may_end_the_process(library: Library) {
    let outcome = outcome(library, "zero_realloc", "zero_realloc:abort");
    assert!(is_aborted(&outcome), "{}", outcome.describe());
    assert!(outcome.stderr.contains("realloc"), "{}", outcome.describe());
}

both!(stats_print_writes_at_the_end);
fn stats_print_writes_at_the_end(library: Library) {
    let text = outcome(library, "stats_at_exit", "stats_print:true").passed();
    for part in [
        "___ Begin jemalloc statistics ___",
        "opt.narenas: ",
        "Allocated: ",
        "--- End jemalloc statistics ---",
    ] {
        assert!(text.stderr.contains(part), "{part}: {}", text.describe());
    }
    let settings = "stats_print:true,stats_print_opts:Jmdablxhe";
    let json = outcome(library, "stats_at_exit", settings).passed();
    let json = json.stderr.trim();
    assert!(
        json.starts_with('{') && json.ends_with('}') && json.contains("\"jemalloc\""),
        "{json}"
    );
}

both!(confirm_conf_shows_where_settings_came_from);
fn confirm_conf_shows_where_settings_came_from(library: Library) {
    let settings = "confirm_conf:true,dirty_decay_ms:321";
    let outcome = outcome(library, "stats_at_exit", settings).passed();
    assert!(outcome.stderr.contains("dirty_decay_ms:321"), "{}", outcome.describe());
}

both!(a_leak_is_reported_and_the_last_profile_written);
fn a_leak_is_reported_and_the_last_profile_written(library: Library) {
    let folder = Scratch::new();
    let settings = "prof:true,prof_leak:true,prof_final:true,lg_prof_sample:0,prof_prefix:last";
    let run = library.run("stats_at_exit", settings, &folder);
    let outcome = run.run().passed();
    assert!(outcome.stderr.contains("Leak approximation summary"), "{}", outcome.describe());
    let names: Vec<_> = fs::read_dir(folder.path())
        .expect("the scratch folder")
        .map(|entry| entry.expect("an entry").file_name().into_string())
        .map(|name| name.expect("a plain name"))
        .collect();
    assert!(
        names.len() == 1 && names[0].starts_with("last.") && names[0].ends_with(".f.heap"),
        "{library:?}: {names:?}"
    );
    let profile = fs::read_to_string(folder.path().join(&names[0])).expect("the profile");
    assert!(profile.starts_with("heap_v2/1\n"), "{library:?}: {profile}");
    let bytes = profile.split("t*: ").nth(1).and_then(|totals| {
        let of_all = totals.split([':', '[']).nth(1)?;
        of_all.trim().parse::<usize>().ok()
    });
    assert!(bytes.is_some_and(|bytes| bytes >= 123_456), "{library:?}: {profile}");
}
