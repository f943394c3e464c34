//! The heap profile of processes on ebbmalloc: switched on in one that runs, read from outside, with names.
//!
//! Used by `ebb profile`. A [`Session`] asks again and again, so the profile ends with us, whatever becomes of us; the process is never stopped.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebb_inspect::ebbmalloc::profile as inside;
use ebb_inspect::{Target, Unreadable};
use ebb_stats::profile::{ACCUMULATES, ACTIVE, BY_SETTINGS, MOST_STACKS, OBJECT, Request, State};

use super::counters::Counters;
use super::symbols::{Line, Symbols};

/// The profile ends so long after we are gone.
const LEASE: Duration = Duration::from_secs(10);
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

/// A process that is being profiled for us.
#[derive(Debug)]
pub struct Session {
    target: Arc<Target>,
    switch: u64,
    request: Request,
    asked: u64,
    began: Instant,
}

impl Session {
    /// Asks process `pid` for a profile that takes a sample in `2^lg_sample` bytes on average. One that has begun for
    /// somebody else goes on as it is.
    pub fn begin(pid: i32, counters: &Counters, lg_sample: u8) -> Result<Self, NoProfile> {
        let target = Arc::new(Target::open(pid)?);
        let Some(switch) = counters.switch(pid) else {
            let is_ours = counters.version(pid).is_some() || counters.layout(pid).is_some();
            return Err(if is_ours { NoProfile::OtherVersion } else { NoProfile::OtherAllocator });
        };
        let last = Request::from_word(inside::state(target.memory(), switch)?.asked);
        let lease_ms = u32::try_from(LEASE.as_millis()).unwrap_or(u32::MAX);
        // A process that did nothing since has not seen that the last one has ended.
        let is_anew = last.lease_ms == 0;
        let request = Request { number: last.number, lg_sample, is_anew, lease_ms };
        let mut session = Self { target, switch, request, asked: 0, began: Instant::now() };
        session.renew()?;
        Ok(session)
    }

    /// Asks again, so that it goes on.
    pub fn renew(&mut self) -> Result<(), NoProfile> {
        self.request.number = self.request.number.wrapping_add(1);
        let memory = self.target.memory();
        let state = inside::state(memory, self.switch)?;
        self.request.is_anew &= self.asked == 0 || state.answered != self.asked;
        let pid = self.target.pid();
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
        Ok(Look {
            title: format!("{name} ({})", self.target.pid()),
            seconds: self.began.elapsed().as_secs_f64(),
            state,
            read,
            symbols: Symbols::of(&self.target)?,
        })
    }

    /// Ends it now, unless another one goes on asking.
    pub fn end(mut self) {
        let state = inside::state(self.target.memory(), self.switch);
        if state.is_ok_and(|state| state.asked != self.asked) {
            return;
        }
        self.request.lease_ms = 0;
        self.request.is_anew = false;
        // A process that ended has no profile either.
        let _ = self.renew();
    }
}

/// A profile without names: cheap to take.
pub struct Look {
    title: String,
    seconds: f64,
    state: State,
    read: inside::Stacks,
    symbols: Symbols,
}

impl Look {
    /// With names, also when the process has ended meanwhile; and by how much it has grown since one of `earlier`.
    pub fn named(self, earlier: &[Look]) -> Profile {
        let Self { title, seconds, state, read, mut symbols } = self;
        let by_settings = state.state & BY_SETTINGS != 0;
        let mut profile = Profile {
            title,
            seconds: (!by_settings).then_some(seconds),
            interval: 1 << state.lg_sample().min(48),
            ..Profile::default()
        };
        if by_settings && state.state & ACTIVE == 0 {
            profile.notes.push("prof_active is off in the process: nothing is sampled".to_owned());
        }
        if read.torn > 0 {
            let note =
                format!("{} of 4096 parts of the table changed too fast to be read", read.torn);
            profile.notes.push(note);
        }
        if !by_settings && read.stacks.len() >= MOST_STACKS {
            let note =
                format!("the table of {MOST_STACKS} stacks is full: further stacks are missing");
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
