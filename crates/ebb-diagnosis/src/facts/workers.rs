//! Like processes side by side: the workers of one parent.

use serde::{Deserialize, Serialize};

/// Processes of one program with one parent: two or more.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    /// The kernel's name of the first.
    pub name: String,
    /// Pid of their parent.
    pub parent: i32,
    /// The workers, by pid.
    pub workers: Vec<Worker>,
    /// Median of [`Worker::own`].
    pub median: u64,
    /// The spread of most of them: 1.4826 times the median distance from the median, which is the standard deviation
    /// of normally distributed values.
    pub spread: u64,
    /// Pids of the workers that have far more than the rest, the largest first.
    pub outliers: Vec<i32>,
    /// How many of them the limit holds, where there is a limit and the private bytes are known.
    pub room: Option<Room>,
}

/// One worker, in bytes. What could not be read is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    /// Its number.
    pub pid: i32,
    /// Seconds since it started.
    pub age_s: Option<f64>,
    /// CPU seconds since then.
    pub cpu_s: f64,
    /// PSS, or RSS where that is closed.
    pub total: u64,
    /// Anonymous pages that no other process has: what this worker costs.
    pub private: Option<u64>,
    /// The rest of its resident memory: files, shared memory, pages that it has in common with its parent.
    pub shared: Option<u64>,
    /// Live blocks of malloc.
    pub live: Option<u64>,
    /// Freed, and held by the allocator or the interpreter.
    pub held: Option<u64>,
    /// Live objects of CPython, or the heap of another language runtime.
    pub interpreter: Option<u64>,
    /// The most private memory that it can have had: its peak of resident memory less what it shares now.
    pub peak: Option<u64>,
}

/// What workers of this kind need of a limit; bytes of one worker are medians.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// The limit.
    pub limit: u64,
    /// What is charged besides the workers' private memory and files that the kernel can drop.
    pub besides: u64,
    /// Private bytes of one worker: what one more costs.
    pub each: u64,
    /// The same without freed memory.
    pub floor: u64,
    /// The same at its peak.
    pub peak: u64,
    /// How many fit at their floor.
    pub fit_at_floor: u64,
    /// How many fit if all are at their peak at once.
    pub fit_at_peak: u64,
}

impl Worker {
    /// What is compared: the private bytes, or all of them where those are not known.
    pub fn own(&self) -> u64 {
        self.private.unwrap_or(self.total)
    }
}
