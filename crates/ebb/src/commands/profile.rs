//! `ebb profile`: which functions hold the memory of a process on ebbmalloc, without a restart. Asks the allocator for
//! samples, waits, reads them from outside, names them, and ends the profile.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::arguments;
use crate::commands::snap;
use crate::exit::{Exit, Failure};
use crate::signals::Ending;
use crate::terminal;
use ebb_allocators::Allocator;
use ebb_inspect::Unreadable;
use ebb_node::look::allocator_of;
use ebb_process::counters::Counters;
use ebb_process::profile::{EVERY, Look, NoProfile, Profile, Session};
use ebb_process::target::{self, Resolved};
use ebb_process::{NotRead, pprof, whole_file};
use ebb_report::profile::{self as report, Shown};

const EXAMPLES: &str = "Examples:
  ebb profile 4711                          which functions' blocks of the next 60 s are still there then
  ebb profile gunicorn --for 10m -o heap.pb.gz   then: go tool pprof -http : heap.pb.gz, or ebb diff of two
  ebb profile 4711 --tree
  ebb profile -- ./service --port 80        start it on ebbmalloc; the profile is from its start to its end, or for --for";

/// The logarithm of the mean bytes between samples, unless another is given.
pub(super) const DEFAULT_LG: u8 = 19;

/// Where a program may end at any time it is looked at so often: what it does after the last look is not seen.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The arguments of `ebb profile`.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "ebb profile [OPTIONS] TARGET\n       ebb profile [OPTIONS] -- CMD...",
    after_help = EXAMPLES
)]
pub struct Args {
    /// A pid, a process name, a unit, a container's id, or the path of a cgroup
    #[arg(value_name = "TARGET", required_unless_present = "command")]
    target: Option<String>,

    /// How long to sample [default: 60s; for a command, until it ends]
    #[arg(long = "for", value_name = "TIME", value_parser = arguments::time)]
    time: Option<Duration>,

    /// Mean bytes between samples, a power of two: fewer is more exact, and costs more
    #[arg(long, value_name = "SIZE", default_value = "512KiB", value_parser = interval)]
    interval: u8,

    /// Rank by what was allocated, not by what of that is still there
    #[arg(long)]
    allocated: bool,

    /// Show the tree of calls
    #[arg(long)]
    tree: bool,

    /// Write a file: .pb.gz (pprof), .folded, .speedscope.json, or .html with a flame graph
    #[arg(short, long, value_name = "FILE", value_parser = output)]
    output: Option<Output>,

    /// Leave frames of Python out: show the interpreter's own functions
    #[arg(long)]
    native: bool,

    /// Only the process itself, without its descendants
    #[arg(long)]
    no_children: bool,

    /// Print JSON (docs/json.md)
    #[arg(long, conflicts_with = "tree")]
    json: bool,

    /// A program to start on ebbmalloc, and its arguments
    #[arg(last = true, value_name = "CMD", conflicts_with = "target")]
    command: Vec<String>,
}

/// The logarithm of a power of two.
fn interval(text: &str) -> Result<u8, String> {
    let bytes = arguments::size(text)?;
    let lg = u8::try_from(bytes.max(1).ilog2()).unwrap_or(u8::MAX);
    if !bytes.is_power_of_two() || !(12..=40).contains(&lg) {
        return Err("write a power of two from 4KiB to 1TiB, such as 64KiB".to_owned());
    }
    Ok(lg)
}

/// A file, and its format by its name.
#[derive(Clone, Debug)]
struct Output {
    path: PathBuf,
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Pprof,
    Folded,
    Speedscope,
    Page,
}

fn output(text: &str) -> Result<Output, String> {
    let formats = [
        (".pb.gz", Format::Pprof),
        (".pprof", Format::Pprof),
        (".folded", Format::Folded),
        (".speedscope.json", Format::Speedscope),
        (".html", Format::Page),
    ];
    let found = formats.into_iter().find(|(end, _)| text.ends_with(end));
    let Some((_, format)) = found else {
        return Err("end it with .pb.gz, .folded, .speedscope.json or .html".to_owned());
    };
    Ok(Output { path: PathBuf::from(text), format })
}

/// Runs the command.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    let ending = Ending::listen()?;
    let mut started = None;
    let target = match &args.target {
        Some(target) => target.clone(),
        None => {
            let child = started.insert(start(&args.command)?);
            child.0.id().to_string()
        }
    };
    let resolved = target::resolve(&target)?;
    let counters = Counters::default();
    let mut sessions = Vec::new();
    let mut refused = Vec::new();
    for pid in target::processes(&resolved, !args.no_children && resolved.cgroup.is_none()) {
        match begin(args, pid, &counters, started.is_some()) {
            Ok(session) => sessions.push((pid, session)),
            Err(why) => refused.push((pid, why)),
        }
    }
    if sessions.is_empty() {
        let gone = (0, NoProfile::Unreadable(Unreadable::Gone));
        let (pid, why) = refused.into_iter().next().unwrap_or(gone);
        return Err(failure(args, &resolved, pid, why));
    }
    let until = match (args.time, &started) {
        (None, Some(_)) => None,
        (time, _) => Some(Instant::now() + time.unwrap_or(Duration::from_secs(60))),
    };
    let found = follow(&mut sessions, until, &ending, started, &counters);
    for (_, session) in sessions {
        session.end();
    }
    let mut profile = found.map_err(|(pid, why)| failure(args, &resolved, pid, why))?;
    profile.notes.extend(refused.iter().map(|(pid, why)| format!("without process {pid}: {why}")));
    if let Some(output) = &args.output {
        write(&profile, output, args.shown())?;
    }
    if args.json {
        terminal::print_json(&report::json(&profile), true)?;
    } else if args.tree {
        terminal::print(&report::tree(&profile, args.shown(), terminal::columns()))?;
    } else {
        terminal::print(&report::render(&profile, args.shown(), terminal::columns()))?;
    }
    Ok(Exit::Ok)
}

impl Args {
    fn shown(&self) -> Shown {
        if self.allocated { Shown::Allocated } else { Shown::Live }
    }
}

/// A program that goes on after us.
struct Started(Child);

/// Starts a program on ebbmalloc.
fn start(command: &[String]) -> Result<Started, Failure> {
    // The same program has the rules for what can be preloaded.
    let own = std::env::current_exe()?;
    let child = Command::new(own).args(["run", "--"]).args(command).spawn()?;
    Ok(Started(child))
}

/// Begins a session; a program that is being started gets a moment for it.
fn begin(args: &Args, pid: i32, counters: &Counters, is_new: bool) -> Result<Session, NoProfile> {
    const PATIENCE: Duration = Duration::from_secs(5);
    let until = Instant::now() + PATIENCE;
    loop {
        match Session::begin(pid, counters, args.interval, !args.native) {
            Err(NoProfile::OtherAllocator) if is_new && Instant::now() < until => {
                counters.forget(pid);
                std::thread::sleep(Duration::from_millis(2));
            }
            result => return result,
        }
    }
}

/// Asks again and again until the end, then reads.
fn follow(
    sessions: &mut [(i32, Session)],
    until: Option<Instant>,
    ending: &Ending,
    mut started: Option<Started>,
    counters: &Counters,
) -> Result<Profile, (i32, NoProfile)> {
    let mut last = None;
    let mut has_ended = false;
    let mut is_over = false;
    let mut renewed = Instant::now();
    // What grows is what grows in the second half as well: by then a cache has replaced what it had.
    let mut half = Vec::new();
    let half_at = until.map(|until| Instant::now() + until.saturating_duration_since(Instant::now()) / 2);
    while !is_over && !has_ended {
        // A program that we started may end at any time: the newest look is kept.
        let step = if started.is_some() { LOOK_EVERY } else { EVERY };
        let next = Instant::now() + step;
        let marks = [until, half_at.filter(|at| *at > Instant::now())];
        let next = marks.into_iter().flatten().fold(next, Instant::min);
        is_over = !ending.sleep_until(next) || until.is_some_and(|until| Instant::now() >= until);
        has_ended = started.as_mut().is_some_and(|it| matches!(it.0.try_wait(), Ok(Some(_))));
        if renewed.elapsed() >= EVERY && !is_over {
            renewed = Instant::now();
            let alive = sessions.iter_mut().filter_map(|(_, session)| session.renew().ok()).count();
            has_ended |= alive == 0;
        }
        if half.is_empty() && !is_over && half_at.is_some_and(|at| Instant::now() >= at) {
            half = looks(sessions).unwrap_or_default();
        }
        if !has_ended && (started.is_some() || is_over) {
            match looks(sessions) {
                Ok(looks) => last = Some(looks),
                Err(error) if is_over && last.is_none() => return Err(error),
                Err(_) => {}
            }
        }
    }
    let gone = (sessions.first().map_or(0, |it| it.0), NoProfile::Unreadable(Unreadable::Gone));
    let mut profile = named(last.ok_or(gone)?, &half);
    if !has_ended {
        let heaps = sessions.iter().map(|(pid, _)| heap(*pid, counters));
        profile.heap = heaps.sum();
    }
    Ok(profile)
}

/// The profiles of all processes that can be read, without names.
pub(super) fn looks(sessions: &mut [(i32, Session)]) -> Result<Vec<Look>, (i32, NoProfile)> {
    let (mut looks, mut refused) = (Vec::new(), None);
    for (pid, session) in sessions {
        match session.look() {
            Ok(look) => looks.push(look),
            Err(why) => refused = refused.or(Some((*pid, why))),
        }
    }
    match refused {
        Some(refused) if looks.is_empty() => Err(refused),
        _ => Ok(looks),
    }
}

/// All of them together.
pub(super) fn named(looks: Vec<Look>, half: &[Look]) -> Profile {
    let profiles = looks.into_iter().map(|look| look.named(half));
    profiles.reduce(Profile::merge).unwrap_or_default()
}

/// Bytes of live blocks in the heap.
fn heap(pid: i32, counters: &Counters) -> Option<u64> {
    let name = Allocator::Ebbmalloc.name();
    let heap = ebb_process::heap::read(pid, Some(name), None, counters).ok()?;
    Some(heap.breakdown.live.bytes)
}

/// Why there is no profile of the target, and what to do.
fn failure(args: &Args, resolved: &Resolved, pid: i32, why: NoProfile) -> Failure {
    let named = &resolved.target.asked;
    let exit = match &why {
        NoProfile::OtherAllocator | NoProfile::OtherVersion => Exit::Unsupported,
        NoProfile::NoAnswer | NoProfile::Unreadable(_) => Exit::NotEnoughEvidence,
    };
    match why {
        NoProfile::OtherAllocator if args.target.is_some() => {
            let name = allocator_of(pid).unwrap_or_else(|| "another allocator".to_owned());
            let command = procfs::process::Process::new(pid).and_then(|it| it.cmdline());
            let command = command.map(|it| shlex::try_join(it.iter().map(String::as_str)));
            let command = command.ok().and_then(Result::ok).unwrap_or_else(|| "CMD".to_owned());
            Failure::new(exit, format!("{named} runs on {name}, which keeps no stacks"))
                .remedy(format!("ebb why -v {named} has what can be seen without a restart; ebb run -- {command} starts it so that ebb profile can see its stacks"))
        }
        NoProfile::Unreadable(Unreadable::Refused) => {
            let refused = NotRead::refused(pid, Unreadable::Refused);
            let failure = Failure::new(Exit::Permission, format!("{named}: {}", refused.why));
            match refused.remedy {
                Some(remedy) => failure.remedy(remedy),
                None => failure,
            }
        }
        NoProfile::Unreadable(Unreadable::Gone) => Failure::ended(named),
        why => Failure::new(exit, format!("{named}: {why}")),
    }
}

fn write(profile: &Profile, output: &Output, shown: Shown) -> Result<(), Failure> {
    match output.format {
        Format::Pprof => {
            let type_shown = (shown == Shown::Allocated).then_some("alloc_space");
            whole_file::write(&output.path, &pprof::write(profile, type_shown, pprof::now_ns()), None).map_err(
                |error| {
                    let what = format!("{} was not written: {error}", output.path.display());
                    Failure::new(Exit::NotWritten, what)
                },
            )
        }
        Format::Folded => snap::write(&output.path, &report::folded(profile, shown), None),
        Format::Page => {
            let page = report::page(profile).map_err(|error| Failure::new(Exit::Internal, error))?;
            snap::write(&output.path, &page, None)
        }
        Format::Speedscope => snap::write(&output.path, &report::speedscope(profile)?, None),
    }
}

/// Whether a file of `ebb diff` is a profile.
pub(super) fn is_profile(path: &Path) -> bool {
    output(&path.to_string_lossy()).is_ok_and(|it| it.format == Format::Pprof)
}

/// Reads a file of `-o`, or of another program.
pub(super) fn open(path: &Path) -> Result<Profile, Failure> {
    let bytes = std::fs::read(path).map_err(|error| Failure::at(Exit::Usage, path, error))?;
    pprof::read(&bytes).map_err(|error| {
        Failure::at(Exit::Usage, path, error).remedy("it must be a file of `ebb profile -o` or another heap profile")
    })
}
