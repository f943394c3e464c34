//! `ebb why`: where the memory of a running process is, whether its allocator holds what it has freed,
//! and what to do. Reads only, and never stops the process.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use crate::arguments;
use crate::commands::events;
use crate::exit::{Exit, Failure};
use crate::{paint, terminal};
use ebb_diagnosis::facts::diagnosis::{Diagnosis, VerdictKind};
use ebb_node::look::Observer;
use ebb_process::look::Depth;
use ebb_process::profile;
use ebb_process::target::{self, Resolved};
use ebb_report::diagnosis::Form;
use ebb_report::profile::{WithStacks, changes, render_changes};

mod subject;
mod watch;

use subject::Subject;

/// Stacks that are shown.
const MOST_STACKS: usize = 3;

const EXAMPLES: &str = "Examples:
  ebb why 4711                    a process and its descendants, in ten lines
  ebb why -v gunicorn             by name, with every figure
  ebb why --watch 10m 4711        what grows
  ebb why -- ./service --port 80  starts it, looks after 10 s, stops it";

/// The arguments of `ebb why`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A pid, a process name, a unit, a container's id, or the path of a cgroup
    #[arg(value_name = "TARGET", required_unless_present_any = ["command", "pid"])]
    targets: Vec<String>,

    /// The target's pid
    #[arg(short, long, value_name = "PID")]
    pid: Vec<u32>,

    /// Print every figure
    #[arg(long, short)]
    verbose: bool,

    /// Only the process itself, without its descendants
    #[arg(long)]
    no_children: bool,

    /// Print JSON (docs/json.md)
    #[arg(long)]
    json: bool,

    /// How long CMD runs before the look
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = arguments::time)]
    after: Duration,

    /// Look repeatedly for this long, then report what grows
    #[arg(long, value_name = "TIME", value_parser = arguments::time)]
    watch: Option<Duration>,

    /// Time between two looks [default: a 300th of --watch, 1m at most]
    #[arg(long, value_name = "TIME", requires = "watch", value_parser = arguments::time)]
    every: Option<Duration>,

    /// Name the events before each step of the floor. FILE has a time and a label on each line:
    /// 2026-11-25T19:00:00Z deploy
    #[arg(long, value_name = "FILE", requires = "watch")]
    events: Option<PathBuf>,

    /// Start this command, look at it, then stop it
    #[arg(last = true, value_name = "CMD", conflicts_with_all = ["targets", "pid"])]
    command: Vec<OsString>,
}

impl Args {
    /// Whether it ends after one look at what runs already.
    pub fn looks_once(&self) -> bool {
        self.watch.is_none() && self.command.is_empty()
    }

    fn targets(&self) -> Vec<String> {
        let pids = self.pid.iter().map(u32::to_string);
        self.targets.iter().cloned().chain(pids).collect()
    }

    fn form(&self) -> Form {
        if self.verbose { Form::Full } else { Form::Short(terminal::columns()) }
    }
}

/// Runs the command.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    let observer = Observer::default();
    if let Some(time) = args.watch {
        return watch_one(args, &observer, time);
    }
    let look = |resolved: &Resolved| ebb_diagnosis::of(observer.look(resolved, !args.no_children, Depth::Settled));
    let diagnoses: Vec<Diagnosis> = if args.command.is_empty() {
        let found: Result<Vec<Resolved>, _> = args.targets().iter().map(|asked| target::resolve(asked)).collect();
        let each = found?.into_iter().flat_map(target::by_cgroup);
        each.map(|resolved| look(&resolved)).collect()
    } else {
        let mut subject = Subject::start(&args.command)?;
        vec![look(&subject.run_for(args.after)?)]
    };
    if args.json {
        terminal::print_json(diagnoses.as_slice(), true)?;
    } else {
        terminal::print(&text(&diagnoses, args.form()))?;
    }
    Ok(Exit::of_all(diagnoses.iter().map(|it| code(it.verdict.kind, it))))
}

/// Watches the one target, or the command.
fn watch_one(args: &Args, observer: &Observer, time: Duration) -> Result<Exit, Failure> {
    let mut subject;
    let resolved = match args.targets().as_slice() {
        [] => {
            subject = Subject::start(&args.command)?;
            subject.run_for(args.after)?
        }
        [one] => target::resolve_in_one_cgroup(one)?,
        _ => return Err(Failure::usage("--watch takes one target")),
    };
    let start = SystemTime::now();
    let events = |path: &PathBuf| events::read(path, start);
    // Wrong before the watch is better than wrong after it.
    args.events.as_ref().map(events).transpose()?;
    let pids = target::processes(&resolved, !args.no_children && resolved.cgroup.is_none());
    let before = profile::running_in(&pids);
    let (mut growth, seen) = watch::watch(observer, &resolved, !args.no_children, time, args.every)?;
    // The stacks, where the process samples anyway.
    let profiles = before.and_then(|before| Some((before, profile::running_in(&pids)?)));
    let mut events = args.events.as_ref().map(events).transpose()?.unwrap_or_default();
    events.extend(seen);
    ebb_diagnosis::growth::steps::explain(&mut growth, &events);
    if args.json {
        let stacks = profiles.map(|(before, after)| changes(&before, &after));
        terminal::print_json(&WithStacks { all: &growth, stacks }, true)?;
    } else {
        let mut text = ebb_report::growth::render(&growth, args.form());
        if terminal::has_colours() {
            text = paint::growth(&text, &growth);
        }
        if let Some((before, after)) = profiles {
            let columns = terminal::columns();
            text += &format!("\n{}", render_changes(&before, &after, MOST_STACKS, columns));
        }
        terminal::print(&text)?;
    }
    Ok(code(growth.verdict.kind, &growth.last))
}

fn text(diagnoses: &[Diagnosis], form: Form) -> String {
    if !terminal::has_colours() {
        return ebb_report::diagnosis::render(diagnoses, form);
    }
    let each = diagnoses.iter().map(|diagnosis| {
        let text = ebb_report::diagnosis::render(std::slice::from_ref(diagnosis), form);
        paint::diagnosis(&text, diagnosis)
    });
    each.collect::<Vec<String>>().join("\n")
}

fn code(kind: VerdictKind, diagnosis: &Diagnosis) -> Exit {
    // A process that may not be read differs from a heap that no reader knows.
    let is_closed = || diagnosis.snapshot.missing.iter().any(|it| it.what == "mappings");
    match kind {
        VerdictKind::InUse => Exit::Ok,
        VerdictKind::Retention => Exit::Retention,
        VerdictKind::LiveHeapGrows => Exit::LiveHeapGrows,
        VerdictKind::NotHeap => Exit::NotHeap,
        VerdictKind::Mixed => Exit::Mixed,
        VerdictKind::NotEnoughEvidence if is_closed() => Exit::Permission,
        VerdictKind::NotEnoughEvidence => Exit::NotEnoughEvidence,
    }
}
