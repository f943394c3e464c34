//! The delay has a reason: what is needed again soon is not returned, everything else is within two
//! seconds, and a program that is idle costs nothing. Bounds are numbers of faults and of switches;
//! each has a control that shows that it can be missed.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::harness::Run;

/// What the program printed after `key `.
fn printed(mode: &str, conf: &str, key: &str) -> Vec<u64> {
    let outcome = Run::program("delay").arg(mode).env("EBB_CONF", conf).run().passed();
    let line = outcome.stdout.lines().find_map(|line| line.strip_prefix(key));
    let words = line.into_iter().flat_map(str::split_whitespace);
    words.filter_map(|word| word.parse().ok()).collect()
}

/// The share of the pages in use that were faulted in again, in percent. Without huge pages: one fault brings 512 back.
fn refaulted(mode: &str, conf: &str) -> u64 {
    let conf = format!("thp:never,{conf}");
    let [faults, pages] = printed(mode, conf.trim_end_matches(','), "faults ")[..] else {
        panic!("{mode} printed no faults");
    };
    faults * 100 / pages
}

#[test]
fn a_buffer_that_comes_and_goes_does_not_fault_at_every_turn() {
    let share = refaulted("buffers", "");
    assert!(share <= 10, "{share} % faulted");
}

#[test]
fn a_server_at_ten_requests_a_second_keeps_its_working_set() {
    let share = refaulted("server", "");
    assert!(share <= 5, "{share} % faulted");
}

/// The control: 20 milliseconds are too short for both.
#[test]
fn a_delay_without_a_reason_faults_at_every_turn() {
    for mode in ["buffers", "server"] {
        let share = refaulted(mode, "dirty_decay_ms:20");
        assert!(share >= 40, "{mode}: {share} % faulted");
    }
}

/// Whether all but a twentieth of a burst is back after two seconds. Best of three: a machine that is
/// busy otherwise can only make it later.
fn is_back_after_two_seconds(conf: &str) {
    let mut shares = Vec::new();
    for _ in 0..3 {
        let share = printed("prompt", conf, "share ")[0];
        if share >= 950 {
            return;
        }
        shares.push(share);
    }
    panic!("per mille after two seconds: {shares:?}");
}

#[test]
fn after_two_seconds_all_but_a_twentieth_has_come_back() {
    is_back_after_two_seconds("");
}

/// Even where memory is so cheap that the longest delay is right.
#[test]
fn after_two_seconds_the_longest_delay_is_over() {
    is_back_after_two_seconds("memory_price:64g");
}

/// Where little is done and little comes back, the purger wakes less often, until a burst; best of three, as
/// above.
#[test]
fn a_calm_process_has_few_wake_ups_and_returns_a_burst_all_the_same() {
    let mut seen = Vec::new();
    for _ in 0..3 {
        let [woke, share] = printed("calm", "", "woke ")[..] else {
            panic!("calm printed no figures");
        };
        if woke <= 1 && share >= 900 {
            return;
        }
        seen.push((woke, share));
    }
    panic!("wake-ups, per mille returned: {seen:?}");
}

/// The control: a bound on the delay bounds the pauses too.
#[test]
fn a_calm_process_with_a_bound_on_the_delay_wakes_as_often_as_that_says() {
    let woke = printed("calm", "dirty_decay_ms:1000", "woke ")[0];
    assert!(woke >= 3, "{woke}");
}

/// Voluntary switches of each thread of a process: how often it went to sleep, so how often it woke.
fn sleeps(process: u32) -> BTreeMap<String, u64> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("the program runs");
    tasks
        .filter_map(|task| {
            let path = task.ok()?.path();
            let status = fs::read_to_string(path.join("status")).ok()?;
            let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
            Some((path.display().to_string(), count.trim().parse().ok()?))
        })
        .collect()
}

#[test]
fn an_idle_process_has_no_purger_and_no_wake_up() {
    let mut running = Run::program("delay idle").spawn();
    let mut said = [0; 3];
    let stdout = running.child.stdout.as_mut().expect("a pipe was asked for");
    stdout.read_exact(&mut said).expect("the program speaks");
    assert_eq!(&said, b"ok\n");
    // The main thread and the four of the burst, when the purger has done its work.
    let id = running.id();
    let start = Instant::now();
    assert!(sleeps(id).len() >= 5);
    let mut seen_purger = false;
    while sleeps(id).len() > 5 {
        seen_purger = true;
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", sleeps(id));
        sleep(Duration::from_millis(50));
    }
    assert!(seen_purger, "there was a burst to return");
    let before = sleeps(id);
    sleep(Duration::from_secs(5));
    assert_eq!(sleeps(id), before);
}
