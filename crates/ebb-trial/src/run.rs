//! One run: companions, service, phases, trim, stop.
//!
//! Called by the engine for each variant and repetition. Whatever happens, what was measured is kept
//! in the [`Run`], and everything that was started is gone when it returns.

use super::disturbance::{self, Loaded};
use super::launch::{self, Launch, Process};
use super::sampler::{Sampler, Surroundings};
use super::summary;
use super::template;
use super::variant::Prepared;
use super::workload::Companion;
use crate::results::{Oom, Outcome, Run, Trim};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

mod ask;
mod health;
mod phases;
mod scene;

pub use scene::Stage;

use ask::until_ready;
use health::Health;
use phases::Watch;
pub(crate) use scene::note;
use scene::{End, Scene, failed, file_name};

/// After a malloc_trim, before memory is read: the kernel frees at once, but the answer may be written
/// before other processes of the tree have trimmed.
const AFTER_TRIM: Duration = Duration::from_millis(200);

/// Runs one variant once. `on_step` hears of every phase that begins and of the seconds of the one
/// that ended.
pub fn run(
    stage: &Stage,
    variant: &Prepared,
    repetition: u32,
    on_step: &mut dyn FnMut(StepEvent),
) -> Run {
    let mut record = Run::new(repetition);
    let before = stage.observer.machine();
    let mut loaded = Loaded::default();
    let run_mark = format!("{}-{}-{repetition}", std::process::id(), variant.spec.name);
    // It outlives what is inside.
    let enclosure = stage.enclosures.map(|enclosures| enclosures.enclose(&run_mark)).transpose();
    let ended = enclosure
        .as_ref()
        .map_err(|reason| End::from(format!("its cgroup: {reason}")))
        .and_then(|enclosure| {
            let doors = enclosure.as_ref().map_or(Vec::new(), |made| made.doors());
            let (scene, _dir) = Scene::set(stage, variant, repetition, run_mark.clone())?;
            let mut told = Told { record: &mut record, loaded: &mut loaded, on_step };
            scene.play(stage, variant, &doors, &mut told)
        });
    launch::kill_strays(&run_mark);
    drop(enclosure);
    record.outcome = match ended {
        Ok(()) => Outcome::Complete,
        // What failed because it was being stopped did not fail.
        Err(End::Interrupted | End::Failed { .. }) if stage.interrupt.is_set() => {
            Outcome::Interrupted
        }
        Err(End::Interrupted) => Outcome::Interrupted,
        Err(End::Discarded(reason)) => Outcome::Discarded { reason },
        Err(End::Failed { reason, last_lines }) => {
            Outcome::Failed { reason: oom_in_words(&record).unwrap_or(reason), last_lines }
        }
    };
    record.measures = summary::measure(&record, stage.metric);
    record.slope = summary::rest_slope(&record, stage.metric);
    record.disturbance = loaded.or(disturbance::between(before, stage.observer.machine()));
    record
}

/// What becomes of a run while it is played.
struct Told<'a> {
    record: &'a mut Run,
    loaded: &'a mut Loaded,
    on_step: &'a mut dyn FnMut(StepEvent),
}

/// What `run` tells while it runs.
#[derive(Debug, Clone, Copy)]
pub enum StepEvent {
    /// The step of this index begins.
    Begins(usize),
    /// The step of this index took this long.
    Took(usize, f64),
}

impl Scene<'_> {
    fn play(
        mut self,
        stage: &Stage,
        variant: &Prepared,
        doors: &[PathBuf],
        told: &mut Told,
    ) -> Result<(), End> {
        // Stopped in reverse order of their start, also when something on the way fails.
        let mut companions = Companions(Vec::new());
        for companion in &self.workload.companions {
            companions.0.push((self.start_companion(companion)?, companion.stop_timeout_s));
        }
        ask::unoccupied(&self, &self.workload.service.ready)?;
        let started = Instant::now();
        let mut service = self.start_service(variant, doors)?;
        let surroundings = stage.observer.surroundings(service.pid());
        let kills = || surroundings.as_ref().and_then(|place| place.oom_kills());
        let kills_before = kills();
        let on_set = OnSet { started, surroundings: surroundings.clone() };
        let played = self.play_service(stage, variant, &mut service, on_set, told);
        service.stop(Duration::from_secs_f64(self.workload.service.stop_timeout_s));
        let record = &mut *told.record;
        record.oom = Option::zip(kills_before, kills()).filter(|(before, now)| now > before).map(
            |(before, now)| Oom {
                // A service that is gone at once is gone before the next sample: its phase ended there.
                at_s: record
                    .oom
                    .and_then(|oom| oom.at_s)
                    .or(record.phases.last().map(|phase| phase.to_s)),
                kills: now - before,
                limit_bytes: surroundings.as_ref().and_then(|place| place.limit_bytes()),
            },
        );
        played
    }

    fn play_service(
        &mut self,
        stage: &Stage,
        variant: &Prepared,
        service: &mut Process,
        on_set: OnSet,
        told: &mut Told,
    ) -> Result<(), End> {
        let Told { record, loaded, on_step } = told;
        let limit = Duration::from_secs_f64(self.workload.service.ready_timeout_s);
        until_ready(self, &self.workload.service.ready, service, limit)
            .map_err(|reason| failed(reason, service))?;
        let pid = service.pid();
        self.define("pid", pid.to_string());
        let zero = Instant::now();
        record.ready_after_s = Some((zero - on_set.started).as_secs_f64());
        let in_charge = || stage.observer.in_charge(pid, variant).map_err(End::Discarded);
        in_charge()?;
        if let Some(prepare) = &self.workload.prepare {
            self.prepare(prepare, service)?;
        }
        // Times count from here: filling a database is not part of the figures.
        let zero = Instant::now();
        let surroundings = on_set.surroundings;
        let throttled = || surroundings.as_ref().and_then(|place| place.throttled_s());
        let throttled_before = throttled();
        let sampler =
            Sampler::start(stage.observer.clone(), pid, zero, stage.interval, surroundings.clone());
        let health = match self.workload.service.health() {
            Some(url) => Some(Health::start(self.fill(url)?, zero)),
            None => None,
        };
        let mut watch = Watch { zero, sampler: &sampler, health: health.as_ref(), loaded };
        let played = (|| -> Result<(), End> {
            for (index, step) in stage.steps.iter().enumerate() {
                on_step(StepEvent::Begins(index));
                let phase = &self.workload.phases[step.phase];
                let seconds = self.step(stage, phase, step.round, service, &mut watch, record)?;
                on_step(StepEvent::Took(index, seconds));
                in_charge()?;
            }
            Ok(())
        })();
        record.instruments = stage.observer.instruments(pid);
        let seen = sampler.finish();
        record.samples = seen.samples;
        record.oom =
            seen.oom_at_s.map(|at_s| Oom { at_s: Some(at_s), kills: 1, limit_bytes: None });
        record.health = health.map_or(Vec::new(), Health::finish);
        record.throttled_s =
            Option::zip(throttled(), throttled_before).map(|(now, before)| now - before);
        played?;
        if variant.spec.is_libc() {
            self.trim(stage, pid, record);
        }
        Ok(())
    }

    /// Memory before and after a malloc_trim(0) in the service, read from outside.
    fn trim(&self, stage: &Stage, pid: u32, record: &mut Run) {
        let Some(trim) = &self.workload.trim else {
            return;
        };
        let memory = || stage.observer.sample(pid).and_then(|seen| stage.metric.of(&seen.sample));
        let before = memory();
        let asked = ask::ask(self, trim, "POST");
        std::thread::sleep(AFTER_TRIM);
        match (asked, before, memory()) {
            (Ok(_), Some(before_bytes), Some(after_bytes)) => {
                record.trim = Some(Trim { before_bytes, after_bytes })
            }
            (Err(reason), _, _) => note(record, format!("malloc_trim not measured: {reason}")),
            _ => note(record, "malloc_trim not measured: the memory could not be read".into()),
        }
    }
}

/// The companions of a run with their grace; stopped last first when dropped.
struct Companions(Vec<(Process, f64)>);

impl Drop for Companions {
    fn drop(&mut self) {
        for (process, grace_s) in self.0.iter_mut().rev() {
            process.stop(Duration::from_secs_f64(*grace_s));
        }
    }
}

impl Scene<'_> {
    fn start_companion(&self, companion: &Companion) -> Result<Process, End> {
        let name = format!("companion {}", companion.name);
        let mut env = self.env.clone();
        env.extend(self.fill_map(&companion.env)?);
        let log = self.logs.join(format!("companion-{}.log", file_name(&companion.name)));
        let command = template::fill_all(&companion.command, &self.values)?;
        let launch = Launch::new(name, command, &self.workload.dir, &env, &self.run_mark, log);
        let mut process = launch.start(&self.groups)?;
        if let Some(ready) = &companion.ready {
            let limit = Duration::from_secs_f64(companion.ready_timeout_s);
            until_ready(self, ready, &mut process, limit)
                .map_err(|reason| failed(reason, &process))?;
        }
        Ok(process)
    }
}

/// What the service of a run stands on.
struct OnSet {
    started: Instant,
    surroundings: Option<Arc<dyn Surroundings>>,
}

/// That a run failed because processes of it were killed for lack of memory.
fn oom_in_words(record: &Run) -> Option<String> {
    let oom = record.oom?;
    let when = match (oom.at_s, record.phases.last()) {
        (Some(at_s), Some(phase)) => format!("{at_s:.0} s after readiness, during {}", phase.name),
        _ => "before it was ready".into(),
    };
    let limit = oom
        .limit_bytes
        .map_or(String::new(), |bytes| format!(" (limit {:.0} MB)", bytes as f64 / 1e6));
    Some(format!("the service was OOM-killed {when}{limit}"))
}
