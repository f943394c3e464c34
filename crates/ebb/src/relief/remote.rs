//! A call of malloc_trim by CPython's own remote execution: what `ebb-inject` does, in the words of our facts.

use std::time::Duration;

use ebb_diagnosis::facts::trim::{Call, Left};

/// Why there was no call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotDone {
    /// This process has no such way, for this reason.
    Unoffered(String),
    /// It has, and it came to nothing.
    Left(Left),
}

/// Has the interpreter in process `pid` call malloc_trim, if its main thread comes by within `patience`.
pub fn malloc_trim(pid: i32, patience: Duration) -> Result<Call, NotDone> {
    here::malloc_trim(pid, patience)
}

#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod here {
    use std::time::Duration;

    use ebb_inject::remote::{self, NotRun};
    use ebb_inspect::Target;

    use super::NotDone;
    use ebb_diagnosis::facts::trim::{Call, Left, Reason, Route};

    pub fn malloc_trim(pid: i32, patience: Duration) -> Result<Call, NotDone> {
        let target = Target::open(pid).map_err(|error| not_done(error.into()))?;
        let ran = remote::malloc_trim(&target, patience).map_err(not_done)?;
        Ok(Call {
            route: Route::RemoteExec,
            thread: ran.thread,
            stopped_s: None,
            waited_s: Some(ran.waited.as_secs_f64()),
            ran_s: ran.ran.map(|ran| ran.as_secs_f64()),
            attempts: 1,
        })
    }

    fn not_done(error: NotRun) -> NotDone {
        let (reason, remedy) = match &error {
            NotRun::Unoffered(why) => return NotDone::Unoffered(why.clone()),
            NotRun::Gone => (Reason::Gone, None),
            NotRun::Refused(gate) => (Reason::NoRight, Some(gate.remedy())),
            NotRun::NoThread { .. } => (
                Reason::NoPlace,
                Some("try again, wait longer with --wait, or --inject".to_owned()),
            ),
            NotRun::Failed(_) => {
                (Reason::Unfit, Some("--inject calls malloc_trim without Python's help".to_owned()))
            }
        };
        NotDone::Left(Left { reason, why: error.to_string(), remedy })
    }
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")))]
mod here {
    use std::time::Duration;

    use super::NotDone;
    use ebb_diagnosis::facts::trim::Call;

    pub fn malloc_trim(_: i32, _: Duration) -> Result<Call, NotDone> {
        Err(NotDone::Unoffered("remote execution works on x86-64 with glibc only".to_owned()))
    }
}
