//! Looks at a target again and again, for `ebb why --watch`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

use super::{Depth, Observer};
use crate::exit::{Exit, Failure};
use crate::facts::growth::Growth;
use crate::proc::target::Resolved;
use crate::verdict;

/// More looks than this sharpen no slope.
const MOST_LOOKS: u32 = 120;
const STEP: Duration = Duration::from_millis(50);

/// Whether somebody asked us to end (Ctrl-C, SIGTERM).
#[derive(Clone, Debug)]
pub struct Ending(Arc<AtomicBool>);

impl Ending {
    /// From now on the two signals are noted instead of ending the program.
    pub fn listen() -> Result<Self, Failure> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&asked))?;
        }
        Ok(Self(asked))
    }

    /// Waits; `false` where it was cut short.
    pub fn sleep_until(&self, end: Instant) -> bool {
        loop {
            // Relaxed: the flag alone is the message.
            if self.0.load(Ordering::Relaxed) {
                return false;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(STEP));
        }
    }
}

/// Looks for that long, then concludes; earlier if asked to end or if the target does.
pub fn watch(
    observer: &Observer,
    resolved: &Resolved,
    with_children: bool,
    time: Duration,
    every: Option<Duration>,
) -> Result<Growth, Failure> {
    let every = every.unwrap_or(time / MOST_LOOKS).max(STEP);
    let ending = Ending::listen()?;
    let start = Instant::now();
    let mut points = Vec::new();
    let mut last = None;
    let mut start_s = None;
    loop {
        let looked = Instant::now();
        let snapshot = observer.look(resolved, with_children, Depth::Heaps);
        if snapshot.processes.is_empty() {
            break;
        }
        let start_s = *start_s.get_or_insert(snapshot.at_s);
        let diagnosis = verdict::of(snapshot);
        points.push(verdict::growth::point(&diagnosis, start_s));
        last = Some(diagnosis);
        // A look that takes long is not made more often: at most half of the time is spent reading.
        let next = (looked + every).max(Instant::now() + looked.elapsed());
        if next > start + time || !ending.sleep_until(next) {
            break;
        }
    }
    let last = last.ok_or_else(|| {
        Failure::new(
            Exit::NotEnoughEvidence,
            format!("{} ended before it was read", resolved.target.asked),
        )
    })?;
    Ok(verdict::growth::of(points, last))
}
