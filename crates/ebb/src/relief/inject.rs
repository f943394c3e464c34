//! A call of malloc_trim in a process on glibc: what `ebb-inject` does, in the words of our facts.

use std::time::Duration;

use ebb_diagnosis::facts::trim::{Call, Cost, Left, Reason};

#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
pub use here::{cost, malloc_trim, remote_malloc_trim};

/// Why there was no call by CPython.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotDone {
    /// This process has no such way, for this reason.
    Unoffered(String),
    /// It has, and it came to nothing.
    #[cfg_attr(
        not(all(target_arch = "x86_64", target_env = "gnu")),
        expect(dead_code, reason = "only x86-64 has the call")
    )]
    Left(Left),
}

#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod here {
    use super::{Call, Cost, Duration, Left, NotDone, Reason};
    use ebb_diagnosis::facts::trim::Route;
    use ebb_inject::remote::{self, NotRun};
    use ebb_inject::{Function, NotCalled, function::NotFound};
    use ebb_inspect::{Target, Unreadable};

    /// Calls malloc_trim in process `pid`, by the first of its threads that is at a safe place within `patience`.
    pub fn malloc_trim(pid: i32, patience: Duration) -> Result<Call, Left> {
        let target = Target::open(pid).map_err(|error| unreadable(&error))?;
        let function = Function::malloc_trim(&target).map_err(|error| match error {
            NotFound::Heap(ebb_inspect::Unsupported::Unreadable(error)) => unreadable(&error),
            error => left(Reason::CannotTrim, error.to_string(), None),
        })?;
        let called = ebb_inject::call(&target, &function, patience).map_err(not_called)?;
        Ok(Call {
            route: Route::Inject,
            thread: called.tid,
            stopped_s: Some(called.stopped.as_secs_f64()),
            waited_s: None,
            ran_s: called.ran.map(|ran| ran.as_secs_f64()),
            attempts: called.attempts,
        })
    }

    /// Has the interpreter in process `pid` call malloc_trim, if its main thread comes by within `patience`.
    pub fn remote_malloc_trim(pid: i32, patience: Duration) -> Result<Call, NotDone> {
        let target = Target::open(pid).map_err(|error| not_run(error.into()))?;
        let ran = remote::malloc_trim(&target, patience).map_err(not_run)?;
        Ok(Call {
            route: Route::RemoteExec,
            thread: ran.thread,
            stopped_s: None,
            waited_s: Some(ran.waited.as_secs_f64()),
            ran_s: ran.ran.map(|ran| ran.as_secs_f64()),
            attempts: 1,
        })
    }

    /// What returning memory costs on this machine, where it can be measured.
    pub fn cost() -> Option<Cost> {
        let cost = ebb_inject::Cost::measure().ok()?;
        Some(Cost { call_s: cost.call.as_secs_f64(), page_s: cost.page.as_secs_f64(), page_bytes: procfs::page_size() })
    }

    fn not_called(error: NotCalled) -> Left {
        let (reason, remedy) = match &error {
            NotCalled::Gone => (Reason::Gone, None),
            NotCalled::Refused(gate) => (Reason::NoRight, Some(gate.remedy())),
            NotCalled::Unfit(_) => (Reason::Unfit, None),
            NotCalled::NoThread(_) => (Reason::NoPlace, Some("try again, or wait longer with --wait".to_owned())),
            NotCalled::Other(_) => (Reason::NotRead, None),
        };
        left(reason, error.to_string(), remedy)
    }

    fn not_run(error: NotRun) -> NotDone {
        let (reason, remedy) = match &error {
            NotRun::Unoffered(why) => return NotDone::Unoffered(why.clone()),
            NotRun::Gone => (Reason::Gone, None),
            NotRun::Refused(gate) => (Reason::NoRight, Some(gate.remedy())),
            NotRun::NoThread { .. } => {
                (Reason::NoPlace, Some("try again, wait longer with --wait, or --inject".to_owned()))
            }
            NotRun::Failed(_) => (Reason::Unfit, Some("--inject calls malloc_trim without Python's help".to_owned())),
        };
        NotDone::Left(left(reason, error.to_string(), remedy))
    }

    fn unreadable(error: &Unreadable) -> Left {
        let reason = match error {
            Unreadable::Gone => Reason::Gone,
            Unreadable::Refused => Reason::NoRight,
            _ => Reason::NotRead,
        };
        left(reason, error.to_string(), None)
    }

    fn left(reason: Reason, why: String, remedy: Option<String>) -> Left {
        Left { reason, why, remedy }
    }
}

/// Calls malloc_trim in a process: not here.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")))]
pub fn malloc_trim(_: i32, _: Duration) -> Result<Call, Left> {
    Err(Left {
        reason: Reason::CannotTrim,
        why: "--inject works on x86-64 with glibc only".to_owned(),
        remedy: Some("call malloc_trim(0) in the program".to_owned()),
    })
}

/// Has an interpreter call malloc_trim: not here.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")))]
pub fn remote_malloc_trim(_: i32, _: Duration) -> Result<Call, NotDone> {
    Err(NotDone::Unoffered("remote execution works on x86-64 with glibc only".to_owned()))
}

/// What returning memory costs: not measured here.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")))]
pub fn cost() -> Option<Cost> {
    None
}
