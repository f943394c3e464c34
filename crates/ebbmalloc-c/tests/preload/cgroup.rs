//! Real cgroups with real limits. A test whose cgroup cannot be made (no right to, another version
//! than the one that has the controller) prints why and ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::harness::{Flavour, Outcome, Run, Scratch, program};

/// A cgroup below the test's own, removed at the end.
struct Cgroup(PathBuf);

impl Cgroup {
    /// A cgroup of version 1 with these files' values. `None`, with the reason printed, if it cannot
    /// be had.
    fn new(controller: &str, values: &[(&str, &str)]) -> Option<Self> {
        Self::make(controller, values)
            .inspect_err(|reason| {
                eprintln!("skipped: no {controller} cgroup of version 1: {reason}")
            })
            .ok()
    }

    fn make(controller: &str, values: &[(&str, &str)]) -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let cgroups = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let own = cgroups
            .lines()
            .find_map(|line| {
                let mut parts = line.splitn(3, ':').skip(1);
                let controllers = parts.next()?;
                let found = controllers.split(',').any(|one| one == controller);
                found.then_some(parts.next()?)
            })
            .ok_or("not there")?;
        // In a container the path may be the host's, and the mount point the container's own cgroup.
        let top = Path::new("/sys/fs/cgroup").join(controller);
        let parent = [top.join(own.trim_start_matches('/')), top]
            .into_iter()
            .find(|folder| folder.is_dir())
            .ok_or("not mounted")?;
        let folder = parent.join(format!("ebbmalloc-test-{}-{number}", std::process::id()));
        let told = |error: std::io::Error| format!("{}: {error}", folder.display());
        fs::create_dir(&folder).map_err(told)?;
        let cgroup = Self(folder.clone());
        for (file, value) in values {
            fs::write(folder.join(file), value).map_err(told)?;
        }
        Ok(cgroup)
    }

    /// The program, started inside.
    fn run(&self, run: Run) -> Run {
        let enter = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.0.display());
        run.through(["sh", "-c", &enter, "sh"])
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // What ran in it may take a moment to be gone.
        for _ in 0..50 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

fn two_bursts(conf: &str) -> Option<Outcome> {
    let cgroup = Cgroup::new("memory", &[("memory.limit_in_bytes", "256M")])?;
    let run = Run::preloaded(program("cgroup_burst", Flavour::Plain)).env("EBB_CONF", conf);
    Some(cgroup.run(run).run())
}

/// The control: without returning, the idle memory of the first burst kills the program in the second.
#[test]
fn without_purging_idle_memory_kills() {
    if let Some(outcome) = two_bursts("purge:off") {
        outcome.killed_by(9);
    }
}

#[test]
fn idle_memory_goes_before_the_limit_is_met() {
    if let Some(outcome) = two_bursts("") {
        outcome.passed();
    }
}

/// The growing threads do it: nothing waits for a tick.
#[test]
fn idle_memory_goes_before_the_limit_is_met_without_a_purger() {
    if let Some(outcome) = two_bursts("background_thread:false") {
        outcome.passed();
    }
}

/// The purger looks at the limit at each tick, with descriptors of its own.
#[test]
fn looks_of_the_purger_take_no_descriptor() {
    if let Some(cgroup) = Cgroup::new("memory", &[("memory.limit_in_bytes", "80M")]) {
        let run = Run::preloaded(program("cgroup_near", Flavour::Plain));
        cgroup.run(run).run().passed();
    }
}

#[test]
fn a_program_that_only_grows_publishes_its_growth() {
    let scratch = Scratch::new();
    let folder = scratch.path().display();
    Run::preloaded(program("growing", Flavour::Plain))
        .env("EBB_CONF", format!("stats_file:{folder}/%p"))
        .arg(scratch.path())
        .run()
        .passed();
}

/// As many shards as processors, and no more than the quota is worth.
#[test]
fn shards_follow_the_quota() {
    let shards = |cgroup: Option<&Cgroup>| {
        let run = Run::preloaded(program("settings", Flavour::Plain))
            .env("EBB_CONF", "confirm_conf:true")
            .arg("0");
        let outcome = match cgroup {
            Some(cgroup) => cgroup.run(run),
            None => run,
        }
        .run()
        .passed();
        let text = outcome.stderr.split("narenas:").nth(1).unwrap_or_default();
        let number = text.split_whitespace().next().unwrap_or_default();
        number
            .parse::<usize>()
            .unwrap_or_else(|_| panic!("{}", outcome.describe()))
    };
    let free = shards(None);
    let values = [
        ("cpu.cfs_period_us", "100000"),
        ("cpu.cfs_quota_us", "60000"),
    ];
    if let Some(cgroup) = Cgroup::new("cpu", &values) {
        assert!(free >= 1);
        assert_eq!(shards(Some(&cgroup)), 1);
    }
}
