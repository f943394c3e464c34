//! Fuzzing with the stable toolchain: readers of heaps on mutated processes (`readers`), parsers of files on mutated texts
//! (`files`). No panic, no input that takes long, and sums that add up.
//!
//! `cargo test` does a second of each. `EBB_FUZZ_SECONDS` sets the time; `EBB_FUZZ_RECORD=1` adds it to `fuzz/totals.tsv`,
//! and the next run goes on from there: input N of a target follows from its name and N. `EBB_FUZZ_INPUT=N` repeats one.
//! Totals are right with `-- --test-threads=1`.
#![cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]

#[path = "../harness/mod.rs"]
#[allow(dead_code, reason = "shared with all test programs")]
mod harness;

mod files;
mod readers;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fastrand::Rng;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};

/// CPU time of one input.
const INPUT_WITHIN: Duration = Duration::from_secs(20);
/// Of these an hour is too many to print.
const MOST_FINDINGS: usize = 10;

/// CPU time of this test, and of the programs that tests have started.
fn cpu() -> Duration {
    let own: Duration = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock").into();
    let programs = getrusage(UsageWho::RUSAGE_CHILDREN).expect("a figure");
    let programs = [programs.user_time(), programs.system_time()];
    own + programs.map(|it| Duration::from_micros(it.num_microseconds() as u64)).iter().sum()
}

fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs `one` on input after input.
fn fuzz(name: &str, mut one: impl FnMut(&mut Rng)) {
    let seconds: u64 = variable("EBB_FUZZ_SECONDS").unwrap_or(1);
    let only: Option<u64> = variable("EBB_FUZZ_INPUT");
    let first = only.unwrap_or_else(|| Totals::read().of(name).inputs);
    let (start, used, mut findings) = (Instant::now(), cpu(), Vec::new());
    let mut number = first;
    while start.elapsed() < Duration::from_secs(seconds) && findings.len() < MOST_FINDINGS {
        let mut hasher = DefaultHasher::new();
        (name, number).hash(&mut hasher);
        let mut random = Rng::with_seed(hasher.finish());
        let began = cpu();
        if catch_unwind(AssertUnwindSafe(|| one(&mut random))).is_err() {
            findings.push(format!("input {number} panics"));
        } else if cpu() - began > INPUT_WITHIN {
            findings.push(format!("input {number} takes {:?}", cpu() - began));
        }
        number += 1;
        if only.is_some() {
            break;
        }
    }
    let total = Total { cpu_s: (cpu() - used).as_secs_f64(), inputs: number - first, findings: findings.len() as u64 };
    println!("{name}: {total:?}");
    if only.is_none() && std::env::var_os("EBB_FUZZ_RECORD").is_some() {
        Totals::add(name, &total);
    }
    assert!(findings.is_empty(), "{name}: {findings:#?}");
}

/// What was done so far.
#[derive(Clone, Debug, Default)]
struct Total {
    cpu_s: f64,
    inputs: u64,
    findings: u64,
}

/// Of each target.
struct Totals(BTreeMap<String, Total>);

impl Totals {
    fn file() -> PathBuf {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/totals.tsv"))
    }

    fn read() -> Self {
        let text = fs::read_to_string(Self::file()).unwrap_or_default();
        let line = |line: &str| -> Option<(String, Total)> {
            let [name, cpu_s, inputs, findings] = line.split('\t').collect::<Vec<_>>()[..] else {
                return None;
            };
            let total =
                Total { cpu_s: cpu_s.parse().ok()?, inputs: inputs.parse().ok()?, findings: findings.parse().ok()? };
            Some((name.to_owned(), total))
        };
        Self(text.lines().filter_map(line).collect())
    }

    fn of(&self, name: &str) -> Total {
        self.0.get(name).cloned().unwrap_or_default()
    }

    fn add(name: &str, more: &Total) {
        // Tests run side by side.
        let folder = File::open(Self::file().parent().expect("a folder")).expect("the folder");
        let _lock = Flock::lock(folder, FlockArg::LockExclusive).expect("the lock");
        let mut all = Self::read();
        let total = all.0.entry(name.to_owned()).or_default();
        total.cpu_s += more.cpu_s;
        total.inputs += more.inputs;
        total.findings += more.findings;
        let mut text = "target\tCPU seconds\tinputs\tfindings\n".to_owned();
        for (name, it) in &all.0 {
            text += &format!("{name}\t{:.0}\t{}\t{}\n", it.cpu_s, it.inputs, it.findings);
        }
        fs::write(Self::file(), text).expect("fuzz/totals.tsv");
    }
}
