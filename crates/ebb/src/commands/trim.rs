//! `ebb trim`: relief without a restart. Says what malloc_trim would return, and has it called in the process where that is
//! worth it and safe: by a CPython that takes such requests, or by a thread that is stopped, if that was asked for. Then
//! measures.

use std::time::{Duration, Instant};

use crate::arguments;
use crate::exit::{Exit, Failure};
use crate::relief::inject::{self, NotDone};
use crate::relief::reclaim;
use crate::signals::Ending;
use crate::terminal;
use ebb_diagnosis::facts::trim::{Call, Cost, Left, Measured, Outcome, ProcessTrim, Reason, Trim};
use ebb_diagnosis::trim::{Limits, judge};
use ebb_node::look::Observer;
use ebb_process::look::Depth;
use ebb_process::snapshot::{Process, Runtime, Snapshot, Target, TargetKind};
use ebb_process::target::{self, Resolved};

const EXAMPLES: &str = "Examples:
  ebb trim --dry-run 4711                what malloc_trim would return, and how long it would take
  ebb trim --inject gunicorn             call it, then measure
  ebb trim --inject --every 10m gunicorn
  ebb trim --page-cache /system.slice/web.service";

/// As the defaults below.
const MAX_PAUSE: Duration = Duration::from_millis(500);
const WAIT: Duration = Duration::from_secs(10);

/// The arguments of `ebb trim`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A pid, a process name, a unit, a container's id, or the path of a cgroup
    #[arg(value_name = "TARGET")]
    target: String,

    /// Call malloc_trim in the process: one of its threads is stopped for a moment. CPython 3.14 needs no --inject
    /// (docs/trim.md)
    #[arg(long)]
    inject: bool,

    /// Show what would be returned, and change nothing
    #[arg(long, short = 'n', conflicts_with_all = ["inject", "page_cache"])]
    dry_run: bool,

    /// Skip processes that would return less
    #[arg(long, value_name = "SIZE", default_value = "16MB", value_parser = arguments::size)]
    min: u64,

    /// Skip processes in which a thread would be busy for longer
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = arguments::time)]
    max_pause: Duration,

    /// How long to wait for a thread at a safe place, or for Python to run the script
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = arguments::time)]
    wait: Duration,

    /// Also let the kernel drop file pages of the target cgroup
    #[arg(long)]
    page_cache: bool,

    /// Repeat, with this time between rounds
    #[arg(long, value_name = "TIME", value_parser = arguments::time)]
    every: Option<Duration>,

    /// Only the process itself, without its descendants
    #[arg(long)]
    no_children: bool,

    /// Print JSON, one line per round (docs/json.md)
    #[arg(long)]
    json: bool,
}

impl Args {
    /// For a person who sees what would be returned before it is done: any amount is worth the question.
    pub fn asked(inject: bool) -> Self {
        Self {
            target: String::new(),
            inject,
            dry_run: !inject,
            min: 1,
            max_pause: MAX_PAUSE,
            wait: WAIT,
            page_cache: false,
            every: None,
            no_children: true,
            json: false,
        }
    }

    /// Whether it ends after one look and changes nothing.
    pub fn looks_once(&self) -> bool {
        self.dry_run && self.every.is_none()
    }
}

/// Runs the command.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    let observer = Observer::default();
    let Some(every) = args.every else {
        return round(args, &observer);
    };
    let ending = Ending::listen()?;
    loop {
        let started = Instant::now();
        // Found anew each time: a service that was restarted has another pid.
        let exit = match round(args, &observer) {
            Err(failure) if failure.exit() != Exit::BrokenPipe => {
                terminal::warn(&failure.to_string());
                failure.exit()
            }
            result => result?,
        };
        if !ending.sleep_until(started + every) {
            return Ok(exit);
        }
    }
}

/// One round: looks, judges, trims, measures and prints.
fn round(args: &Args, observer: &Observer) -> Result<Exit, Failure> {
    let resolved = target::resolve(&args.target)?;
    if args.page_cache && resolved.cgroup.is_none() {
        return Err(Failure::usage(format!("{} is not a cgroup", args.target))
            .remedy("--page-cache takes the path of a cgroup, a unit or a container's id"));
    }
    let trim = args.trim(&resolved, observer)?;
    if args.json {
        terminal::print_json(&trim, false)?;
    } else {
        terminal::print(&ebb_report::trim::render(&trim))?;
    }
    Ok(exit(&trim))
}

impl Args {
    /// Trims the processes of `resolved`, or says what that would do.
    pub fn trim(&self, resolved: &Resolved, observer: &Observer) -> Result<Trim, Failure> {
        let snapshot = observer.look(resolved, !self.no_children, Depth::Heaps);
        if snapshot.processes.is_empty() {
            return Err(Failure::ended(&resolved.target.asked));
        }
        let cost = inject::cost();
        let each = snapshot.processes.iter();
        let processes = each.map(|it| one(self, observer, &snapshot, it, cost.as_ref())).collect();
        let place = resolved.cgroup.as_ref().filter(|_| self.page_cache);
        Ok(Trim {
            target: snapshot.target.clone(),
            taken: snapshot.taken.clone(),
            processes,
            page_cache: place.map(reclaim::page_cache),
        })
    }
}

/// Whether only the wish is missing, in some process.
pub fn is_offered(trim: &Trim) -> bool {
    trim.processes.iter().any(|it| matches!(&it.outcome, Outcome::Left(left) if left.reason == Reason::NotAsked))
}

/// One process.
fn one(args: &Args, observer: &Observer, snapshot: &Snapshot, process: &Process, cost: Option<&Cost>) -> ProcessTrim {
    let limits = Limits { least_bytes: args.min, most_pause_s: args.max_pause.as_secs_f64() };
    let (predicted, left) = judge(process, &snapshot.missing, cost, &limits);
    let done = left.map_or_else(|| call_malloc_trim(args, process), Err);
    let (outcome, measured) = match done {
        Ok(call) => (Outcome::Trimmed(call), measure(observer, process)),
        Err(left) => (Outcome::Left(left), None),
    };
    ProcessTrim {
        pid: process.pid,
        name: process.name.clone(),
        allocator: process.allocator.name.clone(),
        predicted,
        outcome,
        measured,
    }
}

/// Has malloc_trim called by the safest way that there is.
fn call_malloc_trim(args: &Args, process: &Process) -> Result<Call, Left> {
    let not_asked = |why: String, remedy: &str| Left { reason: Reason::NotAsked, why, remedy: Some(remedy.to_owned()) };
    if args.dry_run {
        let remedy = "run it without --dry-run to trim";
        return Err(not_asked("nothing was changed".to_owned(), remedy));
    }
    let asked = match process.runtime {
        Some(Runtime::Cpython) => inject::remote_malloc_trim(process.pid, args.wait),
        _ => Err(NotDone::Unoffered("nothing was changed".to_owned())),
    };
    match asked {
        Ok(call) => Ok(call),
        Err(_) if args.inject => inject::malloc_trim(process.pid, args.wait),
        Err(NotDone::Unoffered(why)) => Err(not_asked(why, "--inject calls malloc_trim in it")),
        Err(NotDone::Left(left)) => Err(left),
    }
}

/// Looks at a process again; nothing where it ended.
fn measure(observer: &Observer, before: &Process) -> Option<Measured> {
    let again = Resolved {
        target: Target { asked: before.pid.to_string(), kind: TargetKind::Pid },
        roots: vec![before.pid],
        cgroup: None,
    };
    let look = observer.look(&again, false, Depth::Heaps);
    let after = look.processes.first()?;
    Some(Measured {
        rss_before: before.status.rss?,
        rss_after: after.status.rss?,
        heap_before: before.heap.as_ref()?.resident,
        heap_after: after.heap.as_ref().map(|heap| heap.resident),
        left: after.heap.as_ref().map(|heap| heap.trimmable),
    })
}

fn exit(trim: &Trim) -> Exit {
    let of_left = |left: &Left| match left.reason {
        Reason::BelowThreshold | Reason::ReturnsByItself => Exit::Ok,
        Reason::NotAsked | Reason::TooLong => Exit::Retention,
        Reason::CannotTrim | Reason::Unfit => Exit::Unsupported,
        Reason::NotRead | Reason::Gone => Exit::NotEnoughEvidence,
        Reason::NoRight => Exit::Permission,
        Reason::NoPlace => Exit::TryAgain,
    };
    let of_processes = trim.processes.iter().filter_map(|process| match &process.outcome {
        Outcome::Trimmed(_) => None,
        Outcome::Left(left) => Some(of_left(left)),
    });
    let of_cache = trim.page_cache.iter().filter_map(|cache| cache.refused.as_ref());
    Exit::of_all(of_processes.chain(of_cache.map(of_left)))
}
