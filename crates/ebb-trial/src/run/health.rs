//! The service's health address under load: asked once a second, as an orchestrator's probe does.
//!
//! Used by `run`. It is asked only while a load runs, so that a rest is one. A question that comes late
//! because the one before it took long is left out, not made up for.

use super::request;
use crate::results::HealthAnswer;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between two questions.
const INTERVAL: Duration = Duration::from_secs(1);
/// After this long there is no answer. Probes give up earlier; the figure shows how late it would have come.
const LIMIT: Duration = Duration::from_secs(10);
/// How soon the thread sees that it should end.
const STEP: Duration = Duration::from_millis(20);

/// What the questions and their asker share.
#[derive(Debug, Default)]
struct Shared {
    answers: Mutex<Vec<HealthAnswer>>,
    /// A load runs. Set by the run, read by the asker; nothing is published with it.
    under_load: AtomicBool,
    /// The run is over; likewise.
    over: AtomicBool,
}

/// The questions of one run.
pub struct Health(Arc<Shared>);

impl Health {
    /// Begins; `zero` is the moment that times count from.
    pub fn start(url: String, zero: Instant) -> Health {
        let shared = Arc::new(Shared::default());
        let asker = shared.clone();
        // Not waited for at the end: a question to a service that hangs ends by its limit.
        std::thread::spawn(move || {
            let mut next = Instant::now();
            while !asker.over.load(Ordering::Relaxed) {
                if !asker.under_load.load(Ordering::Relaxed) || Instant::now() < next {
                    std::thread::sleep(STEP);
                    continue;
                }
                let asked = Instant::now();
                let answered = request::http(&url, "GET", LIMIT).is_ok();
                let answer = HealthAnswer {
                    at_s: asked.saturating_duration_since(zero).as_secs_f64(),
                    latency_ms: answered.then(|| asked.elapsed().as_secs_f64() * 1e3),
                };
                asker.answers.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
                while next <= Instant::now() {
                    next += INTERVAL;
                }
            }
        });
        Health(shared)
    }

    /// A load begins or ends.
    pub fn under_load(&self, now: bool) {
        self.0.under_load.store(now, Ordering::Relaxed);
    }

    /// Ends, and gives the answers so far.
    pub fn finish(self) -> Vec<HealthAnswer> {
        self.0.over.store(true, Ordering::Relaxed);
        std::mem::take(&mut *self.0.answers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Health {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}
