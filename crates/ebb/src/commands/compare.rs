//! `ebb compare WORKLOAD`: a controlled trial of allocators under a service's own load.
//!
//! Joins the pieces: the workload and its variants, the libraries of the allocators, the look at the
//! processes, the trial, the report. `docs/compare.md` is its manual.

pub(super) mod earlier;
mod exports;
mod image;
mod limits;
mod live;
mod machine;
mod observer;
mod outputs;
mod programs;
mod progress;
mod rebuilt;
mod sketch;
mod tune;
mod variants;

use crate::arguments;
use crate::commands::autoscale;
use crate::exit::{Exit, Failure};
use crate::{paint, signals, terminal};
use earlier::Earlier;
use ebb_trial::canary;
use ebb_trial::container::Container;
use ebb_trial::engine;
use ebb_trial::interrupt::{Groups, Interrupt};
use ebb_trial::logs::Logs;
use ebb_trial::results::{FORMAT, Metric, Trial, VerdictKind, Workload as WorkloadFacts};
use ebb_trial::rounds::{self, Rounds, Sure};
use ebb_trial::run::TrialContext;
use ebb_trial::sampler::RunCgroups;
use ebb_trial::schedule::{self, Repetition};
use ebb_trial::variant::VariantSpec;
use ebb_trial::workload::Workload;
use ebb_trial::{placebo, remains, setup, traps, tuning, verdict};
use image::Requested;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Run a service on one allocator after another under its own load, and show what each keeps.
///
/// WORKLOAD is a folder with a workload.toml (docs/workload.md). Without one, name the load and put the service's
/// command after `--`. The trial changes nothing on this machine and stops every process that it starts. Ctrl-C ends
/// it and keeps what was measured.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "ebb compare [OPTIONS] WORKLOAD\n       ebb compare [OPTIONS] --load COMMAND -- SERVICE...\n       \
                      ebb compare [OPTIONS] --load COMMAND --image IMAGE [-- ARGUMENTS...]\n       \
                      ebb compare [OPTIONS] --live NAME=TARGET NAME=TARGET...",
    after_help = "Examples:\n  \
                  ebb compare workloads/sse --profile demo -o results\n  \
                  ebb compare --load 'oha -z 20s http://localhost:8000/' -- uvicorn main:app --port 8000\n  \
                  ebb compare --burst 'http://localhost:{port}/report -c 32 -n 400' -- ./server --port {port}\n  \
                  ebb compare --image redis:7 --load 'redis-benchmark -q -n 200000 -t set' --ready localhost:6379\n  \
                  ebb compare --live old=4711 new=4712 --for 24h\n  \
                  ebb compare --prometheus http://localhost:9090 --for 30m --live old='{pod=~\"api-.*\"}' new='{pod=~\"api-canary-.*\"}'"
)]
pub struct Args {
    /// Folder with a workload.toml, or the file itself.
    #[arg(num_args = 0.., value_name = "WORKLOAD")]
    workload: Vec<PathBuf>,

    /// Variants, separated by commas: NAME, NAME+KEY=VALUE, NEW=NAME+KEY=VALUE. The others are compared with the
    /// first. Default: the profile's, else one to three of each allocator.
    #[arg(long, value_name = "LIST")]
    variants: Vec<String>,

    /// Print the known variants with their settings.
    #[arg(long)]
    list_variants: bool,

    /// Try common settings of this allocator, and show how much they matter:
    /// ebbmalloc, jemalloc, mimalloc, tcmalloc, glibc.
    #[arg(long, value_name = "ALLOCATOR", conflicts_with = "variants")]
    tune: Option<String>,

    /// Compare with an earlier results.json of this workload (or its folder), with the same variants, profile and
    /// repetitions unless given.
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,

    /// Smallest change in percent that counts as better or worse, with --against and --live.
    #[arg(long, value_name = "PERCENT", default_value = "10", value_parser = parse_percent)]
    worse_from: f64,

    /// Profile of the workload, for example a short one.
    #[arg(long, value_name = "NAME", requires = "workload")]
    profile: Option<String>,

    /// Runs of each variant, interleaved. Default: the profile's, else 3.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    repetitions: Option<u32>,

    /// Repeat until each 95 % interval of memory after the rest is at most this wide, in percent of the first
    /// variant's figure, or the budget is spent. -n is then the minimum.
    #[arg(long, value_name = "PERCENT", num_args = 0..=1, require_equals = true, default_missing_value = "5", value_parser = parse_percent)]
    until_sure: Option<f64>,

    /// Time limit of --until-sure.
    #[arg(long, value_name = "TIME", default_value = "30m", requires = "until_sure", value_parser = arguments::time)]
    budget: Duration,

    /// The memory that the table shows.
    #[arg(long, value_enum, default_value = "rss")]
    memory: MemoryArg,

    /// Time between two samples, 10ms to 10s.
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_interval)]
    interval: Duration,

    /// Write results.json, report.md, report.html and the logs into this folder.
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Print the results as JSON instead of the tables.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    exports: exports::Args,

    #[command(flatten)]
    sketch: sketch::Args,

    #[command(flatten)]
    image: image::Args,

    #[command(flatten)]
    limits: limits::Args,

    /// Simulate the replicas and requests that Kubernetes' autoscalers would have given each variant, one process tree
    /// being one replica: target=70%,request=512Mi,min=1,max=20. The request is --memory-max unless given.
    #[arg(long, value_name = "SETTINGS", value_parser = autoscale::parse)]
    autoscale: Option<autoscale::Settings>,

    #[command(flatten)]
    live: live::Args,
}

impl Args {
    fn asked(&self) -> variants::Asked<'_> {
        variants::Asked { variants: &self.variants, tune: self.tune.as_ref() }
    }
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum MemoryArg {
    /// Resident set, summed over the processes.
    Rss,
    /// Proportional set: shared pages divided among their users.
    Pss,
    /// Anonymous resident memory.
    Anon,
}

impl From<MemoryArg> for Metric {
    fn from(arg: MemoryArg) -> Metric {
        match arg {
            MemoryArg::Rss => Metric::Rss,
            MemoryArg::Pss => Metric::Pss,
            MemoryArg::Anon => Metric::Anon,
        }
    }
}

/// Does the trial and tells its outcome.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    let requested = args.image.requested()?;
    if let Some(exit) = args.sketch.print(requested.as_ref())? {
        return Ok(exit);
    }
    if args.list_variants {
        terminal::print(&variants::list())?;
        return Ok(Exit::Ok);
    }
    if let Some(settings) = &args.autoscale {
        autoscale::target(settings, args.limits.limits().memory_max_bytes)?;
    }
    if args.live.is_requested() {
        let output = output_folder(args)?;
        let trial = live::watch(&args.live, args.memory.into())?;
        return report(trial, args, output.as_ref());
    }
    sketch::check(&args.workload, &args.sketch, requested.is_some())?;
    let earlier = args.against.as_deref().map(Earlier::read).transpose()?;
    let profile = args.profile.as_deref();
    let profile = profile.or_else(|| earlier.as_ref()?.trial.workload.profile.as_deref());
    let workload = workload(args, profile, requested.as_ref())?;
    if let Some(earlier) = &earlier {
        earlier.check(&about(&workload), args.memory.into())?;
    }
    let specs = variants::specs(args.asked(), &workload, earlier.as_ref())?;
    let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    args.limits.check(&names)?;
    let has_arguments = !workload.service.command.is_empty();
    let requested = requested.or(workload.service.image.clone().map(Requested::of));
    let container = args.image.container(requested, has_arguments, args.limits.limits())?;
    rebuilt::check(args.image.dockerfile.as_deref(), container.as_ref())?;
    let cgroups = if container.is_none() { args.limits.cgroups()? } else { None };
    if workload.setup.is_none() {
        programs::look_up(&workload)?;
        if container.is_none() {
            programs::resolve_all(specs.clone(), &workload)?;
        }
    }
    let output = output_folder(args)?;
    let scratch = tempfile::tempdir().map_err(|error| {
        Failure::new(Exit::NotWritten, format!("no folder for temporary files: {error}")).remedy("name one by TMPDIR")
    })?;
    let temporary = scratch.path().to_owned();
    let logs = match &output {
        Some(output) => Logs::new(output.logs(), Some(temporary)),
        None => Logs::new(temporary, None),
    };
    let place = Place { cgroups: cgroups.as_deref(), container: container.as_ref() };
    let trial = run_trial(args, &workload, specs, earlier, place, &logs)?;
    report(trial, args, output.as_ref())
}

/// Where the service of each run goes.
struct Place<'a> {
    cgroups: Option<&'a dyn RunCgroups>,
    container: Option<&'a Container>,
}

/// Sets the workload up, runs the variants and judges the results.
fn run_trial(
    args: &Args,
    workload: &Workload,
    specs: Vec<VariantSpec>,
    earlier: Option<Earlier>,
    place: Place,
    logs: &Logs,
) -> Result<Trial, Failure> {
    let (interrupt, groups) = (Interrupt::default(), Groups::default());
    signals::end_trial(interrupt.clone(), groups.clone())?;
    let progress = progress::Progress::new();
    prepare(workload, logs.folder(), &groups, &interrupt, &progress)?;
    // After the setup: it may be what installs the service's program.
    programs::look_up(workload)?;
    let (started, clock) = (SystemTime::now(), Instant::now());
    let steps = steps(workload);
    let context = TrialContext {
        workload,
        steps: &steps,
        observer: Arc::new(match place.container {
            Some(_) => observer::Processes::in_container(),
            None => observer::Processes::default(),
        }),
        interrupt: interrupt.clone(),
        groups,
        metric: args.memory.into(),
        interval: args.interval,
        logs,
        cgroups: place.cgroups,
        container: place.container,
    };
    // Libraries that containers see; kept for the whole trial.
    let libraries = tempfile::tempdir()?;
    let variants = match place.container {
        Some(_) => {
            let in_order = variants::has_chosen(args.asked(), workload) || earlier.is_some();
            image::resolve_all(specs, in_order, &context, libraries.path()).inspect_err(|_| progress.finish())?
        }
        None => programs::resolve_all(specs, workload)?,
    };
    let rounds = rounds(args, workload, earlier.as_ref());
    let runs = engine::run_all(&context, variants, rounds, &mut |event| progress.report(&event));
    let variants = runs.variants;
    let verdict = verdict::judge(&variants, context.metric);
    let mut trial = Trial {
        format: FORMAT,
        ebb_version: env!("CARGO_PKG_VERSION").to_owned(),
        started: humantime::format_rfc3339_seconds(started).to_string(),
        seconds: clock.elapsed().as_secs_f64(),
        workload: about(workload),
        machine: machine::read(),
        repetitions: runs.repetitions,
        interval_ms: args.interval.as_millis() as u64,
        metric: context.metric,
        limits: args.limits.limits(),
        max_rest: args.limits.judge(&variants),
        interrupted: interrupt.is_set(),
        against: earlier.map(|earlier| earlier.compare(&variants, args.worse_from / 100.0)),
        tuned: args.tune.as_deref().and_then(|allocator| tuning::of(allocator, &variants)),
        canary: None,
        placebos: placebo::look(&variants),
        remains: remains::look(&variants, &verdict),
        verdict,
        autoscale: None,
        traps: traps::look(&variants),
        variants,
        stopping: runs.stopping,
    };
    if let Some(file) = args.image.dockerfile.as_ref().filter(|_| !interrupt.is_set()) {
        let built = rebuilt::add(&mut trial, file, &context, &mut |event| progress.report(&event));
        if let Err(reason) = built {
            terminal::warn(&format!("{}: {reason}", file.display()));
        }
    }
    progress.finish();
    Ok(trial)
}

/// The folder of `-o`, tried out like the files of the exports; what an earlier trial left there is kept.
fn output_folder(args: &Args) -> Result<Option<outputs::Folder>, Failure> {
    let output = args.output.as_deref().map(outputs::Folder::create).transpose()?;
    args.exports.check()?;
    if let Some(kept) = output.as_ref().map(outputs::Folder::clear).transpose()?.flatten() {
        terminal::warn(&format!("the earlier trial is kept in {}", kept.display()));
    }
    Ok(output)
}

/// How often the trial goes round: three times where neither the command line nor the profile says.
fn rounds(args: &Args, workload: &Workload, earlier: Option<&Earlier>) -> Rounds {
    let then = earlier.map(|earlier| earlier.trial.repetitions);
    let asked = args.repetitions.or(then).or(workload.repetitions);
    match args.until_sure {
        None => Rounds::Fixed(asked.unwrap_or(3)),
        Some(percent) => Rounds::UntilSure(Sure {
            share: percent / 100.0,
            budget: args.budget,
            least: args.repetitions.unwrap_or(0).max(rounds::LEAST),
        }),
    }
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let allowed = Duration::from_millis(10)..=Duration::from_secs(10);
    Some(arguments::time(text)?)
        .filter(|time| allowed.contains(time))
        .ok_or_else(|| "between 10ms and 10s; a bare number is seconds".to_owned())
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').parse::<f64>().ok();
    number
        .filter(|percent| *percent > 0.0 && *percent <= 100.0)
        .ok_or_else(|| "not a percentage above 0 and up to 100".to_owned())
}

/// The file's, or the one that the flags stand for.
fn workload(args: &Args, profile: Option<&str>, requested: Option<&Requested>) -> Result<Workload, Failure> {
    if let Some(path) = args.workload.first() {
        let mut workload = Workload::load(path, profile).map_err(Failure::usage)?;
        if let Some(requested) = requested {
            workload.service.image = Some(requested.image.clone());
            if !requested.arguments.is_empty() {
                workload.service.command = requested.arguments_of_template();
            }
        }
        return Ok(workload);
    }
    let nothing = || Failure::usage("neither a workload nor a service is given");
    args.sketch.workload(requested)?.ok_or_else(nothing)
}

fn prepare(
    workload: &Workload,
    logs: &Path,
    groups: &Groups,
    interrupt: &Interrupt,
    progress: &progress::Progress,
) -> Result<(), Failure> {
    progress.setup(workload.setup.is_some());
    setup::run(workload, logs, groups, interrupt).map_err(|(reason, last_lines)| {
        progress.finish();
        if interrupt.is_set() {
            return Failure::new(Exit::Interrupted, "interrupted during the workload's setup: nothing was measured");
        }
        for line in last_lines {
            terminal::warn(&format!("| {line}"));
        }
        Failure::new(Exit::Missing, reason).remedy("the lines above are the end of its output")
    })
}

fn steps(workload: &Workload) -> Vec<schedule::Step> {
    let phases: Vec<Repetition> = workload
        .phases
        .iter()
        .map(|phase| Repetition { cycle: phase.cycle.clone(), repeat: phase.repeat.unwrap_or(1) })
        .collect();
    schedule::steps(&phases, &workload.cycles)
}

fn about(workload: &Workload) -> WorkloadFacts {
    WorkloadFacts {
        name: workload.workload.name.clone(),
        description: workload.workload.description.clone(),
        image: workload.service.image.clone(),
        profile: workload.profile.clone(),
        vars: workload.vars(),
        cycles: workload.cycles.clone(),
        digest: Some(workload.digest()),
    }
}

/// Data to stdout, files to the folder, their paths to stderr.
fn report(mut trial: Trial, args: &Args, output: Option<&outputs::Folder>) -> Result<Exit, Failure> {
    trial.autoscale = args.autoscale.map(|settings| autoscale::of_trial(settings, &trial));
    let trial = &trial;
    // Each is done even if another fails: a full disk must not cost the tables, and a closed stdout must not cost the
    // files.
    let written = output.map_or(Ok(()), |output| output.write(trial));
    let shown = if args.json {
        terminal::print_json(trial, false)
    } else {
        let text = ebb_report::text::render(trial, outputs::terminal_width());
        let has_colours = terminal::has_colours();
        terminal::print(&if has_colours { paint::trial(&text, trial.verdict.kind) } else { text })
    };
    let worse = match trial.canary {
        Some(_) => canary::worse(&trial.variants, args.worse_from / 100.0),
        None => Vec::new(),
    };
    let exported = args.exports.write(trial);
    // Files that were not written while stdout was.
    let kept = |failure: Failure| {
        if shown.is_err() {
            return failure;
        }
        failure.remedy("the results are on stdout; free some space there before the next trial")
    };
    let (written, exported) = (written.map_err(kept), exported.map_err(kept));
    outputs::all([shown, written, exported].into_iter())?;
    if let Some(output) = output {
        terminal::warn(&format!("the page is {}", output.page().display()));
        if trial.verdict.kind == VerdictKind::Recommend {
            terminal::warn(&format!(
                "next: ebb fix FILE --from {} (a Dockerfile, compose file, manifest, unit, Procfile or Cargo.toml)",
                output.results().display()
            ));
        }
    }
    worse.iter().for_each(|reason| terminal::warn(&format!("worse: {reason}")));
    Ok(exit_of(trial, !worse.is_empty()))
}

fn exit_of(trial: &Trial, is_worse: bool) -> Exit {
    let only_one_asked = trial.variants.len() == 1 && trial.variants[0].summary.is_some();
    let against = trial.against.as_ref();
    match trial.verdict.kind {
        _ if trial.interrupted => Exit::Interrupted,
        _ if is_worse => Exit::Worse,
        // A limit of the user's own says more than that there was nothing to compare.
        _ if trial.max_rest.iter().any(|limit| !limit.kept) => Exit::AboveMaxRest,
        _ if against.is_some_and(|against| !against.worse.is_empty()) => Exit::Worse,
        _ if against.is_some_and(|against| !against.enough) => Exit::NotEnoughEvidence,
        VerdictKind::NotEnough if !only_one_asked => Exit::NotEnoughEvidence,
        _ => Exit::Ok,
    }
}
