//! The signals that end a long command: SIGINT, SIGTERM, of a trial SIGHUP as well.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::exit::{Exit, Failure};
use crate::terminal;
use ebb_trial::interrupt::{Groups, Interrupt};

const STEP: Duration = Duration::from_millis(50);

/// Whether somebody asked us to end (Ctrl-C, SIGTERM).
#[derive(Clone, Debug)]
pub struct Ending(Arc<AtomicBool>);

impl Ending {
    /// From now on the two signals are noted instead of ending the program.
    pub fn listen() -> Result<Self, Failure> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // A second one does not wait for a look that takes long.
            let code = i32::from(Exit::Interrupted.code());
            signal_hook::flag::register_conditional_shutdown(signal, code, Arc::clone(&asked))?;
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

/// The first Ctrl-C ends the trial in order, the second kills what was started: then nothing is left that the end has
/// to wait for. timeout(1) comes as two, to the process and to its group, so what was measured is kept all the
/// same; the third ends ebb itself.
pub fn end_trial(interrupt: Interrupt, groups: Groups) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::spawn(move || {
        for (number, _) in signals.forever().enumerate() {
            match number {
                0 => {
                    terminal::warn("interrupted: stopping all processes, keeping the results (again to kill)");
                    interrupt.set();
                }
                1 => {
                    terminal::warn(
                        "interrupted twice: killing all processes, keeping the results (again to keep nothing)",
                    );
                    groups.kill_all();
                }
                _ => {
                    groups.kill_all();
                    terminal::warn("interrupted three times: all processes were killed, no results are kept");
                    std::process::exit(i32::from(Exit::Interrupted.code()));
                }
            }
        }
    });
    Ok(())
}
