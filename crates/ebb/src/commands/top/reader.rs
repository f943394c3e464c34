//! Reads for the screen of `ebb top`: figures at each tick, heaps as the budget allows, and what a person asks for. A thread of its own,
//! so a heap that takes seconds to read stops no key.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use ebb_diagnosis::facts::diagnosis::{Cause, VerdictKind};
use ebb_node::look::Observer;
use ebb_node::{Clock, Group, Next, Node, Options, Process, Subject};
use ebb_process::environ;
use ebb_process::look::Depth;
use ebb_process::snapshot::{Target, TargetKind};
use ebb_process::target::{self, Resolved};
use ebb_report::diagnosis::{Form, wrap};

use super::model::{Cost, Event, Figures, Wish};
use super::rows::{Heap, Key, Row};
use crate::commands::{snap, trim};
use crate::exit::Failure;
use crate::terminal;

/// The part of the budget that ticks may take; the rest is for heaps.
const FOR_TICKS: f64 = 0.5;
/// The selected row is read once it has been selected for so long, and again after so long.
const RESTS: Duration = Duration::from_millis(500);
const AGAIN_AFTER: Duration = Duration::from_secs(10);
/// The budget of so much time may be used at the start.
const AT_START: Duration = Duration::from_secs(60);
/// What a look costs that was never made: as `ebb-node` has it.
const FIRST_COST_S: f64 = 0.005;
const FIRST_COST_S_PER_BYTE: f64 = 0.02 / (1_u64 << 30) as f64;
/// The share of so much time is shown.
const SHOWN: Duration = Duration::from_secs(60);
/// A heap is not read later than this after the start of `--once`.
const ONCE_WITHIN: Duration = Duration::from_secs(10);
/// Columns of a dialog.
const COLUMNS: usize = 72;
const LONGEST_COMMAND: usize = 200;
/// The command line of a smaller process is not read: 2,000 of them take as long as a minute's budget.
const LEAST_TO_NAME: u64 = 4 << 20;

/// Starts the thread; it ends when its wishes or its reader are gone.
pub fn start(budget: f64, every: Duration, events: Sender<Event>) -> Sender<Wish> {
    let (wishes, inbox) = channel();
    std::thread::spawn(move || Reader::new(budget, every).run(&inbox, &events));
    wishes
}

/// All there is, with the heaps that could be read in time, and how many were not.
pub fn once() -> (Figures, usize) {
    let mut reader = Reader::new(1.0, SHOWN);
    let end = Instant::now() + ONCE_WITHIN;
    reader.node.tick(&Clock::now());
    let mut left = 0;
    loop {
        match reader.node.next(&Clock::now()) {
            Next::Look(key) if Instant::now() < end => {
                // A refusal is a figure of its row.
                let _ = reader.node.look(&Subject::Process(key));
            }
            Next::Look(_) | Next::Wait(_) => {
                left = reader.node.processes().filter(|it| it.figures.is_none()).count();
                break;
            }
            Next::Idle => break,
        }
    }
    (reader.figures(), left)
}

struct Reader {
    node: Node,
    observer: Observer,
    budget: f64,
    /// Time between two ticks: as wanted, or more where they alone take much of the budget.
    wanted: Duration,
    every: Duration,
    /// When figures were sent last, and whether a heap was read since then.
    sent: Instant,
    is_stale: bool,
    started: Clock,
    clocks: Vec<Clock>,
    /// What each process is called: read once, and again after an exec.
    commands: HashMap<ebb_node::Key, (String, Option<String>)>,
    selected: Option<(Key, Instant)>,
    open: Option<Key>,
    /// When the selected row was read last and what that cost.
    read: HashMap<Key, (Instant, f64)>,
}

impl Reader {
    fn new(budget: f64, every: Duration) -> Self {
        let started = Clock::now();
        Self {
            node: Node::new(Options { budget, cgroups: None }),
            observer: Observer::default(),
            budget,
            wanted: every,
            every,
            sent: Instant::now(),
            is_stale: false,
            clocks: vec![Clock { cpu: Duration::ZERO, ..started }],
            started,
            commands: HashMap::new(),
            selected: None,
            open: None,
            read: HashMap::new(),
        }
    }

    fn run(mut self, inbox: &Receiver<Wish>, events: &Sender<Event>) {
        let mut next = Instant::now();
        let mut is_first = true;
        loop {
            if Instant::now() >= next {
                let before = Clock::now();
                self.node.tick(&before);
                if self.sends(true, events).is_err() {
                    return;
                }
                let cost = Clock::now().cpu.saturating_sub(before.cpu);
                // The first one names all processes.
                if !is_first {
                    self.every = self.wanted.max(cost.div_f64(self.budget * FOR_TICKS));
                }
                is_first = false;
                next = Instant::now() + self.every;
            }
            let has_more = self.reads_one(events);
            self.is_stale |= has_more;
            if self.is_stale && self.sent.elapsed() >= RESTS && self.sends(false, events).is_err() {
                return;
            }
            let rest = if has_more { Duration::ZERO } else { RESTS.min(self.every) };
            match inbox.recv_timeout(rest.min(next.saturating_duration_since(Instant::now()))) {
                Ok(wish) => {
                    if self.serves(wish, events).is_err() {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Sends what is known, as of a tick or of looks since then.
    fn sends(&mut self, is_tick: bool, events: &Sender<Event>) -> Result<(), ()> {
        (self.sent, self.is_stale) = (Instant::now(), false);
        let figures = Figures { is_tick, ..self.figures() };
        events.send(Event::Figures(figures)).map_err(|_| ())
    }

    /// Reads the selected row if it is due, else the next one; whether one was read.
    fn reads_one(&mut self, events: &Sender<Event>) -> bool {
        if let Some(key) = self.selected_is_due() {
            self.looks_at(&key, events);
            return true;
        }
        match self.node.next(&Clock::now()) {
            Next::Look(key) => {
                let _ = self.node.look(&Subject::Process(key));
                true
            }
            Next::Wait(_) | Next::Idle => false,
        }
    }

    fn selected_is_due(&self) -> Option<Key> {
        let (key, since) = self.selected.as_ref()?;
        let last = self.read.get(key);
        let is_due = since.elapsed() >= RESTS && last.is_none_or(|(at, _)| at.elapsed() >= AGAIN_AFTER);
        let first = || FIRST_COST_S + FIRST_COST_S_PER_BYTE * self.rss(key).unwrap_or(0) as f64;
        let cost_s = last.map_or_else(first, |(_, cost_s)| *cost_s);
        let now = Clock::now();
        let used_s = now.cpu.saturating_sub(self.started.cpu).as_secs_f64();
        let time = now.at.saturating_sub(self.started.at) + AT_START;
        (is_due && used_s + cost_s <= self.budget * time.as_secs_f64()).then(|| key.clone())
    }

    /// Reads the heaps of a row; of one that is open, all that is known.
    fn looks_at(&mut self, key: &Key, events: &Sender<Event>) {
        let before = Clock::now();
        if self.open.as_ref() == Some(key) {
            let lines = match self.resolve(key) {
                Ok(resolved) => self.detail(&resolved),
                Err(failure) => wrap(&failure.to_string(), COLUMNS, 0),
            };
            let _ = events.send(Event::Detail(key.clone(), lines));
        } else {
            let _ = self.node.look(&subject(key));
        }
        let cost = Clock::now().cpu.saturating_sub(before.cpu).as_secs_f64();
        self.read.insert(key.clone(), (Instant::now(), cost));
    }

    fn detail(&self, resolved: &Resolved) -> Vec<String> {
        let snapshot = self.observer.look(resolved, false, Depth::Heaps);
        let text = ebb_report::diagnosis::render(&[ebb_diagnosis::of(snapshot)], Form::Full);
        terminal::plain(&text).lines().map(|line| line.trim_end().to_owned()).collect()
    }

    fn serves(&mut self, wish: Wish, events: &Sender<Event>) -> Result<(), ()> {
        let event = match wish {
            Wish::Quit => return Err(()),
            Wish::Look(key) => {
                self.open = None;
                self.selected = Some((key, Instant::now()));
                return Ok(());
            }
            Wish::Open(key) => {
                self.open = Some(key.clone());
                self.selected = Some((key.clone(), Instant::now()));
                self.looks_at(&key, events);
                return Ok(());
            }
            Wish::Forecast(key) => match self.forecast(&key) {
                Ok((lines, offered)) => Event::Forecast(key, lines, offered),
                Err(failure) => Event::Forecast(key, wrap(&failure.to_string(), COLUMNS, 0), false),
            },
            Wish::Trim(key) => Event::Done(self.trimmed(&key).unwrap_or_else(|failure| failed(&failure))),
            Wish::Snap(key) => Event::Done(self.snapped(&key).unwrap_or_else(|failure| failed(&failure))),
        };
        events.send(event).map_err(|_| ())
    }

    fn forecast(&self, key: &Key) -> Result<(Vec<String>, bool), Failure> {
        let trim = trim::Args::asked(false).trim(&self.resolve(key)?, &self.observer)?;
        let is_offered = trim::is_offered(&trim);
        // In front, so that a long list does not hide it.
        let question = if is_offered {
            "Call malloc_trim now? A thread is stopped for a moment.   y yes   n no"
        } else {
            "There is nothing to trim. Any key closes this."
        };
        let mut lines = vec![question.to_owned(), String::new()];
        // The question says what to do instead of `ebb trim`'s option.
        let text = ebb_report::trim::render(&trim);
        let rest = text.lines().filter(|line| !line.contains("--dry-run"));
        lines.extend(rest.flat_map(|line| wrap(line, COLUMNS, 2)));
        Ok((lines, is_offered))
    }

    fn trimmed(&mut self, key: &Key) -> Result<Vec<String>, Failure> {
        let trim = trim::Args::asked(true).trim(&self.resolve(key)?, &self.observer)?;
        // So that its row shows it.
        let _ = self.node.look(&subject(key));
        Ok(wrapped(&ebb_report::trim::render(&trim)))
    }

    fn snapped(&self, key: &Key) -> Result<Vec<String>, Failure> {
        let resolved = self.resolve(key)?;
        let path = snap::take_into_new_file(&resolved, &self.observer)?;
        let path = path.display();
        Ok(vec![
            format!("Written: {path}"),
            format!("Later: ebb snap {} -o after.json; ebb diff {path} after.json", resolved.target.asked),
        ])
    }

    /// What a row stands for, if that is still there.
    fn resolve(&self, key: &Key) -> Result<Resolved, Failure> {
        match key {
            Key::Process { pid, started_ticks } => {
                let now = ebb_process::identity(*pid);
                if now.is_none_or(|(started, _)| started != *started_ticks) {
                    return Err(Failure::ended(&pid.to_string()));
                }
                let target = Target { asked: pid.to_string(), kind: TargetKind::Pid };
                Ok(Resolved { target, roots: vec![*pid], cgroup: None })
            }
            Key::Group { cgroup } => Ok(target::resolve(cgroup)?),
        }
    }

    fn rss(&self, key: &Key) -> Option<u64> {
        match subject(key) {
            Subject::Process(key) => self.node.process(key).map(|it| it.rss),
            Subject::Group(path) => self.node.group(&path).map(|it| it.rss),
        }
    }

    fn figures(&mut self) -> Figures {
        let now = Clock::now();
        let mut read = std::mem::take(&mut self.read);
        read.retain(|key, _| self.rss(key).is_some());
        self.read = read;
        let mut commands = std::mem::take(&mut self.commands);
        let mut known = HashMap::with_capacity(commands.len());
        for process in self.node.processes() {
            let before = commands.remove(&process.key).filter(|(name, _)| *name == process.name);
            let entry = before.unwrap_or_else(|| (process.name.clone(), command(process)));
            known.insert(process.key, entry);
        }
        self.commands = known;
        let keys: HashMap<i32, Key> = self.node.processes().map(|it| (it.key.pid, process_key(it.key))).collect();
        let of_process = |it: &Process| {
            let group = self.node.group(&it.group);
            let command = self.commands.get(&it.key).and_then(|(_, command)| command.clone());
            Row {
                key: process_key(it.key),
                parent: keys.get(&it.parent).cloned(),
                group: group.map(|group| Key::Group { cgroup: group.identity.cgroup.clone() }),
                name: it.name.clone(),
                command,
                processes: 1,
                rss: Some(it.rss),
                heap: it.figures.as_ref().map(|figures| heap(figures, &now)),
                ..limits(group)
            }
        };
        // What this program has is in the first lines.
        let own = std::process::id().cast_signed();
        let others = self.node.processes().filter(|it| it.key.pid != own);
        let processes = others.map(of_process).collect();
        let of_group = |it: &Group| Row {
            key: Key::Group { cgroup: it.identity.cgroup.clone() },
            name: group_name(it),
            processes: it.processes.len(),
            rss: Some(it.rss),
            heap: it.figures.as_ref().map(|figures| heap(figures, &now)),
            ..limits(Some(it))
        };
        let groups = self.node.groups().map(of_group).collect();
        Figures { processes, groups, cost: self.cost(now), is_tick: true }
    }

    fn cost(&mut self, now: Clock) -> Cost {
        self.clocks.push(now);
        self.clocks.retain(|it| now.at.saturating_sub(it.at) <= SHOWN);
        // Before it was there it used nothing.
        let first = self.clocks.first().map_or(now.cpu, |first| first.cpu);
        let used = now.cpu.saturating_sub(first);
        let statm = procfs::process::Process::myself().and_then(|it| it.statm());
        Cost {
            share: used.as_secs_f64() / SHOWN.as_secs_f64(),
            budget: self.budget,
            resident: statm.ok().map(|it| it.resident * procfs::page_size()),
            clock: jiff::ZonedDateTime::now().strftime("%H:%M:%S").to_string(),
            every_s: (self.every > self.wanted).then_some(self.every.as_secs_f64()),
        }
    }
}

fn failed(failure: &Failure) -> Vec<String> {
    wrap(&failure.to_string(), COLUMNS, 0)
}

fn wrapped(text: &str) -> Vec<String> {
    text.lines().flat_map(|line| wrap(line, COLUMNS, 2)).collect()
}

fn process_key(key: ebb_node::Key) -> Key {
    Key::Process { pid: key.pid, started_ticks: key.started_ticks }
}

fn subject(key: &Key) -> Subject {
    match key {
        Key::Process { pid, started_ticks } => {
            Subject::Process(ebb_node::Key { pid: *pid, started_ticks: *started_ticks })
        }
        Key::Group { cgroup } => Subject::Group(cgroup.clone()),
    }
}

/// A row with the limit that holds in a group.
fn limits(group: Option<&Group>) -> Row {
    let cgroup = group.and_then(|group| group.cgroup.as_ref());
    Row { limit: cgroup.and_then(|it| it.limit), limit_usage: cgroup.and_then(|it| it.limit_usage), ..Row::default() }
}

fn heap(figures: &ebb_node::Figures, now: &Clock) -> Heap {
    let ledger = &figures.ledger;
    let file = ledger.bytes(Cause::MappedFiles) + ledger.bytes(Cause::SharedMemory);
    let held = figures.live.map(|_| ledger.held());
    let told = [figures.live, held, figures.interpreter];
    let is_refused = figures.live.is_none() && figures.missing.iter().any(|it| it.remedy.is_some());
    Heap {
        held,
        live: figures.live,
        returnable: figures.returnable,
        pinned: figures.pinned,
        cached: figures.cached,
        interpreter: figures.interpreter,
        huge_excess: figures.huge_excess,
        file: Some(file),
        other: figures.live.map(|_| {
            let free_objects = ledger.bytes(Cause::FreeObjects);
            let told: u64 = told.into_iter().flatten().sum::<u64>() + file;
            // Free room in an interpreter's arenas is held, and its own.
            (ledger.total + free_objects).saturating_sub(told)
        }),
        allocator: figures.allocator.clone(),
        in_charge: figures.in_charge,
        verdict: if is_refused { "no right" } else { word(figures.verdict.kind) },
        look_age_s: now.at.saturating_sub(figures.at).as_secs_f64(),
    }
}

/// The verdicts of `ebb why` in a word or two.
fn word(kind: VerdictKind) -> &'static str {
    match kind {
        VerdictKind::InUse => "in use",
        VerdictKind::Retention => "retention",
        VerdictKind::LiveHeapGrows => "grows",
        VerdictKind::NotHeap => "not heap",
        VerdictKind::Mixed => "mixed",
        VerdictKind::NotEnoughEvidence => "unclear",
    }
}

/// The unit, the start of the container's id, or the path of any other cgroup.
fn group_name(group: &Group) -> String {
    let identity = &group.identity;
    let container = identity.container_id.as_ref().map(|id| id.chars().take(12).collect());
    let name = container.or_else(|| identity.unit.clone());
    name.unwrap_or_else(|| identity.cgroup.clone()).replace(char::is_control, "\u{fffd}")
}

/// The command line without the program's folder; nothing where it is empty or may not be read, or the process is small.
fn command(process: &Process) -> Option<String> {
    if process.rss < LEAST_TO_NAME {
        return None;
    }
    let mut words = environ::command_line(process.key.pid);
    // One that a program wrote itself is a sentence.
    if let Some(program) = words.first_mut().filter(|it| !it.contains(' ')) {
        *program = program.rsplit('/').next().unwrap_or_default().to_owned();
    }
    let text: String = words.join(" ").trim().chars().take(LONGEST_COMMAND).collect();
    (!text.is_empty()).then(|| text.replace(char::is_control, "\u{fffd}"))
}
