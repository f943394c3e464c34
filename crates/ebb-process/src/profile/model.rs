//! What a heap profile consists of: stacks with what they hold, places, and the files that these are in.

use std::collections::HashMap;

use ebb_inspect::ebbmalloc::profile as inside;
use ebb_stats::profile::OBJECT;

use crate::snapshot::{Process, Snapshot, Stacks};
use crate::symbols::Line;

/// What was allocated, estimated from samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Sum {
    /// Bytes.
    pub bytes: f64,
    /// Blocks.
    pub objects: f64,
}

impl Sum {
    pub(super) fn of((objects, bytes): (u64, u64)) -> Self {
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
    pub(super) fn between(before: &inside::Stack, after: &inside::Stack, interval: f64) -> Self {
        let difference = |a: (u64, u64), b: (u64, u64)| Sum::of((a.0.saturating_sub(b.0), a.1.saturating_sub(b.1)));
        let [from, to] = [before, after].map(|it| Sum::of(it.live));
        let came = difference(after.all, before.all);
        let bytes = to.bytes - from.bytes;
        let went =
            Sum { bytes: (came.bytes - bytes).max(0.0), objects: (came.objects - to.objects + from.objects).max(0.0) };
        let variance = |sums: [Sum; 2]| sums.map(|it| it.error(interval).powi(2)).iter().sum::<f64>();
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

impl Location {
    /// A place that is known by its line alone.
    pub(super) fn of(line: Line) -> Self {
        Self { address: 0, module: None, lines: vec![line] }
    }

    /// A function without a file.
    pub(super) fn of_function(function: String) -> Self {
        Self::of(Line { function, file: None, line: 0 })
    }

    /// Whether it is in a program that is interpreted.
    pub fn is_python(&self) -> bool {
        self.module.is_none() && self.address == 0 && self.lines.iter().any(|it| it.file.is_some())
    }
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

impl Module {
    /// Whether it is CPython itself.
    pub fn is_interpreter(&self) -> bool {
        let name = self.file.rsplit('/').next().unwrap_or_default();
        name.starts_with("python") || name.starts_with("libpython")
    }
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
            locations: live.functions.iter().cloned().map(Location::of_function).collect(),
            ..Self::default()
        }
    }

    fn below_its_name(mut self) -> Self {
        if self.title.contains(", ") {
            return self;
        }
        self.locations.push(Location::of_function(self.title.clone()));
        let root = self.locations.len() - 1;
        self.stacks.iter_mut().for_each(|it| it.locations.push(root));
        self
    }
}

impl From<&crate::symbols::Module> for Module {
    fn from(module: &crate::symbols::Module) -> Self {
        Self {
            file: module.path.to_string_lossy().into_owned(),
            build_id: module.build_id.clone(),
            start: module.start,
            end: module.end,
            offset: module.offset,
        }
    }
}
