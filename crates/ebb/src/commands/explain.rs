//! `ebb explain`: which block of ebbmalloc an address is in, its neighbours and its history, in a core dump or a process.

use std::fmt::Write as _;
use std::path::Path;

use ebb_inspect::core_file::{Core, NotACore, find_layout};
use ebb_inspect::ebbmalloc::explain::{Block, Explainer, Found, State, state_of};
use ebb_inspect::{Mapping, Memory, Target, Unreadable};
use serde::Serialize;

use crate::exit::{Exit, Failure};
use crate::terminal::{self, warn};

const EXAMPLES: &str = "Examples:
  ebb explain core.4711                  the address of the fault and the registers
  ebb explain core.4711 0x7f43521f90     this address
  ebb explain 4711 0x7f43521f90 --json   in a running process, which is not stopped";

/// The arguments of `ebb explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A core dump, or a pid
    #[arg(value_name = "CORE|PID")]
    target: String,

    /// Addresses, hexadecimal with 0x; of a core by default the address of the fault and the registers
    #[arg(value_name = "ADDRESS", value_parser = address)]
    addresses: Vec<u64>,

    /// Print JSON (docs/json.md)
    #[arg(long)]
    json: bool,
}

fn address(text: &str) -> Result<u64, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| "is no address; an example is 0x7f43521f90".to_owned())
}

#[derive(Debug, Serialize)]
struct Answer {
    /// "fault", a register, or "asked".
    name: String,
    address: u64,
    /// "slot", "large block", "free memory", "guarded block", "slab", "mapping" or "nothing".
    place: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<Of>,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<Of>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<Of>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mapping: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    history: Vec<Event>,
}

#[derive(Debug, Serialize)]
struct Of {
    start: u64,
    bytes: u64,
    state: &'static str,
}

/// What a thread did with a block.
#[derive(Debug, Serialize)]
struct Event {
    what: &'static str,
    thread: u64,
    stack: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Report {
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thread: Option<i32>,
    addresses: Vec<Answer>,
}

/// Runs the command.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    let asked = args.addresses.iter().map(|&address| ("asked".to_owned(), address));
    let report = match args.target.parse::<i32>() {
        Ok(pid) => {
            if args.addresses.is_empty() {
                return Err(Failure::usage(format!("no address to explain in process {pid}"))
                    .remedy(format!("give one: ebb explain {pid} 0x7f43521f90")));
            }
            let target = Target::open(pid).map_err(|error| closed(&args.target, &error))?;
            let mappings = target.mappings().map_err(|error| closed(&args.target, &error))?;
            let addresses = explain(&args.target, target.memory(), &mappings, asked.collect(), false)?;
            Report { signal: None, thread: None, addresses }
        }
        Err(_) => of_core(&args.target, asked.collect())?,
    };
    if args.json {
        terminal::print_json(&report, false)?;
    } else {
        terminal::print(&text(&report))?;
    }
    Ok(Exit::Ok)
}

fn of_core(name: &str, mut asked: Vec<(String, u64)>) -> Result<Report, Failure> {
    let path = Path::new(name);
    let mut core = Core::open(path).map_err(|error| {
        let exit = match &error {
            NotACore::Io(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Exit::Permission,
            NotACore::OtherMachine(_) => Exit::Unsupported,
            _ => Exit::Usage,
        };
        Failure::at(exit, path, error).remedy("CORE is the file of a core dump, PID a number")
    })?;
    if core.missing > 0 {
        warn(&format!("{name}: {} bytes of the core dump are missing; ulimit -c unlimited keeps all", core.missing));
    }
    let library = find_layout(&core, core.mappings()).map(|(_, path)| path.to_owned());
    if let Some(library) = library
        && !core.read_file_of(&library)
    {
        let what = format!("{name}: {} is not the file of the process", library.display());
        return Err(Failure::new(Exit::Unsupported, what).remedy("put that file there: a core dump has not all of it"));
    }
    let is_asked = !asked.is_empty();
    if !is_asked {
        asked.extend(core.signal.and_then(|it| it.address).map(|at| ("fault".to_owned(), at)));
        asked.extend(core.registers.iter().map(|(name, word)| ((*name).to_owned(), *word)));
    }
    let addresses = explain(name, &core, core.mappings(), asked, !is_asked)?;
    Ok(Report { signal: core.signal.map(|it| it.number), thread: core.thread, addresses })
}

/// Answers for all addresses; registers that lead to no heap are left out.
fn explain(
    name: &str,
    memory: &dyn Memory,
    mappings: &[Mapping],
    asked: Vec<(String, u64)>,
    leaves_out: bool,
) -> Result<Vec<Answer>, Failure> {
    let (place, _) = find_layout(memory, mappings).ok_or_else(|| {
        Failure::new(Exit::Unsupported, format!("{name}: has no ebbmalloc of this version, or its data is missing"))
            .remedy("ebb explain knows ebbmalloc's blocks only")
    })?;
    let unread = |error: &dyn std::fmt::Display| {
        Failure::new(Exit::NotEnoughEvidence, format!("{name}: the heap cannot be read: {error}"))
    };
    let explainer = Explainer::new(memory, mappings, &place).map_err(|error| unread(&error))?;
    let mut answers: Vec<Answer> = Vec::new();
    for (name, address) in asked {
        if let Some(same) = answers.iter_mut().find(|it| it.address == address) {
            same.name = format!("{}, {name}", same.name);
            continue;
        }
        let found = explainer.find(address).map_err(|error| unread(&error))?;
        if found.is_some() || !leaves_out || name == "fault" {
            answers.push(answer(name, address, found, mappings));
        }
    }
    Ok(answers)
}

fn closed(target: &str, error: &Unreadable) -> Failure {
    match error {
        Unreadable::Gone => Failure::usage(format!("there is no process {target}")),
        Unreadable::Refused => Failure::new(Exit::Permission, format!("process {target}: {error}"))
            .remedy("run ebb as its user, or as root"),
        other => Failure::new(Exit::NotEnoughEvidence, format!("process {target}: {other}")),
    }
}

fn answer(name: String, address: u64, found: Option<Found>, mappings: &[Mapping]) -> Answer {
    let of = |block: Block| Of { start: block.start, bytes: block.bytes, state: state(block.state) };
    let mut answer = Answer {
        name,
        address,
        place: "nothing",
        block: None,
        before: None,
        after: None,
        mapping: mapping_at(address, mappings).map(|it| place_in(address, it)),
        history: Vec::new(),
    };
    match found {
        Some(Found::Slot(block, [before, after])) => {
            answer.place = "slot";
            (answer.block, answer.before, answer.after) = (Some(of(block)), before.map(of), after.map(of));
        }
        Some(Found::Large(block)) => {
            answer.place = if block.state == State::Live { "large block" } else { "free memory" };
            answer.block = Some(of(block));
        }
        Some(Found::Guarded(record)) => {
            answer.place = "guarded block";
            answer.block = Some(Of { start: record.block, bytes: record.bytes, state: state_of(&record) });
            let events = ["allocated", "freed"].into_iter().zip(record.threads).zip(record.stacks);
            for ((what, thread), stack) in events {
                let stack: Vec<String> = stack
                    .into_iter()
                    .take_while(|frame| *frame != 0)
                    .map(|frame| mapping_at(frame, mappings).map_or(format!("{frame:#x}"), |it| place_in(frame, it)))
                    .collect();
                if thread != 0 || !stack.is_empty() {
                    answer.history.push(Event { what, thread, stack });
                }
            }
        }
        Some(Found::BetweenSlots) => answer.place = "slab",
        None if answer.mapping.is_some() => answer.place = "mapping",
        None => {}
    }
    answer
}

fn state(state: State) -> &'static str {
    match state {
        State::Live => "live",
        State::Cached => "freed, in a thread's cache",
        State::Free => "free",
    }
}

fn mapping_at(address: u64, mappings: &[Mapping]) -> Option<&Mapping> {
    mappings.iter().find(|mapping| mapping.contains(address))
}

/// The file and the offset in it, or the mapping's addresses.
fn place_in(address: u64, mapping: &Mapping) -> String {
    match mapping.file() {
        Some(path) => {
            let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
            format!("{name}+{:#x}", (address - mapping.start).saturating_add(mapping.offset))
        }
        None => {
            let may = |right: bool, letter| if right { letter } else { '-' };
            let rights = [may(mapping.readable, 'r'), may(mapping.writable, 'w'), may(mapping.executable, 'x')];
            format!("memory {:#x}-{:#x} {}", mapping.start, mapping.end, String::from_iter(rights))
        }
    }
}

fn text(report: &Report) -> String {
    let mut out = String::new();
    if let Some(signal) = report.signal {
        let name = nix::sys::signal::Signal::try_from(signal).map_or("signal", |it| it.as_str());
        let _ = write!(out, "Ended by {name} ({signal})");
        if let Some(thread) = report.thread {
            let _ = write!(out, " in thread {thread}");
        }
        out.push_str(".\n");
    }
    if report.addresses.is_empty() {
        out.push_str("No register leads to the heap.\n");
    }
    for answer in &report.addresses {
        let name = if answer.name.starts_with("asked") { String::new() } else { format!("{} ", answer.name) };
        let _ = write!(out, "{name}{:#x}: ", answer.address);
        match (&answer.block, &answer.mapping) {
            (Some(block), _) => {
                let _ = write!(out, "{}", where_in(answer.address, block));
                let _ = writeln!(out, " {:#x}, {} bytes, {}", block.start, block.bytes, sort(answer, block));
            }
            (None, _) if answer.place == "slab" => out.push_str("in a slab, in no block\n"),
            (None, Some(mapping)) => {
                let _ = writeln!(out, "not ebbmalloc's: {mapping}");
            }
            (None, None) => out.push_str("not mapped\n"),
        }
        for (side, block) in [("before", &answer.before), ("after", &answer.after)] {
            if let Some(block) = block {
                let _ = writeln!(out, "  {side}: {:#x}, {} bytes, {}", block.start, block.bytes, block.state);
            }
        }
        for event in &answer.history {
            let _ = writeln!(out, "  {} by thread {}:", event.what, event.thread);
            for frame in &event.stack {
                let _ = writeln!(out, "    {frame}");
            }
        }
    }
    out
}

/// Where an address is, seen from a block.
fn where_in(address: u64, block: &Of) -> String {
    match address.checked_sub(block.start) {
        None => format!("{} bytes before block", block.start - address),
        Some(0) => "block".to_owned(),
        Some(within) if within < block.bytes => format!("byte {within} of block"),
        Some(within) => format!("{} bytes after the end of block", within - block.bytes),
    }
}

fn sort(answer: &Answer, block: &Of) -> String {
    match answer.place {
        "slot" => block.state.to_owned(),
        place => format!("{place}, {}", block.state),
    }
}
