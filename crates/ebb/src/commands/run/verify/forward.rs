//! Passes signals that were sent to `ebb` on to the program that it stands for.
//!
//! A signal from the terminal is not passed on: it has reached the whole foreground group already.
//! A signal that is ignored stays ignored, for us and for the program (nohup).

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGALRM, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::iterator::{Handle, SignalsInfo};
use signal_hook::low_level::siginfo::Cause;

use crate::exit::Failure;
use ebb_process::inherited;

/// What service managers and operators send. SIGKILL and SIGSTOP cannot be passed on.
const FORWARDED: [i32; 9] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGCONT, SIGWINCH];

/// Catches the signals from [`Forwarder::install`] on and delivers them from [`Forwarder::start`] on,
/// also signals that came in between.
pub(super) struct Forwarder {
    signals: Option<SignalsInfo<WithOrigin>>,
    handle: Handle,
    /// Empty when the program may have been reaped.
    target: Arc<Mutex<Option<Pid>>>,
}

impl Forwarder {
    pub(super) fn install() -> Result<Self, Failure> {
        let wanted = FORWARDED.into_iter().filter(|&signal| !inherited::is_ignored(signal));
        let signals = SignalsInfo::<WithOrigin>::new(wanted)?;
        Ok(Self { handle: signals.handle(), signals: Some(signals), target: Arc::new(Mutex::new(None)) })
    }

    pub(super) fn start(&mut self, pid: Pid) -> Result<(), Failure> {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = Some(pid);
        let target = Arc::clone(&self.target);
        let Some(mut signals) = self.signals.take() else {
            return Ok(());
        };
        thread::Builder::new().name("ebb-signals".to_owned()).spawn(move || {
            for origin in signals.forever() {
                if !matches!(origin.cause, Cause::Sent(_)) {
                    continue;
                }
                let target = target.lock().unwrap_or_else(PoisonError::into_inner);
                if let (Some(pid), Ok(signal)) = (*target, Signal::try_from(origin.signal)) {
                    // It fails only for one that has just ended, or became another user's.
                    let _ = kill(pid, signal);
                }
            }
        })?;
        Ok(())
    }

    pub(super) fn stop(&self) {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.handle.close();
    }
}
