//! Samples the service's process tree from readiness to the end, on a thread of its own.
//!
//! Used by `run`. What a sample holds is read by an [`Observer`], which `commands/compare` supplies.

use super::disturbance::Machine;
use super::run::Prepared;
use crate::facts::sureness::Instrument;
use crate::facts::trial::Sample;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Looks at a process tree from outside.
pub trait Observer: Send + Sync {
    /// Memory and CPU time of the tree; `None` when it is gone. The time is filled in by the sampler.
    fn sample(&self, pid: u32) -> Option<Sample>;

    /// Whether the variant's allocator is in charge in every process of the tree, and what is
    /// preloaded beside it is there; the message names the process where that is not so.
    fn in_charge(&self, pid: u32, variant: &Prepared) -> Result<(), String>;

    /// Instruments that are switched on in processes of the tree.
    fn instruments(&self, _pid: u32) -> Vec<Instrument> {
        Vec::new()
    }

    /// What the whole machine does, and we of it; `None` where it cannot be read.
    fn machine(&self) -> Option<Machine> {
        None
    }
}

/// A sampler at work.
pub struct Sampler {
    samples: Arc<Mutex<Vec<Sample>>>,
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
    ) -> Sampler {
        let samples = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let (taken, ends) = (samples.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let mut next = zero;
            while !ends.load(Ordering::Relaxed) {
                let at_s = zero.elapsed().as_secs_f64();
                if let Some(sample) = observer.sample(pid) {
                    lock(&taken).push(Sample { at_s, ..sample });
                }
                // On a grid, so that a slow sample does not shift the later ones; a missed point of the
                // grid is left out, not made up for.
                while next <= Instant::now() {
                    next += interval;
                }
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        });
        Sampler {
            samples,
            stop,
            thread: Some(thread),
        }
    }

    /// The samples so far.
    pub fn so_far(&self) -> Vec<Sample> {
        lock(&self.samples).clone()
    }

    /// Ends, and gives all samples.
    pub fn finish(mut self) -> Vec<Sample> {
        self.end();
        std::mem::take(&mut *lock(&self.samples))
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

fn lock(samples: &Mutex<Vec<Sample>>) -> std::sync::MutexGuard<'_, Vec<Sample>> {
    samples.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Slow;
    impl Observer for Slow {
        fn sample(&self, _pid: u32) -> Option<Sample> {
            std::thread::sleep(Duration::from_millis(15));
            Some(Sample {
                rss_bytes: Some(1),
                ..Sample::default()
            })
        }
        fn in_charge(&self, _pid: u32, _variant: &Prepared) -> Result<(), String> {
            Ok(())
        }
    }

    #[test]
    fn samples_lie_on_a_grid_and_stop_at_the_end() {
        let sampler = Sampler::start(Arc::new(Slow), 1, Instant::now(), Duration::from_millis(10));
        std::thread::sleep(Duration::from_millis(200));
        let samples = sampler.finish();
        // Each sample takes more than one interval: every second point of the grid is met, at most.
        assert!((4..=11).contains(&samples.len()), "{}", samples.len());
        assert!(samples.is_sorted_by(|left, right| left.at_s < right.at_s));
    }
}
