//! The heap profile of processes on ebbmalloc: switched on in one that runs, read from outside, with names.
//!
//! Used by `ebb profile`. A [`Session`] asks again and again, so the profile ends with us, whatever becomes of us; the process is never stopped.

mod model;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebb_inspect::cpython::{Code, Codes};
use ebb_inspect::ebbmalloc::profile as inside;
use ebb_inspect::memory::Reader;
use ebb_inspect::{Target, Unreadable, Unsupported};
use ebb_stats::profile::{ACCUMULATES, ACTIVE, BY_SETTINGS, DEPTH, Frame, PYTHON_DEPTH, Request, State};

use super::counters::Counters;
use super::symbols::{Line, Symbols};
pub use model::{Growth, Location, Module, Profile, Stack, Sum};

/// The profile ends so long after we are gone.
const LEASE_MS: u32 = 10_000;
/// A profile may begin so long after it was asked for.
const SLACK_S: f64 = 5.0;
/// We ask so often.
pub const EVERY: Duration = Duration::from_secs(2);

/// Why there is no profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoProfile {
    /// Another allocator serves its malloc.
    #[error("it does not run on ebbmalloc")]
    OtherAllocator,
    /// An ebbmalloc from before the switch, or after another change of it.
    #[error("its ebbmalloc is of another version than ebb, and has no profile that ebb can switch on")]
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
    python: Python,
    codes: Arc<Names>,
}

/// Code objects by address and check, as they were when they were seen first: later they may be gone.
type Names = HashMap<(u64, u32), Arc<Code>>;

/// Bytes of code objects that are kept of one process.
const MOST_CODE_BYTES: usize = 64 << 20;

/// Frames of Python.
#[derive(Debug)]
enum Python {
    /// They are not wanted.
    Off,
    /// There is no CPython yet.
    None,
    /// The allocator knows where they are.
    Found(Codes),
    /// They cannot be had.
    Refused(String),
}

impl Session {
    /// Asks process `pid` for a profile that takes a sample in `2^lg_sample` bytes on average, `with_python` with frames
    /// of Python. One that has begun for another tool goes on as it is.
    pub fn begin(pid: i32, counters: &Counters, lg_sample: u8, with_python: bool) -> Result<Self, NoProfile> {
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
        let python = if with_python { Python::None } else { Python::Off };
        let codes = Arc::default();
        let mut session = Self { target, switch, request, asked: 0, began, has_joined, python, codes };
        session.find_python()?;
        session.ask(state)?;
        Ok(session)
    }

    /// Says to the allocator where frames of Python are, once there is a CPython.
    fn find_python(&mut self) -> Result<(), NoProfile> {
        if !matches!(self.python, Python::None) {
            return Ok(());
        }
        self.python = match Codes::of(&self.target) {
            Ok(codes) => {
                let (pid, memory) = (self.target.pid(), self.target.memory());
                inside::tell(pid, memory, self.switch, codes.interpreter)?;
                Python::Found(codes)
            }
            Err(Unsupported::Build(why)) => Python::Refused(why),
            Err(_) => return Ok(()),
        };
        Ok(())
    }

    fn read_codes(&mut self, stacks: &[inside::Stack]) -> Result<(), NoProfile> {
        let Python::Found(of) = &self.python else { return Ok(()) };
        let mut reader = Reader::new(self.target.memory());
        let mut codes = Names::new();
        let mut gone = HashSet::new();
        let mut bytes = 0;
        for frame in stacks.iter().flat_map(inside::Stack::python) {
            let key = (frame.code, frame.check);
            if codes.contains_key(&key) || gone.contains(&key) || bytes > MOST_CODE_BYTES {
                continue;
            }
            let known = self.codes.get(&key).cloned();
            let code = match known {
                Some(code) => Some(code),
                None => of.read(&mut reader, frame).ok().flatten().map(Arc::new),
            };
            match code {
                Some(code) => {
                    bytes += code.bytes();
                    codes.insert(key, code);
                }
                None => {
                    gone.insert(key);
                }
            }
        }
        self.codes = Arc::new(codes);
        Ok(())
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
    pub fn look(&mut self) -> Result<Look, NoProfile> {
        self.find_python()?;
        if !self.is_answered()? {
            return Err(NoProfile::NoAnswer);
        }
        let memory = self.target.memory();
        let state = inside::state(memory, self.switch)?;
        let read = inside::read(memory, state.table)?;
        self.read_codes(&read.stacks)?;
        let name = self.target.process().stat().map_err(ebb_inspect::target::reason)?.comm;
        let asked_s = self.began.elapsed().as_secs_f64();
        let runs_s = super::counters::monotonic_ms().saturating_sub(state.began_ms) as f64 / 1000.0;
        let note = match self.has_joined {
            // The process was idle, or another tool that wrote at the same moment has ended the first.
            _ if runs_s + SLACK_S < asked_s => Some(format!("the profile is of the last {runs_s:.0} s only")),
            true => Some(format!("another tool began this profile, {:.0} s earlier", runs_s - asked_s)),
            false => None,
        };
        Ok(Look {
            title: format!("{name} ({})", self.target.pid()),
            seconds: if note.is_some() { runs_s } else { asked_s },
            note,
            state,
            read,
            symbols: Symbols::of(&self.target)?,
            codes: match &self.python {
                Python::Off => None,
                _ => Some(Arc::clone(&self.codes)),
            },
            refused: match &self.python {
                Python::Refused(why) => Some(why.clone()),
                _ => None,
            },
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
    let python = Codes::of(&target).map_or(Python::Off, Python::Found);
    let codes = Arc::default();
    let mut session = Session { target, switch, request, asked: 0, began, has_joined: false, python, codes };
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
    /// Nothing where frames of Python are left out.
    codes: Option<Arc<Names>>,
    /// Why it has no frames of Python.
    refused: Option<String>,
}

impl Look {
    /// With names, also when the process has ended meanwhile; and by how much it has grown since one of `earlier`.
    pub fn named(self, earlier: &[Look]) -> Profile {
        let Self { title, seconds, note, state, read, mut symbols, codes, refused } = self;
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
        profile.notes.extend(refused.map(|why| format!("no frames of Python: {why}")));
        if read.torn > 0 {
            let note = format!("{} of 4096 parts of the table changed too fast to be read", read.torn);
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
        let mut of_python = HashMap::new();
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
            let locations = stack.addresses().iter().map(|&frame| {
                let (at, has_name) = location(frame);
                is_named &= has_name;
                at
            });
            let native: Vec<usize> = locations.collect();
            let python = codes.iter().flat_map(|codes| stack.python().map(move |it| (codes, it)));
            let python: Vec<(usize, Frame)> = python
                .map(|(codes, frame)| {
                    let line = line_of(codes, frame);
                    let at = *of_python.entry(line).or_insert_with_key(|line| {
                        profile.locations.push(Location::of(line.clone()));
                        profile.locations.len() - 1
                    });
                    (at, frame)
                })
                .collect();
            let locations = merged(&native, &python, |at| &profile.locations[at]);
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

fn line_of(codes: &Names, frame: Frame) -> Line {
    match codes.get(&(frame.code, frame.check)) {
        Some(code) => Line { function: code.function.clone(), file: Some(code.file.clone()), line: code.line(frame) },
        None => Line { function: "<python>".to_owned(), file: None, line: 0 },
    }
}

/// A stack with frames of Python in place of the calls of the interpreter's loop that run them.
fn merged<'a>(native: &[usize], python: &[(usize, Frame)], location: impl Fn(usize) -> &'a Location) -> Vec<usize> {
    let calls: Vec<&[(usize, Frame)]> = python.split_inclusive(|(_, frame)| frame.is_outermost).collect();
    let mut places: Vec<Option<usize>> =
        calls.iter().map(|call| call.last().and_then(|(_, frame)| frame.index)).collect();
    if places.iter().all(Option::is_none) {
        let is_loop = |at: usize| {
            let line = location(at).lines.last();
            line.is_some_and(|line| line.function.starts_with("_PyEval_EvalFrameDefault"))
        };
        let loops: Vec<usize> = (0..native.len()).filter(|&it| is_loop(native[it])).collect();
        // Where some have no name the outermost belong together, unless these were cut.
        let is_cut = native.len() >= DEPTH || python.len() >= PYTHON_DEPTH;
        let (calls, loops_before) = match is_cut {
            true => (0, 0),
            false => (calls.len().saturating_sub(loops.len()), loops.len().saturating_sub(calls.len())),
        };
        let pairs = places.iter_mut().skip(calls).zip(loops.into_iter().skip(loops_before));
        pairs.for_each(|(place, at)| *place = Some(at));
    }
    let mut merged = Vec::with_capacity(native.len() + python.len());
    let mut rest = native;
    let mut waiting = Vec::new();
    for (call, place) in calls.into_iter().zip(places) {
        let done = native.len() - rest.len();
        waiting.extend(call.iter().map(|(at, _)| *at));
        if let Some(within) = place.and_then(|at| rest.get(..at.checked_sub(done)?)) {
            merged.extend(within);
            merged.append(&mut waiting);
            rest = &rest[within.len() + 1..];
        }
    }
    merged.extend(rest);
    merged.append(&mut waiting);
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stack of `native` functions with frames of Python, which are written as numbers, `|` after the last one of a call
    /// of the loop: the names of both, merged. `index` is that of the return address.
    fn merge(native: &[&str], python: &str, index: Option<usize>) -> String {
        let location = |name: &str| Location::of_function(name.to_owned());
        let mut locations: Vec<Location> = native.iter().map(|name| location(name)).collect();
        let mut frames = Vec::new();
        for call in python.split_terminator('|') {
            for (at, name) in call.char_indices() {
                locations.push(location(&name.to_string()));
                let is_outermost = at + 1 == call.len();
                let index = index.filter(|_| is_outermost);
                let frame = Frame { code: 0, check: 0, position: 0, is_outermost, index };
                frames.push((locations.len() - 1, frame));
            }
        }
        let native: Vec<usize> = (0..native.len()).collect();
        let merged = merged(&native, &frames, |at| &locations[at]);
        let names = merged.iter().map(|&at| locations[at].lines[0].function.as_str());
        names.map(|name| if name.starts_with("_PyEval") { "loop" } else { name }).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn frames_of_python_are_in_place_of_their_calls() {
        const LOOP: &str = "_PyEval_EvalFrameDefault";
        let stack = ["new", LOOP, "sort", LOOP, "main"];
        assert_eq!(merge(&stack, "12|3|", None), "new 1 2 sort 3 main");
        assert_eq!(merge(&stack, "", None), "new loop sort loop main");
        // A loop without a name is an inner one; so is one without frames.
        assert_eq!(merge(&stack, "1|2|3|", None), "new 1 2 sort 3 main");
        assert_eq!(merge(&stack, "1|", None), "new loop sort 1 main");
        assert_eq!(merge(&["new", "main"], "1|", None), "new main 1");
        // By the place of the loop's variables, whatever its name is.
        assert_eq!(merge(&["new", "?", "main"], "12|", Some(1)), "new 1 2 main");
        assert_eq!(merge(&stack, "1|", Some(9)), "new loop sort loop main 1");
        // The outermost native frames were cut.
        let deep = [&["new", LOOP, "sort", LOOP][..], &["f"; DEPTH]].concat();
        assert!(merge(&deep, "1|2|3|", None).starts_with("new 1 sort 2 f f"));
        assert!(merge(&deep, "1|2|3|", None).ends_with("f f 3"));
    }
}
