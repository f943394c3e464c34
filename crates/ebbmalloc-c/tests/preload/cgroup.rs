//! Real cgroups with real limits, of the version that has the controller. A test whose cgroup cannot be made (no right
//! to, or no such limit in that version) prints why and ends; `ci/vm.sh` has a machine with version 2.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::harness::{Outcome, Run, Scratch};

/// What a cgroup of a test allows.
#[derive(Clone, Copy)]
enum Limit {
    /// Beyond this the kernel kills.
    Memory(&'static str),
    /// Beyond this it slows down; version 2 alone has it.
    High(&'static str),
    /// Microseconds of CPU in 100 ms.
    Quota(&'static str),
}

impl Limit {
    fn controller(self) -> &'static str {
        match self {
            Self::Memory(_) | Self::High(_) => "memory",
            Self::Quota(_) => "cpu",
        }
    }

    /// Files and what is written to them, where `version` has such a limit.
    fn files(self, version: u8) -> Option<Vec<(&'static str, String)>> {
        let one = |file, value: &str| Some(vec![(file, value.to_owned())]);
        match (self, version) {
            (Self::Memory(bytes), 1) => one("memory.limit_in_bytes", bytes),
            (Self::Memory(bytes), _) => one("memory.max", bytes),
            (Self::High(_), 1) => None,
            (Self::High(bytes), _) => one("memory.high", bytes),
            (Self::Quota(quota), 1) => {
                Some(vec![("cpu.cfs_period_us", "100000".to_owned()), ("cpu.cfs_quota_us", quota.to_owned())])
            }
            (Self::Quota(quota), _) => one("cpu.max", &format!("{quota} 100000")),
        }
    }
}

/// A cgroup below the test's own, or in version 2, where only leaves hold processes, next to it. Removed at the end.
struct Cgroup(PathBuf);

impl Cgroup {
    /// A cgroup with this limit. `None`, with the reason printed, if it cannot be had.
    fn new(limit: Limit) -> Option<Self> {
        Self::make(limit)
            .inspect_err(|reason| test_needs::note(&format!("no {} cgroup: {reason}", limit.controller())))
            .ok()
    }

    fn make(limit: Limit) -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (version, parent) = Self::parent(limit.controller())?;
        let files = limit.files(version).ok_or_else(|| format!("version {version} has no such limit"))?;
        let folder = parent.join(format!("ebbmalloc-test-{}-{number}", std::process::id()));
        let told = |error: std::io::Error| format!("{}: {error}", folder.display());
        fs::create_dir(&folder).map_err(told)?;
        let cgroup = Self(folder.clone());
        for (file, value) in files {
            fs::write(folder.join(file), value).map_err(told)?;
        }
        Ok(cgroup)
    }

    /// The version that has the controller, and a folder in which a cgroup of it can be made.
    fn parent(controller: &str) -> Result<(u8, PathBuf), String> {
        let cgroups = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let own = |wanted: &dyn Fn(&str) -> bool| {
            cgroups.lines().find_map(|line| {
                let mut parts = line.splitn(3, ':').skip(1);
                let found = parts.next()?.split(',').any(wanted);
                found.then_some(parts.next()?.trim_start_matches('/'))
            })
        };
        if let Some(own) = own(&|one| one == controller) {
            // In a container the path may be the host's, and the mount point the container's own cgroup.
            let top = Path::new("/sys/fs/cgroup").join(controller);
            let mut folders = [top.join(own), top].into_iter();
            let found = folders.find(|folder| folder.is_dir());
            return Ok((1, found.ok_or("not mounted")?));
        }
        let own = own(&str::is_empty).ok_or("not there")?;
        let around = Path::new("/sys/fs/cgroup").join(own);
        let handed_down = |folder: &&Path| {
            fs::read_to_string(folder.join("cgroup.subtree_control"))
                .is_ok_and(|text| text.split_whitespace().any(|one| one == controller))
        };
        let found = around.ancestors().find(handed_down);
        Ok((2, found.ok_or("it is handed down nowhere")?.to_owned()))
    }

    /// How often version 2 has slowed it down for its `memory.high`.
    fn times_slowed(&self) -> u64 {
        let events = fs::read_to_string(self.0.join("memory.events")).unwrap();
        let times = events.lines().find_map(|line| line.strip_prefix("high "));
        times.unwrap().parse().unwrap()
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
    let cgroup = Cgroup::new(Limit::Memory("256M"))?;
    let run = Run::program("returns two_bursts").env("EBB_CONF", conf);
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

/// A tenth above the 105 MiB that live (100 MiB of requests, their classes, the program), for blocks of all sizes that come and go.
#[test]
fn a_limit_just_above_what_lives_kills_nobody() {
    if let Some(cgroup) = Cgroup::new(Limit::Memory("115M")) {
        cgroup.run(Run::program("pressure tight").arg("100")).run().passed();
    }
}

/// The kernel slows down who is above `memory.high`: idle memory goes before that.
#[test]
fn idle_memory_goes_before_the_kernel_slows_down() {
    if let Some(cgroup) = Cgroup::new(Limit::High("256M")) {
        let run = Run::program("returns two_bursts");
        cgroup.run(run).run().passed();
        assert_eq!(cgroup.times_slowed(), 0);
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
    if let Some(cgroup) = Cgroup::new(Limit::Memory("80M")) {
        let run = Run::program("returns near_limit");
        cgroup.run(run).run().passed();
    }
}

/// All that is free, long before its delay is over: without pressure it takes more than a second.
#[test]
fn under_pressure_all_that_is_free_is_returned() {
    let scratch = Scratch::new();
    let file = scratch.path().join("memory.pressure");
    let after = |watched: &Path| {
        let calm = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 total=0\n";
        fs::write(&file, calm).unwrap();
        let run = Run::program("returns pressed").env("EBB_CONF", "memory_price:64g");
        let outcome = run.env("MEMORY_PRESSURE_WATCH", watched).arg(&file).run().passed();
        let time = outcome.stdout.split("returned after ").nth(1).unwrap_or_default();
        time.split_whitespace().next().and_then(|time| time.parse::<u64>().ok()).unwrap()
    };
    // Best of three: a machine that is busy otherwise can only make it later.
    let times = [(); 3].map(|()| after(&file));
    assert!(times.iter().min() < Some(&300), "{times:?} ms");
    let calm = after(Path::new("/dev/null"));
    assert!(calm > 500, "{calm} ms without pressure");
}

/// Huge pages are charged as a whole until they are split.
#[test]
fn what_is_returned_is_no_longer_charged() {
    for (conf, pages) in [("", "huge"), ("thp:never", "small")] {
        let Some(cgroup) = Cgroup::new(Limit::Memory("2G")) else {
            return;
        };
        let files = ["memory.usage_in_bytes", "memory.current"].map(|file| cgroup.0.join(file));
        let usage = files.into_iter().find(|file| file.exists()).unwrap();
        let run = Run::program("returns charge").env("EBB_CONF", conf).arg(usage).arg(pages);
        cgroup.run(run).run().passed();
    }
}

#[test]
fn a_program_that_only_grows_publishes_its_growth() {
    let scratch = Scratch::new();
    let folder = scratch.path().display();
    Run::program("returns growing")
        .env("EBB_CONF", format!("stats_file:{folder}/%p"))
        .arg(scratch.path())
        .run()
        .passed();
}

/// As many shards as processors, and no more than the quota is worth.
#[test]
fn shards_follow_the_quota() {
    let shards = |cgroup: Option<&Cgroup>| {
        let run = Run::program("returns held 0").env("EBB_CONF", "confirm_conf:true");
        let outcome = match cgroup {
            Some(cgroup) => cgroup.run(run),
            None => run,
        }
        .run()
        .passed();
        let text = outcome.stderr.split("narenas:").nth(1).unwrap_or_default();
        let number = text.split_whitespace().next().unwrap_or_default();
        number.parse::<usize>().unwrap_or_else(|_| panic!("{}", outcome.describe()))
    };
    let free = shards(None);
    if let Some(cgroup) = Cgroup::new(Limit::Quota("60000")) {
        assert!(free >= 1);
        assert_eq!(shards(Some(&cgroup)), 1);
    }
}
