//! Ctrl-C: a request to stop that every wait of a trial sees, and the process groups and containers to end
//! when it comes twice.
//!
//! `commands/compare` turns signals into [`Interrupt::set`] and [`Groups::kill_all`]; `run` and
//! `launch` ask. Nothing here installs a handler.

use super::container::Running;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How soon a wait sees that it should end.
const STEP: Duration = Duration::from_millis(20);

/// Whether the trial should end.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Asks the trial to end.
    pub fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether somebody asked.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Waits until `done` gives something, the deadline passes (`None`), or somebody asks to stop
    /// (`None`, and [`Interrupt::is_set`] tells which).
    pub fn wait_for<T>(&self, limit: Duration, mut done: impl FnMut() -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(value) = done() {
                return Some(value);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.is_set() {
                return None;
            }
            std::thread::sleep(left.min(STEP));
        }
    }
}

/// The process groups and containers that were started and have not been stopped.
#[derive(Debug, Clone, Default)]
pub struct Groups(Arc<Mutex<BTreeSet<i32>>>, Arc<Mutex<BTreeMap<String, Running>>>);

impl Groups {
    fn with<T>(&self, change: impl FnOnce(&mut BTreeSet<i32>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A group was started.
    pub fn add(&self, leader: u32) {
        self.with(|groups| groups.insert(leader as i32));
    }

    /// A group is gone.
    pub fn remove(&self, leader: u32) {
        self.with(|groups| groups.remove(&(leader as i32)));
    }

    fn with_containers<T>(&self, change: impl FnOnce(&mut BTreeMap<String, Running>) -> T) -> T {
        change(&mut self.1.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A container was started.
    pub fn add_container(&self, container: &Running) {
        self.with_containers(|all| all.insert(container.name.clone(), container.clone()));
    }

    /// Removes a container.
    pub fn remove_container(&self, container: &Running) {
        container.remove();
        self.with_containers(|all| all.remove(&container.name));
    }

    /// Kills all of them at once. A group or a container that ended by itself is no error.
    pub fn kill_all(&self) {
        self.with(|groups| {
            for leader in groups.iter() {
                let _ = killpg(Pid::from_raw(*leader), Signal::SIGKILL);
            }
        });
        self.with_containers(|containers| containers.values().for_each(Running::remove));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_by_success_deadline_or_interrupt() {
        let interrupt = Interrupt::default();
        assert_eq!(interrupt.wait_for(Duration::from_secs(9), || Some(1)), Some(1));
        assert_eq!(interrupt.wait_for(Duration::from_millis(1), || None::<u8>), None);
        interrupt.set();
        let started = Instant::now();
        assert_eq!(interrupt.wait_for(Duration::from_secs(9), || None::<u8>), None);
        assert!(started.elapsed() < Duration::from_secs(1));
    }
}
