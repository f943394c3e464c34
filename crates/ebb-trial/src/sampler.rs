//! Samples the service's process tree from readiness to the end, on a thread of its own.
//!
//! Used by `run`. Samples are read by an [`Observer`], which `commands/compare` supplies. It also supplies the cgroups:
//! those with the trial's limits ([`RunCgroups`]), and the kernel's counters of the service's cgroup ([`ServiceCgroup`]).

use super::disturbance::Machine;
use super::refaults::{Held, Refaults};
use super::variant::Prepared;
use crate::results::{FreeMemory, Sample};
use ebb_process::instruments::Instrument;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What an observer sees of a process tree at one moment.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Of the whole tree. Its time and its refaults are filled in by the sampler.
    pub sample: Sample,
    /// Anonymous memory of each process; `None` where one of them does not show it.
    pub held: Option<Vec<Held>>,
}

/// Looks at a process tree from outside.
pub trait Observer: Send + Sync {
    /// Memory and CPU time of the tree; `None` when it is gone.
    fn sample(&self, pid: u32) -> Option<Seen>;

    /// Whether the variant's allocator is in charge in every process of the tree, and what is
    /// preloaded together with it is there; the message names the process where that is not so.
    fn in_charge(&self, pid: u32, variant: &Prepared) -> Result<(), String>;

    /// The cgroup of the process. It can be read after the process has ended.
    fn cgroup(&self, pid: u32) -> Option<Arc<dyn ServiceCgroup>>;

    /// Instruments that are switched on in processes of the tree.
    fn instruments(&self, _pid: u32) -> Vec<Instrument> {
        Vec::new()
    }

    /// Free memory of glibc's malloc in the tree; `None` where a heap cannot be read.
    fn free_memory(&self, _pid: u32) -> Option<FreeMemory> {
        None
    }

    /// Calls malloc_trim(0) in every process of the tree, from outside; the message names the one where it failed.
    fn trim(&self, _pid: u32) -> Result<(), String> {
        Err("there is no way to call it".to_owned())
    }

    /// What the whole machine does, and we of it; `None` where it cannot be read.
    fn machine(&self) -> Option<Machine> {
        None
    }
}

/// Creates a cgroup with the trial's limits for each run.
pub trait RunCgroups: Send + Sync {
    /// Creates a cgroup, which is removed on drop. The error says why it cannot be created.
    fn create(&self, name: &str) -> Result<Box<dyn RunCgroup>, String>;
}

/// A cgroup with limits.
pub trait RunCgroup {
    /// Its `cgroup.procs` files. A process enters by writing `0` to each; its children are inside too.
    fn procs_files(&self) -> Vec<PathBuf>;
}

/// The cgroup of the service, with the trial's limits or others.
pub trait ServiceCgroup: Send + Sync {
    /// Processes that were OOM-killed in it since it was created.
    fn oom_kills(&self) -> Option<u64>;
    /// Seconds for which CPU quotas throttled it since it was created; `None` without a quota.
    fn throttled_s(&self) -> Option<f64>;
    /// The lowest memory limit that applies to it.
    fn limit_bytes(&self) -> Option<u64>;
}

/// What was seen.
#[derive(Debug, Default)]
pub struct Record {
    /// The samples, in order.
    pub samples: Vec<Sample>,
    /// When a process was first seen to have been killed for lack of memory.
    pub oom_at_s: Option<f64>,
}

/// A sampler at work.
pub struct Sampler {
    record: Arc<Mutex<Record>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Begins; `zero` is the moment that times count from.
    pub fn start(
        observer: Arc<dyn Observer>,
        pid: u32,
        zero: Instant,
        interval: Duration,
        cgroup: Option<Arc<dyn ServiceCgroup>>,
    ) -> Sampler {
        let record = Arc::new(Mutex::new(Record::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let (taken, ends) = (record.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let (mut next, mut refaults) = (zero, Refaults::default());
            let oom_kills = || cgroup.as_ref().and_then(|cgroup| cgroup.oom_kills());
            let kills_before = oom_kills();
            while !ends.load(Ordering::Relaxed) {
                let at_s = zero.elapsed().as_secs_f64();
                if let Some(seen) = observer.sample(pid) {
                    let refaults = seen.held.map(|held| refaults.count(&held));
                    lock(&taken).samples.push(Sample { at_s, refaults, ..seen.sample });
                }
                if Option::zip(kills_before, oom_kills()).is_some_and(|(before, now)| now > before) {
                    lock(&taken).oom_at_s.get_or_insert(at_s);
                }
                // On a grid, so that a slow sample does not shift the later ones; a missed point of the
                // grid is left out, not made up for.
                while next <= Instant::now() {
                    next += interval;
                }
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        });
        Sampler { record, stop, thread: Some(thread) }
    }

    /// The samples so far.
    pub fn so_far(&self) -> Vec<Sample> {
        lock(&self.record).samples.clone()
    }

    /// Ends, and gives all that was seen.
    pub fn finish(mut self) -> Record {
        self.end();
        std::mem::take(&mut *lock(&self.record))
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A sampler that panicked leaves the samples that it took.
            let _ = thread.join();
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.end();
    }
}

fn lock(record: &Mutex<Record>) -> std::sync::MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::refaults::AddressSpace;
    use super::*;
    use std::sync::atomic::AtomicU64;

    /// Of one process, which has 10 pages at one look and 2 at the next.
    #[derive(Default)]
    struct Slow(AtomicU64);
    impl Observer for Slow {
        fn sample(&self, _pid: u32) -> Option<Seen> {
            std::thread::sleep(Duration::from_millis(15));
            let looks = self.0.fetch_add(1, Ordering::Relaxed);
            let held = Held {
                space: AddressSpace { pid: 1, started_ticks: 0, stack: 0 },
                anon_pages: [10, 2][(looks % 2) as usize],
            };
            Some(Seen {
                // The third look does not get at the memory of a process.
                held: (looks != 2).then(|| vec![held]),
                ..Seen::default()
            })
        }
        fn cgroup(&self, _pid: u32) -> Option<Arc<dyn ServiceCgroup>> {
            None
        }
        fn in_charge(&self, _pid: u32, _variant: &Prepared) -> Result<(), String> {
            Ok(())
        }
    }

    #[test]
    fn samples_lie_on_a_grid_and_stop_at_the_end() {
        let (now, interval) = (Instant::now(), Duration::from_millis(10));
        let sampler = Sampler::start(Arc::new(Slow::default()), 1, now, interval, None);
        std::thread::sleep(Duration::from_millis(200));
        let samples = sampler.finish().samples;
        // Each sample takes more than one interval: at most every second point of the grid gets a sample.
        assert!((4..=11).contains(&samples.len()), "{}", samples.len());
        assert!(samples.is_sorted_by(|left, right| left.at_s < right.at_s));
    }

    #[test]
    fn refaults_are_counted_on_from_sample_to_sample() {
        let (now, interval) = (Instant::now(), Duration::from_millis(1));
        let sampler = Sampler::start(Arc::new(Slow::default()), 1, now, interval, None);
        while sampler.so_far().len() < 5 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let samples = sampler.finish().samples;
        let refaults: Vec<_> = samples[..5].iter().map(|sample| sample.refaults).collect();
        assert_eq!(refaults, [Some(0), Some(0), None, Some(0), Some(8)]);
    }
}
