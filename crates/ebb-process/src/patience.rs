//! The end of waiting: a process under inspection decides when a page of it or a file that it names can be read.
//!
//! Used wherever a process is read that may not answer. What always holds: the caller goes on, whatever the kernel does with
//! the thread that waits.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// A process that lets us wait for so long without a step does not answer.
pub const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// How often is asked whether there was a step.
const STEP: Duration = Duration::from_millis(250);

/// Runs `work` on a thread of its own. `None` where the thread waits for `patience` without a step: for a file system that
/// does not answer, or for a page that its process does not give. The thread ends with `ebb`.
pub fn unless_stuck<T: Send + 'static>(patience: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (answer, answered) = mpsc::channel();
    let (name, named) = mpsc::channel();
    // The receivers outlive the messages, unless the caller has given up.
    let thread = thread::Builder::new().spawn(move || {
        let _ = name.send(nix::unistd::gettid());
        let _ = answer.send(work());
    });
    thread.ok()?;
    // A thread's clock of processor time, as the kernel makes its number of the thread's.
    let clock = nix::time::ClockId::from_raw(!named.recv().ok()?.as_raw() << 3 | 6);
    let (mut used, mut since) = (None, Instant::now());
    loop {
        match answered.recv_timeout(STEP.min(patience)) {
            Ok(answer) => return Some(answer),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = clock.now().ok();
        if now != used {
            (used, since) = (now, Instant::now());
        } else if since.elapsed() >= patience {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_without_a_step_is_left_and_who_works_is_not() {
        let patience = Duration::from_millis(600);
        assert_eq!(unless_stuck(patience, || thread::sleep(Duration::from_secs(60))), None);
        let works = || {
            let start = Instant::now();
            while start.elapsed() < Duration::from_secs(2) {
                thread::sleep(Duration::from_millis(20));
            }
            7
        };
        assert_eq!(unless_stuck(patience, works), Some(7));
    }
}
