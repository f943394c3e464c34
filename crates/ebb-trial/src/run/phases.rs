//! The phases of a run: loads, rests, and what is recorded at their ends.

use super::context::{RunContext, RunError, TrialContext, failed, file_name, note};
use super::health::Health;
use super::request;
use crate::disturbance::LoadPhases;
use crate::launch::{self, Process};
use crate::results::{Live, LoadResult, Mark, PhaseKind, PhaseSpan, Run};
use crate::sampler::Sampler;
use crate::workload::{Job, Phase};
use crate::{load, summary};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

const LOAD_LIMIT_S: f64 = 600.0;
const PREPARE_LIMIT_S: f64 = 300.0;

/// The clock of a run, and what watches its service.
pub(super) struct Monitors<'a> {
    /// The moment that times count from.
    pub zero: Instant,
    /// Takes samples since then.
    pub sampler: &'a Sampler,
    /// Requests the service's health address under load.
    pub health: Option<&'a Health>,
    /// What the machine does while a load counts.
    pub loaded: &'a mut LoadPhases,
}

impl RunContext<'_> {
    pub(super) fn prepare(&self, job: &Job, service: &mut Process) -> Result<(), RunError> {
        let mut process = self.launch("prepare", &job.command, "prepare")?;
        let limit = Duration::from_secs_f64(job.timeout_s.unwrap_or(PREPARE_LIMIT_S));
        let status = self.finish_while_serving(&mut process, service, limit)?;
        succeeded(&process, status)
    }

    /// Waits until a command ends. If the service ends first, that is the failure.
    fn finish_while_serving(
        &self,
        process: &mut Process,
        service: &mut Process,
        limit: Duration,
    ) -> Result<ExitStatus, RunError> {
        let ended = self.interrupt.wait_for(limit, || match service.ended() {
            Some(status) => Some(Err(format!("{} {} during {}", service.name, launch::describe(status), process.name))),
            None => process.ended().map(Ok),
        });
        match ended {
            Some(Err(reason)) => Err(failed(reason, service)),
            Some(Ok(status)) => Ok(status),
            None if self.interrupt.is_set() => Err(RunError::Interrupted),
            None => Err(failed(format!("{} was not finished after {} s", process.name, limit.as_secs_f64()), process)),
        }
    }

    /// Runs one phase and returns its length in seconds.
    pub(super) fn step(
        &mut self,
        trial: &TrialContext,
        phase: &Phase,
        round: u32,
        service: &mut Process,
        monitors: &mut Monitors,
        record: &mut Run,
    ) -> Result<f64, RunError> {
        self.define("cycle", round.to_string());
        let from_s = monitors.zero.elapsed().as_secs_f64();
        if let Some(health) = monitors.health {
            health.under_load(phase.kind.counts());
        }
        let machine = || {
            let counts = phase.kind.counts();
            counts.then(|| trial.observer.machine()).flatten()
        };
        let before = machine();
        let ended = match phase.kind {
            PhaseKind::Idle => self.idle(phase, service).map(|()| None),
            _ => self.load(phase, round, service, record),
        };
        let to_s = monitors.zero.elapsed().as_secs_f64();
        monitors.loaded.add(before, machine());
        if let Some(health) = monitors.health {
            health.under_load(false);
        }
        // A phase that was broken off is kept too, without the load's figures.
        record.phases.push(PhaseSpan {
            name: phase.name.clone(),
            kind: phase.kind,
            round,
            from_s,
            to_s,
            load: ended.as_ref().ok().cloned().flatten(),
        });
        ended?;
        if let Some(name) = &phase.mark {
            let bytes = summary::memory_at_end(&monitors.sampler.so_far(), trial.metric, from_s, to_s);
            record.marks.push(Mark { name: name.clone(), round, at_s: to_s, bytes: bytes.map(|bytes| bytes as u64) });
        }
        if let (PhaseKind::Idle, Some(live)) = (phase.kind, &self.workload.live) {
            let answer = request::send(self, live, "GET").and_then(|answer| request::live_bytes(&answer));
            match answer {
                Ok(bytes) => record.live.push(Live { at_s: monitors.zero.elapsed().as_secs_f64(), bytes }),
                Err(reason) => note(record, format!("live heap unknown: {reason}")),
            }
        }
        Ok(to_s - from_s)
    }

    fn idle(&self, phase: &Phase, service: &mut Process) -> Result<(), RunError> {
        if let Some(question) = &phase.ask {
            request::send(self, question, "POST")
                .map_err(|reason| failed(format!("the `ask` of phase \"{}\": {reason}", phase.name), service))?;
        }
        let seconds = phase.idle_seconds(&self.values)?.unwrap_or(0.0);
        let died = self.interrupt.wait_for(Duration::from_secs_f64(seconds), || service.ended());
        match died {
            Some(status) => {
                let reason = format!("{} {} during {}", service.name, launch::describe(status), phase.name);
                Err(failed(reason, service))
            }
            None if self.interrupt.is_set() => Err(RunError::Interrupted),
            None => Ok(()),
        }
    }

    fn load(
        &self,
        phase: &Phase,
        round: u32,
        service: &mut Process,
        record: &mut Run,
    ) -> Result<Option<LoadResult>, RunError> {
        let command = phase.command.as_deref().unwrap_or_default();
        let file = format!("{}-{round}", file_name(&phase.name));
        let name = format!("the load of phase \"{}\"", phase.name);
        let mut process = self.launch(&name, command, &file)?;
        let limit = Duration::from_secs_f64(phase.timeout_s.unwrap_or(LOAD_LIMIT_S));
        let status = self.finish_while_serving(&mut process, service, limit)?;
        let result = load::read(&process.output(), &process.errors());
        match (&result, succeeded(&process, status)) {
            (_, Ok(())) => {}
            // A tool says with its status that some requests failed; its summary has the number.
            (Ok(load), Err(_)) if load.tool.is_some() && load.requests > 0 => {
                note(record, format!("{name} {}; its summary counts", launch::describe(status)))
            }
            (_, Err(end)) => return Err(end),
        }
        match result {
            Ok(load) if load.requests == 0 && load.errors > 0 => {
                let reason = format!("{name}: none of its {} requests was answered", load.errors);
                Err(failed(reason, &process))
            }
            Ok(load) => Ok(Some(load)),
            Err(_) if phase.kind == PhaseKind::Warmup => Ok(None),
            Err(reason) => {
                note(record, format!("throughput not read: {name}: {reason}"));
                Ok(None)
            }
        }
    }
}

fn succeeded(process: &Process, status: ExitStatus) -> Result<(), RunError> {
    if status.success() {
        return Ok(());
    }
    let reason = format!("{} {}", process.name, launch::describe(status));
    Err(failed(reason, process))
}
