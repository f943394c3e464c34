//! `ebb why`: where the memory of a running process is, whether its allocator holds what it has freed,
//! and what to do. Reads only, and never stops the process.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use crate::arguments;
use crate::exit::{Exit, Failure};
use crate::look::Observer;
use crate::terminal;
use ebb_diagnosis::facts::diagnosis::{Diagnosis, VerdictKind};
use ebb_process::look::Depth;
use ebb_process::target::{self, NotFound, Resolved};
use ebb_report::diagnosis::Form;

mod subject;
mod watch;

use subject::Subject;
pub use watch::Ending;

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

    /// Time between two looks [default: a 120th of --watch]
    #[arg(long, value_name = "TIME", requires = "watch", value_parser = arguments::time)]
    every: Option<Duration>,

    /// Start this command, look at it, then stop it
    #[arg(last = true, value_name = "CMD", conflicts_with_all = ["targets", "pid"])]
    command: Vec<OsString>,
}

impl Args {
    fn targets(&self) -> Vec<String> {
        let pids = self.pid.iter().map(u32::to_string);
        self.targets.iter().cloned().chain(pids).collect()
    }

    fn form(&self) -> Form {
        if self.verbose { Form::Full } else { Form::Short(terminal::columns()) }
    }
}

/// Runs the command.
pub fn execute(args: &Args) -> Result<ExitCode, Failure> {
    let observer = Observer::default();
    if let Some(time) = args.watch {
        return watch_one(args, &observer, time);
    }
    let look = |resolved: &Resolved| {
        ebb_diagnosis::of(observer.look(resolved, !args.no_children, Depth::Settled))
    };
    let diagnoses: Vec<Diagnosis> = if args.command.is_empty() {
        let found = find(&args.targets())?;
        let each = found.into_iter().flat_map(target::by_cgroup);
        each.map(|resolved| look(&resolved)).collect()
    } else {
        let mut subject = Subject::start(&args.command)?;
        vec![look(&subject.run_for(args.after)?)]
    };
    let text = if args.json { json(diagnoses.as_slice())? } else { text(&diagnoses, args.form()) };
    terminal::print(&text)?;
    Ok(exit(&diagnoses).into())
}

/// Watches the one target, or the command.
fn watch_one(args: &Args, observer: &Observer, time: Duration) -> Result<ExitCode, Failure> {
    let mut subject;
    let resolved = match args.targets().as_slice() {
        [] => {
            subject = Subject::start(&args.command)?;
            subject.run_for(args.after)?
        }
        [one] => target::resolve_in_one_cgroup(one)?,
        _ => return Err(Failure::new(Exit::Usage, "--watch takes one target")),
    };
    let growth = watch::watch(observer, &resolved, !args.no_children, time, args.every)?;
    let text = if args.json {
        json(&growth)?
    } else {
        let text = ebb_report::growth::render(&growth, args.form());
        if terminal::has_colours() { crate::paint::growth(&text, &growth) } else { text }
    };
    terminal::print(&text)?;
    Ok(code(growth.verdict.kind, &growth.last).into())
}

/// The targets, all of which must exist.
pub fn find(asked: &[String]) -> Result<Vec<Resolved>, Failure> {
    asked.iter().map(|asked| target::resolve(asked).map_err(Failure::from)).collect()
}

fn text(diagnoses: &[Diagnosis], form: Form) -> String {
    if !terminal::has_colours() {
        return ebb_report::diagnosis::render(diagnoses, form);
    }
    let each = diagnoses.iter().map(|diagnosis| {
        let text = ebb_report::diagnosis::render(std::slice::from_ref(diagnosis), form);
        crate::paint::diagnosis(&text, diagnosis)
    });
    each.collect::<Vec<String>>().join("\n")
}

fn json(diagnoses: &(impl serde::Serialize + ?Sized)) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(diagnoses)
        .map_err(|error| Failure::new(Exit::Internal, error.to_string()))?;
    Ok(text + "\n")
}

/// One code for all: that of the only verdict, or of several that differ.
fn exit(diagnoses: &[Diagnosis]) -> Exit {
    let mut codes: Vec<Exit> =
        diagnoses.iter().map(|diagnosis| code(diagnosis.verdict.kind, diagnosis)).collect();
    codes.retain(|code| *code != Exit::Ok);
    codes.dedup();
    match codes.as_slice() {
        [] => Exit::Ok,
        [only] => *only,
        _ => Exit::Mixed,
    }
}

fn code(kind: VerdictKind, diagnosis: &Diagnosis) -> Exit {
    match kind {
        VerdictKind::InUse => Exit::Ok,
        VerdictKind::Retention => Exit::Retention,
        VerdictKind::LiveHeapGrows => Exit::LiveHeapGrows,
        VerdictKind::NotHeap => Exit::NotHeap,
        VerdictKind::Mixed => Exit::Mixed,
        VerdictKind::NotEnoughEvidence => {
            // A closed door is something else than a heap that nobody can read.
            let closed =
                diagnosis.snapshot.missing.iter().any(|missing| missing.what == "mappings");
            match closed {
                true => Exit::Permission,
                false => Exit::NotEnoughEvidence,
            }
        }
    }
}

impl From<NotFound> for Failure {
    fn from(error: NotFound) -> Self {
        Failure::new(Exit::Usage, error.to_string())
    }
}
