//! One run: companions, service, phases, trim, stop.
//!
//! Called by the engine for each variant and repetition. Whatever happens, what was measured is kept
//! in the [`Run`], and everything that was started is gone when it returns.

use super::ask::{self, until_ready};
use super::interrupt::{Groups, Interrupt};
use super::launch::{self, Launch, Process};
use super::sampler::{Observer, Sampler};
use super::schedule::Step;
use super::template::{self, Values};
use super::variant::VariantSpec;
use super::workload::{Companion, Job, Phase, Workload};
use super::{load, summary};
use crate::facts::trial::{
    Live, LoadResult, Mark, Measures, Metric, Outcome, PhaseKind, PhaseSpan, Run, Trim,
};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const LOAD_LIMIT_S: f64 = 600.0;
const PREPARE_LIMIT_S: f64 = 300.0;
/// After a malloc_trim, before memory is read: the kernel frees at once, but the answer may be written
/// before other processes of the tree have trimmed.
const AFTER_TRIM: Duration = Duration::from_millis(200);

/// A variant with the library that was found for it.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// What was asked for.
    pub spec: VariantSpec,
    /// What is preloaded.
    pub library: Option<PathBuf>,
    /// Why it cannot be run.
    pub unavailable: Option<String>,
}

/// What all runs of a trial have in common.
pub struct Stage<'a> {
    /// What is driven.
    pub workload: &'a Workload,
    /// The phases in order.
    pub steps: &'a [Step],
    /// Looks at the processes.
    pub observer: Arc<dyn Observer>,
    /// Whether to stop.
    pub interrupt: Interrupt,
    /// What to kill when asked twice.
    pub groups: Groups,
    /// Which memory counts.
    pub metric: Metric,
    /// Between two samples.
    pub interval: Duration,
    /// Where the logs go.
    pub logs: &'a Path,
}

/// Why a run did not come to its end.
enum End {
    Failed {
        reason: String,
        last_lines: Vec<String>,
    },
    Discarded(String),
    Interrupted,
}

impl From<String> for End {
    fn from(reason: String) -> End {
        End::Failed {
            reason,
            last_lines: Vec::new(),
        }
    }
}

/// The places, ports and names of one run.
pub struct Scene<'a> {
    workload: &'a Workload,
    values: Values,
    env: BTreeMap<String, String>,
    run_mark: String,
    groups: Groups,
    /// Whether to stop.
    pub interrupt: Interrupt,
    logs: PathBuf,
}

/// Runs one variant once. `on_step` hears of every phase that begins and of the seconds of the one
/// that ended.
pub fn run(
    stage: &Stage,
    variant: &Prepared,
    repetition: u32,
    on_step: &mut dyn FnMut(StepEvent),
) -> Run {
    let mut record = Run {
        repetition,
        outcome: Outcome::Complete,
        ready_after_s: None,
        phases: Vec::new(),
        samples: Vec::new(),
        marks: Vec::new(),
        live: Vec::new(),
        trim: None,
        measures: Measures::default(),
        notes: Vec::new(),
    };
    let run_mark = format!("{}-{}-{repetition}", std::process::id(), variant.spec.name);
    let ended = Scene::set(stage, variant, repetition, run_mark.clone())
        .and_then(|(scene, _dir)| scene.play(stage, variant, &mut record, on_step));
    launch::kill_strays(&run_mark);
    record.outcome = match ended {
        Ok(()) => Outcome::Complete,
        // What failed because it was being stopped did not fail.
        Err(End::Interrupted | End::Failed { .. }) if stage.interrupt.is_set() => {
            Outcome::Interrupted
        }
        Err(End::Interrupted) => Outcome::Interrupted,
        Err(End::Discarded(reason)) => Outcome::Discarded { reason },
        Err(End::Failed { reason, last_lines }) => Outcome::Failed { reason, last_lines },
    };
    record.measures = summary::measure(&record, stage.metric);
    record
}

/// What `run` tells while it runs.
#[derive(Debug, Clone, Copy)]
pub enum StepEvent {
    /// The step of this index begins.
    Begins(usize),
    /// The step of this index took this long.
    Took(usize, f64),
}

impl<'a> Scene<'a> {
    fn set(
        stage: &Stage<'a>,
        variant: &Prepared,
        repetition: u32,
        run_mark: String,
    ) -> Result<(Scene<'a>, tempfile::TempDir), End> {
        let workload = stage.workload;
        let system = |error: std::io::Error| End::from(format!("the folder of the run: {error}"));
        let dir = tempfile::Builder::new()
            .prefix("ebb-")
            .tempdir()
            .map_err(system)?;
        let logs = stage
            .logs
            .join(format!("{}-{repetition}", file_name(&variant.spec.name)));
        std::fs::create_dir_all(&logs).map_err(system)?;
        let mut values = workload.vars();
        values.insert("dir".into(), dir.path().display().to_string());
        values.insert("workload".into(), workload.dir.display().to_string());
        values.insert("variant".into(), variant.spec.name.clone());
        let names = workload
            .companions
            .iter()
            .map(|companion| format!("port.{}", companion.name));
        let names: Vec<String> = std::iter::once("port".to_owned()).chain(names).collect();
        for (name, port) in names.iter().zip(free_ports(names.len()).map_err(system)?) {
            values.insert(name.clone(), port.to_string());
        }
        let mut scene = Scene {
            workload,
            env: BTreeMap::new(),
            values,
            run_mark,
            groups: stage.groups.clone(),
            interrupt: stage.interrupt.clone(),
            logs,
        };
        for name in names
            .iter()
            .map(String::as_str)
            .chain(["dir", "workload", "variant"])
        {
            scene.export(name);
        }
        Ok((scene, dir))
    }

    /// Gives a value to the commands as EBB_NAME.
    fn export(&mut self, name: &str) {
        let key = format!("EBB_{}", name.to_uppercase().replace(['.', '-'], "_"));
        self.env.insert(key, self.values[name].clone());
    }

    fn define(&mut self, name: &str, value: String) {
        self.values.insert(name.to_owned(), value);
        self.export(name);
    }

    /// Puts this run's values in.
    pub fn fill(&self, text: &str) -> Result<String, String> {
        Ok(template::fill(text, &self.values)?)
    }

    fn fill_map(&self, map: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>, String> {
        map.iter()
            .map(|(key, value)| Ok((key.clone(), self.fill(value)?)))
            .collect()
    }

    fn launch(&self, name: &str, command: &[String], file: &str) -> Result<Process, String> {
        Launch {
            name: name.to_owned(),
            command: template::fill_all(command, &self.values)?,
            cwd: &self.workload.dir,
            env: &self.env,
            run_mark: &self.run_mark,
            stdout: self.logs.join(format!("{file}.out")),
            stderr: self.logs.join(format!("{file}.err")),
        }
        .start(&self.groups)
    }

    /// Runs a command of the workload to its end and gives what it wrote.
    pub fn run_to_end(
        &self,
        name: &str,
        command: &[String],
        limit: Duration,
    ) -> Result<String, String> {
        let mut process = self.launch(name, command, "command")?;
        process.finish(limit, &self.interrupt)?;
        Ok(process.output())
    }

    fn play(
        mut self,
        stage: &Stage,
        variant: &Prepared,
        record: &mut Run,
        on_step: &mut dyn FnMut(StepEvent),
    ) -> Result<(), End> {
        // Stopped in reverse order of their start, also when something on the way fails.
        let mut companions = Companions(Vec::new());
        for companion in &self.workload.companions {
            companions
                .0
                .push((self.start_companion(companion)?, companion.stop_timeout_s));
        }
        let started = Instant::now();
        let mut service = self.start_service(variant)?;
        let played = self.play_service(stage, variant, &mut service, started, record, on_step);
        service.stop(Duration::from_secs_f64(
            self.workload.service.stop_timeout_s,
        ));
        played
    }

    fn start_companion(&self, companion: &Companion) -> Result<Process, End> {
        let name = format!("companion {}", companion.name);
        let mut env = self.env.clone();
        env.extend(self.fill_map(&companion.env)?);
        let log = self
            .logs
            .join(format!("companion-{}.log", file_name(&companion.name)));
        let mut process = Launch {
            name,
            command: template::fill_all(&companion.command, &self.values).map_err(String::from)?,
            cwd: &self.workload.dir,
            env: &env,
            run_mark: &self.run_mark,
            stdout: log.clone(),
            stderr: log,
        }
        .start(&self.groups)?;
        if let Some(ready) = &companion.ready {
            let limit = Duration::from_secs_f64(companion.ready_timeout_s);
            until_ready(self, ready, &mut process, limit)
                .map_err(|reason| failed(reason, &process))?;
        }
        Ok(process)
    }

    fn start_service(&self, variant: &Prepared) -> Result<Process, End> {
        let service = &self.workload.service;
        let mut env = self.env.clone();
        env.extend(self.fill_map(&service.env)?);
        env.extend(variant.spec.env.clone());
        if let Some(library) = &variant.library {
            let ours = library.display().to_string();
            let preload = env
                .get("LD_PRELOAD")
                .map(|theirs| format!("{ours}:{theirs}"));
            env.insert("LD_PRELOAD".into(), preload.unwrap_or(ours));
        }
        let cwd = match &service.cwd {
            Some(cwd) => self.workload.dir.join(cwd),
            None => self.workload.dir.clone(),
        };
        let log = self.logs.join("service.log");
        let process = Launch {
            name: "the service".into(),
            command: template::fill_all(&service.command, &self.values).map_err(String::from)?,
            cwd: &cwd,
            env: &env,
            run_mark: &self.run_mark,
            stdout: log.clone(),
            stderr: log,
        }
        .start(&self.groups)?;
        Ok(process)
    }

    fn play_service(
        &mut self,
        stage: &Stage,
        variant: &Prepared,
        service: &mut Process,
        started: Instant,
        record: &mut Run,
        on_step: &mut dyn FnMut(StepEvent),
    ) -> Result<(), End> {
        let limit = Duration::from_secs_f64(self.workload.service.ready_timeout_s);
        until_ready(self, &self.workload.service.ready, service, limit)
            .map_err(|reason| failed(reason, service))?;
        let pid = service.pid();
        self.define("pid", pid.to_string());
        let zero = Instant::now();
        record.ready_after_s = Some((zero - started).as_secs_f64());
        let library = variant.library.as_deref();
        let in_charge = || {
            stage
                .observer
                .in_charge(pid, library)
                .map_err(End::Discarded)
        };
        in_charge()?;
        if let Some(prepare) = &self.workload.prepare {
            self.prepare(prepare, service)?;
        }
        // Times count from here: filling a database is not part of the figures.
        let zero = Instant::now();
        let sampler = Sampler::start(stage.observer.clone(), pid, zero, stage.interval);
        let played = (|| -> Result<(), End> {
            for (index, step) in stage.steps.iter().enumerate() {
                on_step(StepEvent::Begins(index));
                let phase = &self.workload.phases[step.phase];
                let seconds =
                    self.step(stage, phase, step.round, service, zero, &sampler, record)?;
                on_step(StepEvent::Took(index, seconds));
                in_charge()?;
            }
            Ok(())
        })();
        record.samples = sampler.finish();
        played?;
        if variant.spec.is_libc() {
            self.trim(stage, pid, record);
        }
        Ok(())
    }

    fn prepare(&self, job: &Job, service: &mut Process) -> Result<(), End> {
        let mut process = self.launch("prepare", &job.command, "prepare")?;
        let limit = Duration::from_secs_f64(job.timeout_s.unwrap_or(PREPARE_LIMIT_S));
        self.finish_beside(&mut process, service, limit)
    }

    /// Waits for a command; the service's end is noticed at once and is what failed then.
    fn finish_beside(
        &self,
        process: &mut Process,
        service: &mut Process,
        limit: Duration,
    ) -> Result<(), End> {
        let ended = self.interrupt.wait_for(limit, || match service.ended() {
            Some(status) => Some(Err(format!(
                "{} {} during {}",
                service.name,
                launch::describe(status),
                process.name
            ))),
            None => process.ended().map(Ok),
        });
        match ended {
            Some(Err(reason)) => Err(failed(reason, service)),
            Some(Ok(status)) if status.success() => Ok(()),
            Some(Ok(status)) => Err(failed(
                format!("{} {}", process.name, launch::describe(status)),
                process,
            )),
            None if self.interrupt.is_set() => Err(End::Interrupted),
            None => Err(failed(
                format!(
                    "{} was not done after {} s",
                    process.name,
                    limit.as_secs_f64()
                ),
                process,
            )),
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one step needs the whole run around it"
    )]
    fn step(
        &mut self,
        stage: &Stage,
        phase: &Phase,
        round: u32,
        service: &mut Process,
        zero: Instant,
        sampler: &Sampler,
        record: &mut Run,
    ) -> Result<f64, End> {
        self.define("cycle", round.to_string());
        let from_s = zero.elapsed().as_secs_f64();
        let ended = match phase.kind {
            PhaseKind::Idle => self.idle(phase, service).map(|()| None),
            _ => self.load(phase, round, service),
        };
        let to_s = zero.elapsed().as_secs_f64();
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
            let bytes = summary::memory_at_end(&sampler.so_far(), stage.metric, from_s, to_s);
            record.marks.push(Mark {
                name: name.clone(),
                round,
                at_s: to_s,
                bytes: bytes.map(|bytes| bytes as u64),
            });
        }
        if let (PhaseKind::Idle, Some(live)) = (phase.kind, &self.workload.live) {
            let answer = ask::ask(self, live, "GET").and_then(|answer| ask::live_bytes(&answer));
            match answer {
                Ok(bytes) => record.live.push(Live {
                    at_s: zero.elapsed().as_secs_f64(),
                    bytes,
                }),
                Err(reason) => note(record, format!("live heap not told: {reason}")),
            }
        }
        Ok(to_s - from_s)
    }

    fn idle(&self, phase: &Phase, service: &mut Process) -> Result<(), End> {
        let seconds = phase.idle_seconds(&self.values)?.unwrap_or(0.0);
        let died = self
            .interrupt
            .wait_for(Duration::from_secs_f64(seconds), || service.ended());
        match died {
            Some(status) => {
                let reason = format!(
                    "{} {} during {}",
                    service.name,
                    launch::describe(status),
                    phase.name
                );
                Err(failed(reason, service))
            }
            None if self.interrupt.is_set() => Err(End::Interrupted),
            None => Ok(()),
        }
    }

    fn load(
        &self,
        phase: &Phase,
        round: u32,
        service: &mut Process,
    ) -> Result<Option<LoadResult>, End> {
        let command = phase.command.as_deref().unwrap_or_default();
        let file = format!("{}-{round}", file_name(&phase.name));
        let name = format!("the load of phase \"{}\"", phase.name);
        let mut process = self.launch(&name, command, &file)?;
        let limit = Duration::from_secs_f64(phase.timeout_s.unwrap_or(LOAD_LIMIT_S));
        self.finish_beside(&mut process, service, limit)?;
        match load::parse(&process.output()) {
            Ok(load) => Ok(Some(load)),
            Err(_) if phase.kind == PhaseKind::Warmup => Ok(None),
            Err(reason) => Err(failed(format!("{name}: {reason}"), &process)),
        }
    }

    /// Memory before and after a malloc_trim(0) in the service, read from outside.
    fn trim(&self, stage: &Stage, pid: u32, record: &mut Run) {
        let Some(trim) = &self.workload.trim else {
            return;
        };
        let memory = || {
            stage
                .observer
                .sample(pid)
                .and_then(|sample| stage.metric.of(&sample))
        };
        let before = memory();
        let asked = ask::ask(self, trim, "POST");
        std::thread::sleep(AFTER_TRIM);
        match (asked, before, memory()) {
            (Ok(_), Some(before_bytes), Some(after_bytes)) => {
                record.trim = Some(Trim {
                    before_bytes,
                    after_bytes,
                })
            }
            (Err(reason), _, _) => note(record, format!("malloc_trim not measured: {reason}")),
            _ => note(
                record,
                "malloc_trim not measured: the memory could not be read".into(),
            ),
        }
    }
}

fn note(record: &mut Run, text: String) {
    if !record.notes.contains(&text) {
        record.notes.push(text);
    }
}

fn failed(reason: String, process: &Process) -> End {
    End::Failed {
        reason,
        last_lines: process.last_lines(),
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

/// Ports that were free a moment ago, all different: the listeners are held until all are known.
fn free_ports(count: usize) -> std::io::Result<Vec<u16>> {
    let listeners: Vec<TcpListener> = (0..count)
        .map(|_| TcpListener::bind("127.0.0.1:0"))
        .collect::<Result<_, _>>()?;
    listeners
        .iter()
        .map(|listener| Ok(listener.local_addr()?.port()))
        .collect()
}

/// A name that is safe as a file's.
fn file_name(name: &str) -> String {
    name.chars()
        .map(|letter| {
            if letter.is_ascii_alphanumeric() || "-_.".contains(letter) {
                letter
            } else {
                '_'
            }
        })
        .collect()
}
