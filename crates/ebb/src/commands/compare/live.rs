//! `ebb compare --live`: services that run already, side by side, for as long as wanted.
//!
//! Nothing is started, stopped or asked: memory and CPU time are read from the kernel, or the past from a Prometheus
//! ([`replicas`]). Restarts are followed and marked. Ctrl-C ends it and keeps what was seen.

mod replicas;

use super::{machine, observer};
use crate::arguments;
use crate::commands::events;
use crate::exit::Failure;
use crate::{prometheus, signals, terminal};
use ebb_diagnosis::facts::growth::Event;
use ebb_diagnosis::growth::causes::Standing;
use ebb_diagnosis::growth::steps;
use ebb_process::cgroup::Place;
use ebb_process::follow::{Followed, Look};
use ebb_process::{MallocSource, environ, malloc_source, tree};
use ebb_report::figures;
use ebb_trial::interrupt::{Groups, Interrupt};
use ebb_trial::results::{
    Canary, FORMAT, Metric, PhaseKind, PhaseSpan, Restart, Run, Sample, Trial, Variant, Workload,
};
use ebb_trial::{canary, launch, remains};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

/// The past that a server is asked for.
const MOST_TIME: Duration = Duration::from_secs(366 * 86_400);
const MOST_LOOKS: f64 = 1e5;

/// The arguments of a live comparison.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Compare running services, each NAME=TARGET with a pid, process name, unit, container or cgroup; the others
    /// are compared with the first. Restarts are followed.
    /// With --prometheus, selectors: old='{namespace="shop",pod=~"api-.*"}'
    #[arg(long, value_name = "NAME=TARGET", num_args = 2.., value_parser = parse_side, conflicts_with = "workload")]
    live: Vec<(String, String)>,

    #[command(flatten)]
    server: prometheus::Args,

    /// With --prometheus, leave out the first time of each replica that starts.
    #[arg(long, value_name = "TIME", default_value = "0", requires = "prometheus", value_parser = arguments::time)]
    grace: Duration,

    /// How long to watch; with --prometheus, how far to look back.
    #[arg(long = "for", value_name = "TIME", default_value = "1h", requires = "live", value_parser = arguments::time)]
    time: Duration,

    /// Time between two looks.
    #[arg(long, value_name = "TIME", default_value = "10s", requires = "live", value_parser = arguments::time)]
    every: Duration,

    /// Name the events before each step of the floor (docs/diagnosis.md). FILE has a time and a label on each line:
    /// 2026-11-25T19:00:00Z deploy
    #[arg(long, value_name = "FILE", requires = "live")]
    events: Option<PathBuf>,
}

fn parse_side(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, target)) if !name.is_empty() && !target.is_empty() => Ok((name.to_owned(), target.to_owned())),
        _ => Err("not NAME=TARGET".to_owned()),
    }
}

impl Args {
    /// Whether `--live` was given.
    pub fn is_requested(&self) -> bool {
        !self.live.is_empty()
    }
}

struct Side {
    followed: Followed,
    variant: Variant,
    run: Run,
    /// CPU time over all lives, and the counter that the last look showed.
    cpu_s: f64,
    counter: Option<f64>,
    gone_at: Option<f64>,
    /// The processes at the last look, and the events since the first.
    standing: Standing,
    events: Vec<Event>,
}

/// Watches to the end, or to Ctrl-C.
pub fn watch(args: &Args, metric: Metric) -> Result<Trial, Failure> {
    if args.every < Duration::from_millis(100) || args.time < args.every * 2 {
        return Err(Failure::usage("--for must be long enough for two looks, and --every at least 100ms"));
    }
    let started = SystemTime::now();
    let events = |path: &PathBuf| events::read(path, started);
    // Wrong before the watch is better than wrong after it.
    args.events.as_ref().map(events).transpose()?;
    if let Some(server) = args.server.server()? {
        return look_back(args, &server, started);
    }
    let mut sides = begin(&args.live)?;
    let (interrupt, groups) = (Interrupt::default(), Groups::default());
    signals::end_trial(interrupt.clone(), groups)?;
    let zero = Instant::now();
    let observer = observer::Processes::default();
    terminal::warn(&format!(
        "watching {} for {}; Ctrl-C ends it and keeps the figures",
        names(&sides),
        humantime::format_duration(args.time)
    ));
    let (mut next, mut looks) = (zero, 0);
    while zero.elapsed() < args.time && !interrupt.is_set() {
        looks += 1;
        for side in &mut sides {
            side.look(&observer, zero.elapsed().as_secs_f64());
        }
        // On a grid; a missed point is left out, not made up for.
        while next <= Instant::now() {
            next += args.every;
        }
        let end = next.min(zero + args.time);
        interrupt.wait_for::<()>(end.saturating_duration_since(Instant::now()), || None);
    }
    let seconds = zero.elapsed().as_secs_f64();
    let events = args.events.as_ref().map(events).transpose()?.unwrap_or_default();
    let end = |side: Side| side.end(seconds, metric, &events);
    let mut variants: Vec<Variant> = sides.into_iter().map(end).collect();
    let canary = canary::cut(seconds, args.every.as_secs_f64(), looks);
    canary::summarise(&mut variants, &canary, metric);
    let trial = trial(variants, canary, metric, started, seconds);
    Ok(Trial { machine: machine::read(), interrupted: interrupt.is_set(), ..trial })
}

/// Compares what the replicas of a Prometheus held in the last time.
fn look_back(args: &Args, server: &prometheus::Server, now: SystemTime) -> Result<Trial, Failure> {
    let now_s = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let step_s = args.every.as_secs_f64();
    if args.time > MOST_TIME || args.time.as_secs_f64() / step_s > MOST_LOOKS {
        return Err(Failure::usage("--for is too long: at most 366d, and 100000 times --every"));
    }
    let count = (args.time.as_secs_f64() / step_s) as usize + 1;
    let seconds = step_s * (count - 1) as f64;
    let times = prometheus::Times { from_s: now_s - seconds, step_s, count };
    let started = now - Duration::from_secs_f64(seconds);
    let told = args.events.as_ref().map(|path| events::read(path, started)).transpose()?;
    let grace = (args.grace.as_secs_f64() / step_s) as usize;
    let mut variants: Vec<Variant> = Vec::new();
    for (name, selector) in &args.live {
        if variants.iter().any(|variant| variant.name == *name) {
            return Err(Failure::usage(format!("--live: {name} is given twice")));
        }
        let side = replicas::side(server, name, selector, times, grace)?;
        let all = [side.events.as_slice(), told.as_deref().unwrap_or_default()].concat();
        variants.push(end(side.variant, side.run, seconds, Metric::Charge, &all));
    }
    let canary = canary::cut(seconds, step_s, count);
    canary::summarise(&mut variants, &canary, Metric::Charge);
    Ok(trial(variants, canary, Metric::Charge, started, seconds))
}

fn begin(asked: &[(String, String)]) -> Result<Vec<Side>, Failure> {
    let mut sides: Vec<Side> = Vec::new();
    for (name, target) in asked {
        if sides.iter().any(|side| side.variant.name == *name) {
            return Err(Failure::usage(format!("--live: {name} is given twice")));
        }
        let followed = Followed::of(target).map_err(Failure::from)?;
        sides.push(Side::of(name, target, followed));
    }
    Ok(sides)
}

fn names(sides: &[Side]) -> String {
    let names: Vec<&str> = sides.iter().map(|side| side.variant.name.as_str()).collect();
    names.join(", ")
}

impl Side {
    fn of(name: &str, target: &str, mut followed: Followed) -> Side {
        let pid = followed.look().tree.pids().first().copied();
        let (allocator, library) = pid.map_or(("not known".to_owned(), None), allocator_and_file);
        let mut env = pid.map(settings).unwrap_or_default();
        env.insert("target".to_owned(), target.to_owned());
        Side {
            followed,
            variant: Variant { library, env, ..Variant::new(name, &allocator) },
            run: Run::new(1),
            cpu_s: 0.0,
            counter: None,
            gone_at: None,
            standing: Standing::default(),
            events: Vec::new(),
        }
    }

    fn look(&mut self, observer: &observer::Processes, at_s: f64) {
        let look = self.followed.look();
        let Some(sample) = observer.sample_of(&look.tree).map(|seen| seen.sample) else {
            if self.gone_at.is_none() {
                terminal::warn(&format!("{} has ended; looking for it again", self.variant.name));
                self.gone_at = Some(at_s);
                self.counter = None;
            }
            return;
        };
        if look.restarted {
            self.restart(at_s, &look);
        } else if let Some(since) = self.gone_at.take() {
            self.run.notes.push(format!(
                "it could not be read from {} to {}",
                figures::duration(since),
                figures::duration(at_s)
            ));
        }
        // A new life counts from its own start, what was there before we came does not.
        if let Some(now) = sample.cpu_s {
            let before = self.counter.unwrap_or(if look.restarted { 0.0 } else { now });
            self.cpu_s += (now - before).max(0.0);
            self.counter = Some(now);
        }
        let place = look.cgroup.clone().or_else(|| Place::of(*look.tree.pids().first()?));
        self.run.limit_bytes = place.as_ref().and_then(Place::limit_bytes);
        let processes = look.tree.pids().iter().filter_map(|&pid| {
            let (started, program) = tree::identity(pid)?;
            let name = program.file_name().unwrap_or(program.as_os_str());
            Some(((pid, started), name.to_string_lossy().into_owned()))
        });
        let standing = Standing::new(processes, place.as_ref().and_then(Place::oom_kills));
        self.events.extend(self.standing.follow(standing, at_s));
        let cgroup = look.cgroup.as_ref().map(|place| place.read());
        self.run.samples.push(Sample {
            at_s,
            cpu_s: sample.cpu_s.map(|_| self.cpu_s),
            // Not carried over restarts.
            cpu_system_s: None,
            cgroup_bytes: cgroup.and_then(|cgroup| Some(cgroup.usage?.saturating_sub(cgroup.parts.inactive_file?))),
            ..sample
        });
    }

    fn restart(&mut self, at_s: f64, look: &Look) {
        let pid = look.tree.pids().first().copied();
        let gone = match self.gone_at.take() {
            Some(since) => format!(", absent for about {}", figures::duration(at_s - since)),
            None => String::new(),
        };
        let allocator = pid.map_or("not known".to_owned(), |pid| allocator_and_file(pid).0);
        let other = match allocator == self.variant.allocator {
            true => String::new(),
            false => format!("; it runs on {allocator} instead of {}", self.variant.allocator),
        };
        let pid = pid.map_or(String::new(), |pid| format!(" as process {pid}"));
        self.counter = None;
        let text = format!("restarted{pid}{gone}{other}");
        terminal::warn(&format!("{} {text}", self.variant.name));
        self.run.restarts.push(Restart { at_s, text });
    }

    fn end(self, seconds: f64, metric: Metric, events: &[Event]) -> Variant {
        let events = [self.events.as_slice(), events].concat();
        let mut variant = end(self.variant, self.run, seconds, metric, &events);
        if let Some(since) = self.gone_at {
            let note = format!("it did not run from {} to the end", figures::duration(since));
            variant.runs.iter_mut().for_each(|run| run.notes.push(note.clone()));
        }
        variant
    }
}

/// A variant with the one run of a side, and its steps.
fn end(mut variant: Variant, mut run: Run, seconds: f64, metric: Metric, events: &[Event]) -> Variant {
    let points = run.samples.iter();
    let points: Vec<(f64, f64)> = points.filter_map(|sample| Some((sample.at_s, metric.of(sample)? as f64))).collect();
    run.steps = steps::of_series(&points);
    run.events = steps::line_up(&mut run.steps, seconds, points.len(), events);
    run.phases.push(PhaseSpan {
        name: "live".to_owned(),
        kind: PhaseKind::Load,
        round: 1,
        from_s: 0.0,
        to_s: seconds,
        load: None,
    });
    variant.runs.push(run);
    variant
}

fn allocator_and_file(pid: i32) -> (String, Option<PathBuf>) {
    match malloc_source(pid) {
        Ok(source) if source.is_libc() => (ebb_allocators::Allocator::Glibc.to_string(), None),
        Ok(MallocSource::File(path)) => {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            let known = name.as_deref().and_then(ebb_allocators::Allocator::from_file_name);
            let name = known.map(|known| known.to_string()).or(name);
            (name.unwrap_or_default(), Some(path))
        }
        Ok(MallocSource::Static) => ("in the program itself".to_owned(), None),
        Ok(MallocSource::Nobody) | Err(_) => ("not known".to_owned(), None),
    }
}

/// The allocator's settings that the process was started with.
fn settings(pid: i32) -> BTreeMap<String, String> {
    environ::at_start(pid)
        .unwrap_or_default()
        .into_iter()
        .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(key, _)| launch::is_allocator_setting(key))
        .collect()
}

fn trial(variants: Vec<Variant>, canary: Canary, metric: Metric, started: SystemTime, seconds: f64) -> Trial {
    let verdict = canary::judge(&variants, &canary, metric);
    Trial {
        format: FORMAT,
        ebb_version: env!("CARGO_PKG_VERSION").to_owned(),
        started: humantime::format_rfc3339_seconds(started).to_string(),
        seconds,
        workload: Workload {
            name: "live".to_owned(),
            description: "Running services, compared under their own traffic".to_owned(),
            ..Workload::default()
        },
        repetitions: 1,
        interval_ms: (canary.every_s * 1000.0) as u64,
        metric,
        remains: remains::look(&variants, &verdict),
        verdict,
        variants,
        canary: Some(canary),
        ..Trial::default()
    }
}
