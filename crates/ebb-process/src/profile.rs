//! The heap profile of processes on ebbmalloc: switched on in one that runs, read from outside, with names.
//!
//! Used by `ebb profile`. A [`Session`] asks again and again, so the profile ends with us, whatever becomes of us; the process is never stopped.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebb_inspect::ebbmalloc::profile as inside;
use ebb_inspect::{Target, Unreadable};
use ebb_stats::profile::{ACCUMULATES, ACTIVE, BY_SETTINGS, OBJECT, Request, State};

use super::counters::Counters;
use super::snapshot::{Process, Snapshot, Stacks};
use super::symbols::{Line, Symbols};

/// The profile ends so long after we are gone.
const LEASE_MS: u32 = 10_000;
/// A profile may begin so long after it was asked for.
const SLACK_S: f64 = 5.0;
/// We ask so often.
pub const EVERY: Duration = Duration::from_secs(2);

/// What was allocated, estimated from samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Sum {
    /// Bytes.
    pub bytes: f64,
    /// Blocks.
    pub objects: f64,
}

impl Sum {
    fn of((objects, bytes): (u64, u64)) -> Self {
        Self { bytes: bytes as f64, objects: objects as f64 / OBJECT as f64 }
    }

    /// The standard deviation of the bytes, as far as the mean size tells, where one sample stands for `interval` bytes on
    /// average.
    pub fn error(&self, interval: f64) -> f64 {
        if self.objects <= 0.0 || interval <= 0.0 {
            return 0.0;
        }
        let size = self.bytes / self.objects;
        let chance = -(-size / interval).exp_m1();
        // Of each block S^2 (1 - p) / p.
        (self.objects * size * size * (1.0 - chance) / chance).sqrt()
    }

    /// Adds another.
    pub fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.objects += other.objects;
    }
}

/// What was allocated from one stack.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stack {
    /// Indices in [`Profile::locations`], the innermost first.
    pub locations: Vec<usize>,
    /// During the profile, where the process keeps that.
    pub allocated: Sum,
    /// What of that is still there.
    pub live: Sum,
    /// By how much that grew in the second half of the profile, where it had one.
    pub growth: Option<Growth>,
}

/// A change of what is live. Blocks that come and go, as in a cache, make none when all of them have been replaced once.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Growth {
    /// Bytes.
    pub bytes: f64,
    /// Their variance.
    pub variance: f64,
}

impl Growth {
    /// From one look to the next.
    fn between(before: &inside::Stack, after: &inside::Stack, interval: f64) -> Self {
        let difference = |a: (u64, u64), b: (u64, u64)| {
            Sum::of((a.0.saturating_sub(b.0), a.1.saturating_sub(b.1)))
        };
        let [from, to] = [before, after].map(|it| Sum::of(it.live));
        let came = difference(after.all, before.all);
        let bytes = to.bytes - from.bytes;
        let went = Sum {
            bytes: (came.bytes - bytes).max(0.0),
            objects: (came.objects - to.objects + from.objects).max(0.0),
        };
        let variance =
            |sums: [Sum; 2]| sums.map(|it| it.error(interval).powi(2)).iter().sum::<f64>();
        // Short-lived blocks are counted twice by the first sum, blocks that stayed by the second: both are too much.
        Self { bytes, variance: variance([came, went]).min(variance([from, to])) }
    }

    /// Whether it is more than three times its standard deviation, which noise rarely comes to.
    pub fn is_sure(&self) -> bool {
        self.bytes >= 1.0 && self.bytes * self.bytes > 9.0 * self.variance
    }

    /// Adds that of another stack.
    pub fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.variance += other.variance;
    }
}

/// A place in a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// The instruction before the return address; 0 for what is none.
    pub address: u64,
    /// Index in [`Profile::modules`].
    pub module: Option<usize>,
    /// The innermost function first.
    pub lines: Vec<Line>,
}

/// A file that was mapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Its name.
    pub file: String,
    /// Its build id, as hexadecimal digits.
    pub build_id: Option<String>,
    /// First address.
    pub start: u64,
    /// The address after it.
    pub end: u64,
    /// Offset in the file.
    pub offset: u64,
}

/// A profile with names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// Name and number of the process; several with a comma.
    pub title: String,
    /// Since the profile began; nothing where it is the program's own, which began with it.
    pub seconds: Option<f64>,
    /// Mean bytes between samples.
    pub interval: u64,
    /// Live bytes of the whole heaps.
    pub heap: Option<u64>,
    /// Each stack once.
    pub stacks: Vec<Stack>,
    /// Where the stacks have been.
    pub locations: Vec<Location>,
    /// Where the locations are.
    pub modules: Vec<Module>,
    /// What is missing, a line each.
    pub notes: Vec<String>,
}

impl Profile {
    /// All stacks together: what was allocated, and what is live.
    pub fn total(&self) -> (Sum, Sum) {
        let mut total = (Sum::default(), Sum::default());
        for stack in &self.stacks {
            total.0.add(stack.allocated);
            total.1.add(stack.live);
        }
        total
    }

    /// The functions of a stack, the innermost first.
    pub fn lines<'a>(&'a self, stack: &'a Stack) -> impl DoubleEndedIterator<Item = &'a Line> {
        stack.locations.iter().flat_map(|&at| &self.locations[at].lines)
    }

    /// The same with another one's stacks. Each stack gets the name of its process as its outermost function.
    pub fn merge(self, other: Self) -> Self {
        let mut all = self.below_its_name();
        let other = other.below_its_name();
        let (locations, modules) = (all.locations.len(), all.modules.len());
        all.title = format!("{}, {}", all.title, other.title);
        all.seconds = all.seconds.zip(other.seconds).map(|(a, b)| a.max(b));
        all.heap = all.heap.zip(other.heap).map(|(a, b)| a + b);
        all.modules.extend(other.modules);
        all.locations.extend(other.locations.into_iter().map(|mut it| {
            it.module = it.module.map(|at| at + modules);
            it
        }));
        all.stacks.extend(other.stacks.into_iter().map(|mut it| {
            it.locations.iter_mut().for_each(|at| *at += locations);
            it
        }));
        all.notes.extend(other.notes);
        all
    }

    /// For a snapshot: what is live, without files and lines.
    pub fn live(&self) -> Stacks {
        let mut functions = Vec::new();
        let mut places = HashMap::new();
        let mut place = |line: &Line| {
            *places.entry(line.function.clone()).or_insert_with(|| {
                functions.push(line.function.clone());
                functions.len() - 1
            })
        };
        let live = self.stacks.iter().filter(|stack| stack.live.bytes > 0.0);
        let stacks = live.map(|stack| {
            let lines = self.lines(stack).map(&mut place).collect();
            (stack.live.bytes, stack.live.objects, lines)
        });
        let stacks = stacks.collect();
        Stacks { interval: self.interval, functions, stacks }
    }

    /// What the processes of a snapshot had live; nothing where none sampled.
    pub fn of_snapshot(snapshot: &Snapshot) -> Option<Self> {
        let of = |process: &Process| Some(Self::of_live(&process.name, process.profile.as_ref()?));
        snapshot.processes.iter().filter_map(of).reduce(Self::merge)
    }

    fn of_live(name: &str, live: &Stacks) -> Self {
        let location = |function: &String| {
            let line = Line { function: function.clone(), file: None, line: 0 };
            Location { address: 0, module: None, lines: vec![line] }
        };
        let stack = |(bytes, objects, places): &(f64, f64, Vec<usize>)| Stack {
            // A file may say anything.
            locations: places.iter().copied().filter(|&at| at < live.functions.len()).collect(),
            live: Sum { bytes: *bytes, objects: *objects },
            ..Stack::default()
        };
        Self {
            title: name.to_owned(),
            interval: live.interval,
            stacks: live.stacks.iter().map(stack).collect(),
            locations: live.functions.iter().map(location).collect(),
            ..Self::default()
        }
    }

    fn below_its_name(mut self) -> Self {
        if self.title.contains(", ") {
            return self;
        }
        let line = Line { function: self.title.clone(), file: None, line: 0 };
        self.locations.push(Location { address: 0, module: None, lines: vec![line] });
        let root = self.locations.len() - 1;
        self.stacks.iter_mut().for_each(|it| it.locations.push(root));
        self
    }
}

/// Why there is no profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoProfile {
    /// Another allocator serves its malloc.
    #[error("it does not run on ebbmalloc")]
    OtherAllocator,
    /// An ebbmalloc from before the switch, or after another change of it.
    #[error(
        "its ebbmalloc is of another version than ebb, and has no profile that ebb can switch on"
    )]
    OtherVersion,
    /// It did not come to its slow path.
    #[error(
        "it has not allocated anything since it was asked, or may not be profiled because it put itself into a sandbox"
    )]
    NoAnswer,
    /// It could not be read.
    #[error("{0}")]
    Unreadable(#[from] Unreadable),
}

/// A process that is being profiled for us. Tools that ask at the same time share one profile, which the first began and
/// the last ends.
#[derive(Debug)]
pub struct Session {
    target: Arc<Target>,
    switch: u64,
    request: Request,
    asked: u64,
    began: Instant,
    /// The profile had begun for another tool.
    has_joined: bool,
}

impl Session {
    /// Asks process `pid` for a profile that takes a sample in `2^lg_sample` bytes on average. One that has begun for
    /// another tool goes on as it is.
    pub fn begin(pid: i32, counters: &Counters, lg_sample: u8) -> Result<Self, NoProfile> {
        let target = Arc::new(Target::open(pid)?);
        let Some(switch) = counters.switch(pid) else {
            let is_ours = counters.version(pid).is_some() || counters.layout(pid).is_some();
            return Err(if is_ours { NoProfile::OtherVersion } else { NoProfile::OtherAllocator });
        };
        let state = inside::state(target.memory(), switch)?;
        let last = Request::from_word(state.asked);
        let has_lapsed = state.answered == state.asked && state.state & ACTIVE == 0;
        let has_joined = last.lease_ms != 0 && !has_lapsed;
        let request = Request {
            number: 0,
            lg_sample,
            // A process that did nothing since has not seen that the last one has ended.
            is_anew: !has_joined,
            users: if has_joined { last.users.saturating_add(1) } else { 1 },
            lease_ms: LEASE_MS,
        };
        let began = Instant::now();
        let mut session = Self { target, switch, request, asked: 0, began, has_joined };
        session.ask(state)?;
        Ok(session)
    }

    /// Asks again, so that it goes on.
    pub fn renew(&mut self) -> Result<(), NoProfile> {
        let state = inside::state(self.target.memory(), self.switch)?;
        if state.asked != self.asked {
            // Another tool came or went.
            self.request.users = Request::from_word(state.asked).users.max(1);
            self.request.is_anew = false;
        }
        self.request.is_anew &= state.answered != self.asked;
        self.ask(state)
    }

    fn ask(&mut self, state: State) -> Result<(), NoProfile> {
        if state.state & BY_SETTINGS != 0 {
            return Ok(());
        }
        self.request.number = Request::from_word(state.asked).number.wrapping_add(1);
        let (pid, memory) = (self.target.pid(), self.target.memory());
        self.asked = inside::ask(pid, memory, self.switch, self.request)?;
        Ok(())
    }

    /// Whether the process has answered once.
    pub fn is_answered(&self) -> Result<bool, NoProfile> {
        let state = inside::state(self.target.memory(), self.switch)?;
        // Of this session or of another's, which goes on for us.
        Ok(state.answered == self.asked || state.state & (ACTIVE | BY_SETTINGS) != 0)
    }

    /// The profile so far, without names.
    pub fn look(&self) -> Result<Look, NoProfile> {
        if !self.is_answered()? {
            return Err(NoProfile::NoAnswer);
        }
        let memory = self.target.memory();
        let state = inside::state(memory, self.switch)?;
        let read = inside::read(memory, state.table)?;
        let name = self.target.process().stat().map_err(ebb_inspect::target::reason)?.comm;
        let asked_s = self.began.elapsed().as_secs_f64();
        let runs_s = super::counters::monotonic_ms().saturating_sub(state.began_ms) as f64 / 1000.0;
        let note = match self.has_joined {
            // The process was idle, or another tool that wrote at the same moment has ended the first.
            _ if runs_s + SLACK_S < asked_s => {
                Some(format!("the profile is of the last {runs_s:.0} s only"))
            }
            true => {
                Some(format!("another tool began this profile, {:.0} s earlier", runs_s - asked_s))
            }
            false => None,
        };
        Ok(Look {
            title: format!("{name} ({})", self.target.pid()),
            seconds: if note.is_some() { runs_s } else { asked_s },
            note,
            state,
            read,
            symbols: Symbols::of(&self.target)?,
        })
    }

    /// Ends it now, unless another tool goes on asking. Where one was killed, it ends with its lease.
    pub fn end(mut self) {
        let Ok(state) = inside::state(self.target.memory(), self.switch) else { return };
        let users = Request::from_word(state.asked).users.saturating_sub(1);
        let lease_ms = if users == 0 { 0 } else { LEASE_MS };
        self.request = Request { users, lease_ms, is_anew: false, ..self.request };
        // A process that ended has no profile either.
        let _ = self.ask(state);
    }
}

/// The profile of process `pid`, where it samples anyway: nothing is written to it.
pub fn running(pid: i32, counters: &Counters) -> Result<Option<Profile>, NoProfile> {
    let Some(switch) = counters.switch(pid) else { return Ok(None) };
    let target = Arc::new(Target::open(pid)?);
    let state = inside::state(target.memory(), switch)?;
    if state.state & ACTIVE == 0 {
        return Ok(None);
    }
    let (began, request) = (Instant::now(), Request::from_word(state.asked));
    let session = Session { target, switch, request, asked: 0, began, has_joined: false };
    Ok(Some(session.look()?.named(&[])))
}

/// Those of several processes together; nothing where none samples.
pub fn running_in(pids: &[i32]) -> Option<Profile> {
    let counters = Counters::default();
    let all = pids.iter().filter_map(|&pid| running(pid, &counters).ok().flatten());
    all.reduce(Profile::merge)
}

/// A profile without names: cheap to take.
pub struct Look {
    title: String,
    seconds: f64,
    note: Option<String>,
    state: State,
    read: inside::Stacks,
    symbols: Symbols,
}

impl Look {
    /// With names, also when the process has ended meanwhile; and by how much it has grown since one of `earlier`.
    pub fn named(self, earlier: &[Look]) -> Profile {
        let Self { title, seconds, note, state, read, mut symbols } = self;
        let by_settings = state.state & BY_SETTINGS != 0;
        let mut profile = Profile {
            title,
            seconds: (!by_settings).then_some(seconds),
            interval: 1 << state.lg_sample().min(48),
            ..Profile::default()
        };
        profile.notes.extend(note.filter(|_| !by_settings));
        if by_settings && state.state & ACTIVE == 0 {
            profile.notes.push("prof_active is off in the process: nothing is sampled".to_owned());
        }
        if read.torn > 0 {
            let note =
                format!("{} of 4096 parts of the table changed too fast to be read", read.torn);
            profile.notes.push(note);
        }
        if read.refused > 0 {
            let note = format!("the table is full: {} samples are missing", read.refused);
            profile.notes.push(note);
        }
        let half = earlier.iter().find(|it| it.title == profile.title);
        let half = half.filter(|it| it.state.began_ms == state.began_ms && !by_settings);
        let half: Option<HashMap<&[u64], &inside::Stack>> =
            half.map(|it| it.read.stacks.iter().map(|it| (&it.frames[..], it)).collect());
        let mut known = HashMap::new();
        let mut nameless = 0;
        for stack in read.stacks {
            let none = inside::Stack::default();
            let growth = half.as_ref().map(|half| {
                let before = half.get(&stack.frames[..]).copied().unwrap_or(&none);
                Growth::between(before, &stack, profile.interval as f64)
            });
            let mut is_named = true;
            let mut location = |frame: u64| {
                *known.entry(frame).or_insert_with(|| {
                    let place = symbols.at(frame);
                    let (address, module) = (frame.saturating_sub(1), place.module);
                    profile.locations.push(Location { address, module, lines: place.lines });
                    (profile.locations.len() - 1, place.is_named)
                })
            };
            let locations = stack.frames.iter().map(|&frame| {
                let (at, has_name) = location(frame);
                is_named &= has_name;
                at
            });
            let locations = locations.collect();
            nameless += usize::from(!is_named);
            let all = if state.state & ACCUMULATES == 0 { (0, 0) } else { stack.all };
            let (allocated, live) = (Sum::of(all), Sum::of(stack.live));
            profile.stacks.push(Stack { locations, allocated, live, growth });
        }
        if nameless > 0 {
            let of = profile.stacks.len();
            let note = format!("{nameless} of {of} stacks have functions without a name");
            profile.notes.push(note);
        }
        profile.notes.extend(symbols.notes().iter().cloned());
        profile.modules = symbols.modules().iter().map(Module::from).collect();
        profile
    }
}

impl From<&super::symbols::Module> for Module {
    fn from(module: &super::symbols::Module) -> Self {
        Self {
            file: module.path.to_string_lossy().into_owned(),
            build_id: module.build_id.clone(),
            start: module.start,
            end: module.end,
            offset: module.offset,
        }
    }
}
