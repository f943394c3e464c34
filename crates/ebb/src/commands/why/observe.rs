//! One look at a target: from `proc` and `allocators` to the facts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use procfs::process::{MemoryMaps, ProcState, Process as Proc};

use super::cpython;
use ebb_process::cgroup::Place;
use ebb_process::inside::{Inside, inside};
use ebb_process::look::Depth;
use ebb_process::mappings::{self, Hints};
use ebb_process::root::Root;
use ebb_process::snapshot::{
    Allocator, Cgroup, ENDED, FORMAT, Heap, Hidden, Kind, Missing, Pool, Process, Runtime,
    Snapshot, Status, Usage, Work,
};
use ebb_process::target::{self, Resolved};
use ebb_process::{
    Counters, Elf, MallocSource, NotRead, Unreadable, charge, heap, hidden, look, malloc_source,
    pool, python, runtime,
};

/// Less anonymous memory outside the heap is not worth reading the program for.
const LEAST_BESIDE: u64 = 8 << 20;

/// An allocator that takes longer to return pages is not waited for.
const LONGEST_WAIT: Duration = Duration::from_secs(3);
/// How often a process is read that changes meanwhile, and until when it is read once more.
const ATTEMPTS: u32 = 3;
const AGAIN_WITHIN: Duration = Duration::from_secs(5);

/// The kernel's flag of a task that is ending (PF_EXITING): its memory may be gone already.
const EXITING: u32 = 4;

/// Looks at targets; remembers where counters lie between looks.
#[derive(Debug, Default)]
pub struct Observer {
    counters: Counters,
    searched: hidden::Searched,
}

impl Observer {
    /// Takes a snapshot. A process that ends while it is read is left out.
    pub fn look(&self, resolved: &Resolved, with_children: bool, depth: Depth) -> Snapshot {
        let began = Instant::now();
        let mut missing = Vec::new();
        let roots = match &resolved.cgroup {
            // A cgroup's processes come and go.
            Some(place) => Resolved { roots: place.pids(), ..resolved.clone() },
            None => resolved.clone(),
        };
        let with_children = with_children && resolved.cgroup.is_none();
        let processes: Vec<Process> = target::processes(&roots, with_children)
            .into_iter()
            .filter_map(|pid| {
                let is_late = depth != Depth::Kernel && began.elapsed() > look::ALL_WITHIN;
                let depth = if is_late { Depth::Kernel } else { depth };
                let process = self.process(pid, depth, &mut missing)?;
                if is_late {
                    missing.push(Missing {
                        pid: Some(pid),
                        what: "heap".to_owned(),
                        why: format!(
                            "the processes before it took the {} s of a look",
                            look::ALL_WITHIN.as_secs()
                        ),
                        remedy: None,
                    });
                }
                Some(process)
            })
            .collect();
        let mut processes = processes;
        if depth == Depth::Settled {
            self.settle(&mut processes, &mut missing);
        }
        let ended = roots.roots.iter().filter(|pid| Identity::of(**pid).is_none());
        missing.extend(ended.map(|&pid| Missing {
            pid: Some(pid),
            what: ENDED.to_owned(),
            why: "it ended while it was read".to_owned(),
            remedy: None,
        }));
        let place = resolved.cgroup.clone().or_else(|| Place::of(processes.first()?.pid));
        let cgroup = place.map(|place| with_others(place.read(), &processes));
        Snapshot {
            format: FORMAT,
            ebb_version: env!("CARGO_PKG_VERSION").to_owned(),
            taken: humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string(),
            at_s: monotonic_s(),
            target: resolved.target.clone(),
            processes,
            cgroup,
            missing,
        }
    }

    /// Reads those again whose allocator returns much by itself within a moment, after that moment.
    fn settle(&self, processes: &mut Vec<Process>, missing: &mut Vec<Missing>) {
        let waits: Vec<(i32, Duration)> = processes
            .iter()
            .filter_map(|process| Some((process.pid, returns_after(process)?)))
            .collect();
        let Some(longest) = waits.iter().map(|(_, time)| *time).max() else {
            return;
        };
        std::thread::sleep(longest);
        missing.retain(|it| waits.iter().all(|(pid, _)| it.pid != Some(*pid)));
        let all = std::mem::take(processes);
        processes.extend(all.into_iter().filter_map(|process| {
            match waits.iter().any(|(pid, _)| *pid == process.pid) {
                true => self.process(process.pid, Depth::Objects, missing),
                false => Some(process),
            }
        }));
    }

    /// The facts of one process; nothing where it is gone, a zombie, or a thread of the kernel. One that executes
    /// another program meanwhile, or whose mappings and heap are of different times, is read again.
    fn process(&self, pid: i32, depth: Depth, missing: &mut Vec<Missing>) -> Option<Process> {
        let began = Instant::now();
        let mut before = Identity::of(pid)?;
        for attempt in 1.. {
            let mut found = Vec::new();
            let mut process = self.once(pid, depth, &mut found);
            // The figures of a process that ends are incomplete.
            let after = Identity::of(pid)?;
            let change = process.as_ref().and_then(change_meanwhile);
            let is_steady = after == before && change.is_none();
            if !is_steady && attempt < ATTEMPTS && began.elapsed() < AGAIN_WITHIN {
                before = after;
                continue;
            }
            if let Some(process) = process.as_mut().filter(|_| !is_steady) {
                in_doubt(process);
            }
            missing.append(&mut found);
            return process;
        }
        None
    }

    /// Adds the allocators in mapped files that are not in charge to `heap`; those that are not read are named. A `pool` that
    /// is not in use is taken away.
    fn others(
        &self,
        pid: i32,
        maps: &MemoryMaps,
        allocator: &Allocator,
        pool: &mut Option<Pool>,
        heap: Heap,
    ) -> (Option<Heap>, Vec<Hidden>) {
        let in_charge = allocator.file.as_deref().map(Path::new);
        let program = Proc::new(pid).and_then(|process| process.exe()).ok();
        let mut found = self.searched.find(pid, maps, |name| {
            let file = name.file_name().and_then(|name| name.to_str());
            let file = file.unwrap_or_default();
            // The program was searched already; CPython's own mimalloc and Arrow's pool have readers of their own.
            Some(charge::name_when_mapped(name).as_path()) == in_charge
                || Some(name) == program.as_deref()
                || file.starts_with("libpython")
                || (*pool == Some(Pool::Arrow) && file.starts_with("libarrow.so"))
        });
        if *pool == Some(Pool::Arrow) {
            let arrow = pool::of_arrow(pid, maps);
            if arrow.heaps.is_empty() && arrow.hidden.is_empty() {
                // It is read and has served no request.
                *pool = None;
            }
            found.extend(arrow);
        }
        let heap = found.heaps.into_iter().fold(heap, Heap::with);
        (Some(heap), found.hidden)
    }

    fn once(&self, pid: i32, depth: Depth, missing: &mut Vec<Missing>) -> Option<Process> {
        let process = Proc::new(pid).ok()?;
        let stat = process.stat().ok()?;
        let status = process.status().ok()?;
        // Threads of the kernel and processes that are ending have no memory of their own.
        status.vmrss?;
        let program = process.exe().ok().map(|path| path.display().to_string());
        let mut closed = |what: &str, why: String, remedy: Option<String>| {
            missing.push(Missing { pid: Some(pid), what: what.to_owned(), why, remedy });
        };
        let maps = mappings::read(&process);
        let (memory, mapped_runtime, mut pool) = match &maps {
            Ok(maps) => {
                let runtime = runtime::of_mappings(maps).or_else(|| go(pid));
                let mut hints = Hints::of(&process);
                if runtime == Some(Runtime::Go) {
                    // The stacks of goroutines lie in Go's heap.
                    hints.stack_pointers.clear();
                }
                let pool = pool::of_mappings(pid, maps);
                (Some(mappings::by_kind(maps, &hints)), runtime, pool)
            }
            Err(Unreadable::Gone) => return None,
            Err(error) => {
                let refused = NotRead::refused(pid, error.clone());
                closed("mappings", refused.why, refused.remedy);
                (None, None, None)
            }
        };
        let mut is_foreign = false;
        let allocator = match memory {
            Some(_) => self::allocator(pid, program.as_deref()),
            None => Ok(Allocator::default()),
        };
        let allocator = match allocator {
            Ok(allocator) => allocator,
            Err(Unreadable::Gone) => return None,
            Err(error) => {
                is_foreign = matches!(error, Unreadable::Bits(_));
                closed("allocator", error.to_string(), None);
                Allocator::default()
            }
        };
        let mut allocator = allocator;
        let heap = match (depth, &memory) {
            (Depth::Kernel, _) | (_, None) => None,
            _ if is_foreign => None,
            _ => {
                let (name, file) = (allocator.name.as_deref(), allocator.file.as_deref());
                match heap::read(pid, name, file, &self.counters) {
                    Ok(heap) => Some(heap),
                    Err(error) => {
                        closed("heap", error.why, error.remedy);
                        None
                    }
                }
            }
        };
        let runtime = mapped_runtime.or_else(|| runtime_of(program.as_deref(), &stat.comm));
        let beside = memory.as_ref().zip(heap.as_ref()).map(beside);
        let heap = match (beside, runtime) {
            // Much that is not malloc's, and no runtime to have it: an allocator under other names?
            (Some(LEAST_BESIDE..), None) => match inside(Path::new(&format!("/proc/{pid}/exe"))) {
                // Rust's crate has no `malloc`: libc is in charge of that alone, and holds nearly nothing.
                Some(Inside::Ebbmalloc)
                    if allocator.name.as_deref() == Some("glibc")
                        && self.counters.are_in_program(pid) =>
                {
                    allocator.name = Some("ebbmalloc".to_owned());
                    match heap::read(pid, Some("ebbmalloc"), None, &self.counters) {
                        Ok(own) => heap.map(|libc| own.with(libc)),
                        Err(error) => {
                            closed("heap", error.why, error.remedy);
                            None
                        }
                    }
                }
                // Linked as `malloc`, or preloaded: its counters are read already.
                Some(Inside::Ebbmalloc) => heap,
                None | Some(Inside::Go) => heap,
                Some(found) => {
                    allocator.name = found.allocator().map(|it| it.to_string()).or(allocator.name);
                    match heap::read_inside(pid, found) {
                        // What C libraries of the program have of libc's is there as well.
                        Some(Ok(own)) => heap.map(|libc| own.with(libc)),
                        Some(Err(error)) => {
                            closed(
                                "heap",
                                format!("the program has {found}: {}", error.why),
                                error.remedy,
                            );
                            None
                        }
                        None => {
                            closed(
                                "heap",
                                format!("the program has {found}, which ebb does not read"),
                                None,
                            );
                            None
                        }
                    }
                }
            },
            _ => heap,
        };
        let (python, objects) = match (runtime, &memory) {
            (Some(Runtime::Cpython), Some(_)) => {
                cpython::read(pid, depth, heap.as_ref(), &self.counters)
            }
            _ => (None, Ok(None)),
        };
        // Without arenas CPython's objects may be its own mimalloc's.
        let own = match (&objects, beside) {
            (Err(_), Some(LEAST_BESIDE..)) => python::mimalloc(pid, &self.counters),
            _ => None,
        };
        let (heap, objects) = match own {
            Some(Ok(own)) => (heap.map(|libc| own.with(libc)), Ok(None)),
            _ => (heap, objects),
        };
        let (heap, hidden) = match (&maps, heap) {
            (Ok(maps), Some(heap)) if may_hide_allocators(runtime) => {
                let rest = memory.as_ref().map_or(0, |memory| self::beside((memory, &heap)));
                let objects = objects.as_ref().ok().and_then(Option::as_ref);
                let rest = rest.saturating_sub(objects.map_or(0, |objects| objects.resident));
                match rest {
                    LEAST_BESIDE.. => self.others(pid, maps, &allocator, &mut pool, heap),
                    _ => (Some(heap), Vec::new()),
                }
            }
            (_, heap) => (heap, Vec::new()),
        };
        for hidden in &hidden {
            closed(
                "an allocator",
                format!(
                    "{} in {}: {}",
                    hidden.name.as_deref().unwrap_or("maybe one"),
                    hidden.file,
                    hidden.why
                ),
                pool.filter(|pool| hidden.name.as_deref() == Some(&pool.to_string()))
                    .map(|pool| pool.remedy().to_owned()),
            );
        }
        let objects = match objects {
            Ok(objects) => objects,
            Err(error) => {
                closed("object arenas", error.why, error.remedy);
                None
            }
        };
        let kib = |kib: Option<u64>| kib.map(|kib| kib * 1024);
        Some(Process {
            pid,
            parent: stat.ppid,
            runtime,
            name: stat.comm,
            program,
            started_ticks: stat.starttime,
            threads: status.threads,
            status: Status {
                rss: kib(status.vmrss),
                anon: kib(status.rssanon),
                file: kib(status.rssfile),
                shared: kib(status.rssshmem),
                swap: kib(status.vmswap),
                page_tables: kib(status.vmpte),
                peak: kib(status.vmhwm),
            },
            memory,
            allocator,
            pool,
            hidden,
            heap,
            objects,
            python,
            work: Work {
                cpu_s: (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64,
                minor_faults: stat.minflt,
                io_bytes: process.io().ok().map(|io| io.rchar + io.wchar),
            },
        })
    }
}

/// The change of the anonymous memory of `process` since its mappings were read, if it is large: memory that the heap
/// does not explain may have belonged to the heap a moment before.
fn change_meanwhile(process: &Process) -> Option<u64> {
    process.heap.as_ref()?;
    let then = process.status.anon?;
    let change = heap::anonymous_bytes(process.pid)?.abs_diff(then);
    (change >= LEAST_BESIDE.max(then / 20)).then_some(change)
}

/// What no reader found of a process that changes all the time may be its heap's.
fn in_doubt(process: &mut Process) {
    let all = process.status.rss.unwrap_or(u64::MAX);
    if let Some(heap) = &mut process.heap {
        heap.missing = heap.missing.max(all);
        heap.notes.push("its memory changed each time it was read".to_owned());
    }
}

/// What tells a program in execution from another one in the same process.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    started_ticks: u64,
    program: Option<PathBuf>,
    /// Where its stack begins: another place for each program that is executed.
    stack: u64,
}

impl Identity {
    /// Nothing for a process that is gone, or as good as.
    fn of(pid: i32) -> Option<Self> {
        let process = Proc::new(pid).ok()?;
        let stat = process.stat().ok()?;
        let is_over = matches!(stat.state(), Ok(ProcState::Zombie | ProcState::Dead));
        if is_over || stat.flags & EXITING != 0 {
            return None;
        }
        Some(Self {
            started_ticks: stat.starttime,
            program: process.exe().ok(),
            stack: stat.startstack,
        })
    }
}

/// V8, the JVM and Go have heaps of their own, which explain the memory next to malloc's.
fn may_hide_allocators(runtime: Option<Runtime>) -> bool {
    matches!(runtime, None | Some(Runtime::Cpython) | Some(Runtime::Ruby))
}

/// When the allocator of `process` has returned pages that are worth waiting for; nothing for one that is stopped.
fn returns_after(process: &Process) -> Option<Duration> {
    let heap = process.heap.as_ref()?;
    let time = Duration::from_millis(heap.returns_within_ms?);
    let state = Proc::new(process.pid).and_then(|it| it.stat()).ok()?.state();
    let is_stopped = matches!(state, Ok(ProcState::Stopped | ProcState::Tracing));
    let is_worth_it = heap.trimmable >= LEAST_BESIDE && time <= LONGEST_WAIT && !is_stopped;
    is_worth_it.then_some(time)
}

/// Anonymous memory that the heap's reader did not find.
fn beside((memory, heap): (&BTreeMap<Kind, Usage>, &Heap)) -> u64 {
    let anonymous: u64 = [Kind::Brk, Kind::Malloc, Kind::Anonymous]
        .iter()
        .filter_map(|kind| memory.get(kind))
        .map(|usage| usage.rss)
        .sum();
    anonymous.saturating_sub(heap.resident)
}

/// What is in charge of a process's `malloc`, by name.
fn allocator(pid: i32, program: Option<&str>) -> Result<Allocator, Unreadable> {
    let source = malloc_source(pid)?;
    // What runs, also where it was replaced on disk.
    let running = PathBuf::from(format!("/proc/{pid}/exe"));
    let is_program = source.is(&running);
    Ok(match source {
        MallocSource::File(path) => {
            let seen = if is_program { &running } else { &path };
            // A file that was deleted is opened by its mapping.
            let name = match std::fs::read_link(&path) {
                Ok(name) if path.starts_with("/proc") => charge::name_when_mapped(&name),
                _ => Root::of(pid).inside(&path),
            };
            Allocator {
                name: Some(name_of(seen, &name, is_program)),
                file: Some(name.display().to_string()),
            }
        }
        MallocSource::Static => Allocator { name: None, file: program.map(str::to_owned) },
        MallocSource::Nobody => Allocator::default(),
    })
}

/// The name of the allocator in the file that is read at `seen` and called `path`.
fn name_of(seen: &Path, path: &Path, is_program: bool) -> String {
    let file = path.file_name().map_or_else(String::new, |name| {
        name.to_string_lossy().trim_end_matches(" (deleted)").to_owned()
    });
    let elf = Elf::read(seen);
    // A program brings its allocator inside, by whatever names.
    let recognised = elf.as_ref().ok().filter(|_| !is_program);
    let recognised = recognised.and_then(|elf| ebb_process::library::recognise(seen, elf));
    if let Some(known) = recognised.or_else(|| ebb_allocators::Allocator::from_file_name(&file)) {
        return known.to_string();
    }
    let defines = elf.map(|elf| elf.defines).unwrap_or_default();
    match () {
        () if defines.jemalloc => "jemalloc".to_owned(),
        () if defines.mimalloc => "mimalloc".to_owned(),
        () if defines.tcmalloc => "tcmalloc".to_owned(),
        () if is_program => match inside(seen).and_then(Inside::allocator) {
            Some(allocator) => allocator.to_string(),
            None => file,
        },
        () if file.starts_with("ld-musl") || file.starts_with("libc.musl") => "musl".to_owned(),
        () if file == "libc.so" => "musl".to_owned(),
        () if file.starts_with("libc.so") || file.starts_with("libc-2") => "glibc".to_owned(),
        () => file,
    }
}

fn go(pid: i32) -> Option<Runtime> {
    // Through /proc, so that a program that was replaced on disk is still the one that runs.
    runtime::is_go(Path::new(&format!("/proc/{pid}/exe"))).then_some(Runtime::Go)
}

/// By the program's name, where the mappings do not tell.
fn runtime_of(program: Option<&str>, comm: &str) -> Option<Runtime> {
    let file = program.and_then(|program| Path::new(program).file_name()?.to_str());
    file.and_then(runtime::of_name).or_else(|| runtime::of_name(comm))
}

/// Adds what the other processes of the cgroup use.
fn with_others(mut cgroup: Cgroup, processes: &[Process]) -> Cgroup {
    let ours: BTreeSet<i32> = processes.iter().map(|process| process.pid).collect();
    let mut sum = Some(0);
    for pid in cgroup.pids.iter().filter(|pid| !ours.contains(pid)) {
        // One that is gone uses nothing.
        let Ok(status) = Proc::new(*pid).and_then(|process| process.status()) else {
            continue;
        };
        if status.vmrss.is_some() {
            sum = Option::zip(sum, status.rssanon).map(|(sum, kib)| sum + kib * 1024);
        }
    }
    cgroup.others_anon = sum;
    cgroup
}

fn monotonic_s() -> f64 {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
        .map(|now| std::time::Duration::from(now).as_secs_f64())
        .unwrap_or(0.0)
}
