//! One run: companions, service, phases, trim, stop.
//!
//! Called by the engine for each variant and repetition. Whatever happens, what was measured is kept
//! in the [`Run`], and everything that was started is gone when it returns.

use super::disturbance::{self, LoadPhases};
use super::launch::{self, Launch, Process};
use super::sampler::{Sampler, ServiceCgroup};
use super::schedule::Step;
use super::summary;
use super::template;
use super::variant::{Prepared, VariantSpec};
use super::workload::Companion;
use crate::results::{Oom, Outcome, PhaseKind, Run, Trim};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

mod context;
mod health;
mod phases;
mod request;

pub use context::TrialContext;

pub(crate) use context::note;
use context::{RunContext, RunError, failed, file_name};
use health::Health;
use phases::Monitors;
use request::until_ready;

/// After a malloc_trim, before memory is read: the kernel frees at once, but the answer may be written
/// before other processes of the tree have trimmed.
const AFTER_TRIM: Duration = Duration::from_millis(200);

/// Runs one variant once. `on_step` is called when a phase begins, and with its length when it ends.
pub fn run(trial: &TrialContext, variant: &Prepared, repetition: u32, on_step: &mut dyn FnMut(StepEvent)) -> Run {
    let mut record = Run::new(repetition);
    let before = trial.observer.machine();
    let mut loaded = LoadPhases::default();
    let run_mark = format!("{}-{}-{repetition}", std::process::id(), variant.spec.name);
    // The cgroup is dropped after its processes have ended.
    let run_cgroup = trial.cgroups.map(|cgroups| cgroups.create(&run_mark)).transpose();
    let ended =
        run_cgroup.as_ref().map_err(|reason| RunError::from(format!("its cgroup: {reason}"))).and_then(|run_cgroup| {
            let procs_files = run_cgroup.as_ref().map_or(Vec::new(), |made| made.procs_files());
            let (context, _dir) = RunContext::create(trial, variant, repetition, run_mark.clone())?;
            let mut recorder = Recorder { record: &mut record, loaded: &mut loaded, on_step };
            context.execute(trial, variant, &procs_files, &mut recorder)
        });
    launch::kill_strays(&run_mark);
    drop(run_cgroup);
    record.outcome = match ended {
        Ok(()) => Outcome::Complete,
        // What failed because it was being stopped did not fail.
        Err(RunError::Interrupted | RunError::Failed { .. }) if trial.interrupt.is_set() => Outcome::Interrupted,
        Err(RunError::Interrupted) => Outcome::Interrupted,
        Err(RunError::Discarded(reason)) => Outcome::Discarded { reason },
        Err(RunError::Failed { reason, last_lines }) => {
            Outcome::Failed { reason: oom_in_words(&record).unwrap_or(reason), last_lines }
        }
    };
    record.measures = summary::measure(&record, trial.metric);
    record.slope = summary::rest_slope(&record, trial.metric);
    record.disturbance = loaded.max_with(disturbance::between(before, trial.observer.machine()));
    record
}

/// Starts the service as it is and, when it is ready, calls `look` with its number. The error has its last lines.
pub fn first_look<T>(trial: &TrialContext, look: impl FnOnce(u32) -> T) -> Result<T, (String, Vec<String>)> {
    let spec = VariantSpec { name: "first-look".to_owned(), ..VariantSpec::default() };
    let run_mark = format!("{}-{}", std::process::id(), spec.name);
    let variant = Prepared::as_it_is(spec);
    let looked = (|| {
        let (context, _dir) = RunContext::create(trial, &variant, 0, run_mark.clone())?;
        let companions = context.start_companions()?;
        request::check_address_free(&context, &context.workload.service.ready)?;
        let mut service = context.start_service(&variant, &[])?;
        let limit = Duration::from_secs_f64(context.workload.service.ready_timeout_s);
        let ready = &context.workload.service.ready;
        service
            .find_container(limit, &trial.interrupt)
            .and_then(|()| until_ready(&context, ready, &mut service, limit))
            .map_err(|reason| failed(reason, &service))?;
        let seen = look(service.pid());
        service.stop(Duration::from_secs_f64(context.workload.service.stop_timeout_s));
        drop((service, companions));
        Ok(seen)
    })();
    launch::kill_strays(&run_mark);
    looked.map_err(|error| match error {
        RunError::Failed { reason, last_lines } => (reason, last_lines),
        RunError::Discarded(reason) => (reason, Vec::new()),
        RunError::Interrupted => ("it was interrupted".to_owned(), Vec::new()),
    })
}

/// Where a run puts its results while it goes on.
struct Recorder<'a> {
    record: &'a mut Run,
    loaded: &'a mut LoadPhases,
    on_step: &'a mut dyn FnMut(StepEvent),
}

/// Progress of a run.
#[derive(Debug, Clone, Copy)]
pub enum StepEvent {
    /// The step of this index begins.
    Begins(usize),
    /// The step of this index took this long.
    Took(usize, f64),
}

impl RunContext<'_> {
    fn execute(
        mut self,
        trial: &TrialContext,
        variant: &Prepared,
        procs_files: &[PathBuf],
        recorder: &mut Recorder,
    ) -> Result<(), RunError> {
        // Stopped in reverse order of their start, also when something on the way fails.
        let _companions = self.start_companions()?;
        request::check_address_free(&self, &self.workload.service.ready)?;
        let started = Instant::now();
        let mut service = self.start_service(variant, procs_files)?;
        let limit = Duration::from_secs_f64(self.workload.service.ready_timeout_s);
        service.find_container(limit, &trial.interrupt).map_err(|reason| failed(reason, &service))?;
        let cgroup = trial.observer.cgroup(service.pid());
        let kills = || cgroup.as_ref().and_then(|cgroup| cgroup.oom_kills());
        let kills_before = kills();
        recorder.record.limit_bytes = cgroup.as_ref().and_then(|cgroup| cgroup.limit_bytes());
        let start = ServiceStart { at: started, cgroup: cgroup.clone() };
        let result = self.run_service(trial, variant, &mut service, start, recorder);
        service.stop(Duration::from_secs_f64(self.workload.service.stop_timeout_s));
        let record = &mut *recorder.record;
        let counted = Option::zip(kills_before, kills()).map(|(before, now)| now - before);
        // The cgroup of a container may be gone; its engine remembers.
        let killed = counted.or_else(|| service.was_oom_killed().then_some(1));
        record.oom = killed.filter(|kills| *kills > 0).map(|kills| Oom {
            // A service that is gone at once is gone before the next sample: its phase ended there.
            at_s: record.oom.and_then(|oom| oom.at_s).or(record.phases.last().map(|phase| phase.to_s)),
            kills,
            limit_bytes: record.limit_bytes.or(trial.container.and_then(|container| container.limits.memory_max_bytes)),
        });
        result
    }

    fn run_service(
        &mut self,
        trial: &TrialContext,
        variant: &Prepared,
        service: &mut Process,
        start: ServiceStart,
        recorder: &mut Recorder,
    ) -> Result<(), RunError> {
        let Recorder { record, loaded, on_step } = recorder;
        let limit = Duration::from_secs_f64(self.workload.service.ready_timeout_s);
        until_ready(self, &self.workload.service.ready, service, limit).map_err(|reason| failed(reason, service))?;
        let pid = service.pid();
        self.define("pid", pid.to_string());
        let zero = Instant::now();
        record.ready_after_s = Some((zero - start.at).as_secs_f64());
        let in_charge = || trial.observer.in_charge(pid, variant).map_err(RunError::Discarded);
        in_charge()?;
        if let Some(prepare) = &self.workload.prepare {
            self.prepare(prepare, service)?;
        }
        // Times count from here: filling a database is not part of the figures.
        let zero = Instant::now();
        let cgroup = start.cgroup;
        let throttled = || cgroup.as_ref().and_then(|cgroup| cgroup.throttled_s());
        let throttled_before = throttled();
        let sampler = Sampler::start(trial.observer.clone(), pid, zero, trial.interval, cgroup.clone());
        let health = match self.workload.service.health() {
            Some(url) => Some(Health::start(self.fill(url)?, zero)),
            None => None,
        };
        let mut monitors = Monitors { zero, sampler: &sampler, health: health.as_ref(), loaded };
        let is_rest = |step: &Step| self.workload.phases[step.phase].kind == PhaseKind::Idle;
        let last_rest = trial.steps.iter().rposition(is_rest);
        let result = (|| -> Result<(), RunError> {
            for (index, step) in trial.steps.iter().enumerate() {
                on_step(StepEvent::Begins(index));
                let phase = &self.workload.phases[step.phase];
                if variant.spec.trim_once && last_rest == Some(index) {
                    trial
                        .observer
                        .trim(pid)
                        .map_err(|reason| RunError::Discarded(format!("malloc_trim from outside: {reason}")))?;
                }
                let seconds = self.step(trial, phase, step.round, service, &mut monitors, record)?;
                on_step(StepEvent::Took(index, seconds));
                in_charge()?;
            }
            Ok(())
        })();
        record.instruments = trial.observer.instruments(pid);
        let seen = sampler.finish();
        record.samples = seen.samples;
        record.oom = seen.oom_at_s.map(|at_s| Oom { at_s: Some(at_s), kills: 1, limit_bytes: None });
        record.health = health.map_or(Vec::new(), Health::finish);
        record.throttled_s = Option::zip(throttled(), throttled_before).map(|(now, before)| now - before);
        result?;
        if variant.spec.is_libc() {
            record.free = trial.observer.free_memory(pid);
            self.trim(trial, pid, record);
        }
        Ok(())
    }

    /// Memory before and after a malloc_trim(0) in the service, read from outside.
    fn trim(&self, trial: &TrialContext, pid: u32, record: &mut Run) {
        let Some(trim) = &self.workload.trim else {
            return;
        };
        let memory = || trial.observer.sample(pid).and_then(|seen| trial.metric.of(&seen.sample));
        let before = memory();
        let answer = request::send(self, trim, "POST");
        std::thread::sleep(AFTER_TRIM);
        match (answer, before, memory()) {
            (Ok(_), Some(before_bytes), Some(after_bytes)) => record.trim = Some(Trim { before_bytes, after_bytes }),
            (Err(reason), _, _) => note(record, format!("malloc_trim not measured: {reason}")),
            _ => note(record, "malloc_trim not measured: the memory could not be read".into()),
        }
    }
}

/// The companions of a run with their stop timeouts; stopped in reverse order when dropped.
struct Companions(Vec<(Process, f64)>);

impl Drop for Companions {
    fn drop(&mut self) {
        for (process, grace_s) in self.0.iter_mut().rev() {
            process.stop(Duration::from_secs_f64(*grace_s));
        }
    }
}

impl RunContext<'_> {
    fn start_companions(&self) -> Result<Companions, RunError> {
        let mut companions = Companions(Vec::new());
        for companion in &self.workload.companions {
            companions.0.push((self.start_companion(companion)?, companion.stop_timeout_s));
        }
        Ok(companions)
    }

    fn start_companion(&self, companion: &Companion) -> Result<Process, RunError> {
        let name = format!("companion {}", companion.name);
        let mut env = self.env.clone();
        env.extend(self.fill_map(&companion.env)?);
        let log = self.logs.join(format!("companion-{}.log", file_name(&companion.name)));
        let command = template::fill_all(&companion.command, &self.values)?;
        let launch = Launch::new(name, command, &self.workload.dir, &env, &self.run_mark, log);
        let mut process = launch.start(&self.groups)?;
        if let Some(ready) = &companion.ready {
            let limit = Duration::from_secs_f64(companion.ready_timeout_s);
            until_ready(self, ready, &mut process, limit).map_err(|reason| failed(reason, &process))?;
        }
        Ok(process)
    }
}

/// When the service was started, and its cgroup.
struct ServiceStart {
    at: Instant,
    cgroup: Option<Arc<dyn ServiceCgroup>>,
}

/// That a run failed because processes of it were killed for lack of memory.
fn oom_in_words(record: &Run) -> Option<String> {
    let oom = record.oom?;
    let when = match (oom.at_s, record.phases.last()) {
        (Some(at_s), Some(phase)) => format!("{at_s:.0} s after readiness, during {}", phase.name),
        _ => "before it was ready".into(),
    };
    let limit = oom.limit_bytes.map_or(String::new(), |bytes| format!(" (limit {:.0} MB)", bytes as f64 / 1e6));
    Some(format!("the service was OOM-killed {when}{limit}"))
}
