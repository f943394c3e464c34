//! One reading of a process: the kernel's figures, its mappings, what serves its `malloc`, the heaps.
//!
//! Each step reads one thing and adds what it could not read to the list of what is missing.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use procfs::process::{MemoryMaps, Process as Proc};

use super::malloc;
use super::steady::LEAST_BESIDE;
use ebb_allocators::Allocator;
use ebb_process::hidden::Searched;
use ebb_process::inside::{Inside, inside};
use ebb_process::look::Depth;
use ebb_process::mappings::{self, Hints};
use ebb_process::snapshot::{Heap, Kind, Missing, Objects, Pool, Process, Runtime, Status, Work};
use ebb_process::{Counters, NotRead, Unreadable, charge, environ, heap, jvm, pool, profile, python, runtime, v8};

/// What is remembered from one reading to the next: where counters lie, and which files were searched.
#[derive(Debug, Default)]
pub(super) struct Known {
    counters: Counters,
    searched: Searched,
}

impl Known {
    /// Forgets a process that ended. Files that were searched stay: there are as many as the machine's images have.
    pub(super) fn forget(&self, pid: i32) {
        self.counters.forget(pid);
    }
}

/// How its mappings are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Manner {
    /// With exact shares, whatever the process waits for.
    #[default]
    Exact,
    /// So that it hardly waits: pages that others map as well are divided by this number of processes.
    Gentle(u64),
}

/// A process as far as it has been read.
struct Reading<'a> {
    known: &'a Known,
    depth: Depth,
    manner: Manner,
    process: Process,
    maps: Option<MemoryMaps>,
    missing: Vec<Missing>,
}

/// The facts of process `pid` and what could not be read of them; nothing where it is gone or has no memory of its own.
pub(super) fn read(pid: i32, depth: Depth, manner: Manner, known: &Known) -> Option<(Process, Vec<Missing>)> {
    let entry = Proc::new(pid).ok()?;
    let process = kernel_figures(&entry)?;
    let mut reading = Reading { known, depth, manner, process, maps: None, missing: Vec::new() };
    reading.mappings(&entry)?;
    if reading.maps.is_some() {
        if reading.allocator()? && depth != Depth::Kernel {
            reading.heap();
        }
        if depth == Depth::Objects {
            reading.profile();
        }
        reading.allocator_inside();
        let arenas = reading.cpython();
        reading.others();
        if let Err(error) = arenas {
            reading.lacks("object arenas", error);
        }
    }
    Some((reading.process, reading.missing))
}

/// What the kernel says of process `pid` without its files and its memory.
pub(super) fn figures(pid: i32) -> Option<Process> {
    kernel_figures(&Proc::new(pid).ok()?)
}

/// What the kernel says of a process; nothing for its own threads and for processes that are ending.
fn kernel_figures(process: &Proc) -> Option<Process> {
    let (stat, status) = (process.stat().ok()?, process.status().ok()?);
    status.vmrss?;
    let kib = |kib: Option<u64>| kib.map(|kib| kib * 1024);
    Some(Process {
        pid: process.pid,
        parent: stat.ppid,
        name: on_one_line(&stat.comm),
        program: process.exe().ok().map(|path| path.display().to_string()),
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
        work: Work {
            cpu_s: (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64,
            minor_faults: stat.minflt,
            io_bytes: process.io().ok().map(|io| io.rchar + io.wchar),
        },
        ..Process::default()
    })
}

/// A name that its process chose, without what would end a line.
fn on_one_line(name: &str) -> String {
    name.replace(char::is_control, "\u{fffd}")
}

impl Reading<'_> {
    fn lacks(&mut self, what: &str, NotRead { why, remedy }: NotRead) {
        let pid = Some(self.process.pid);
        self.missing.push(Missing { pid, what: what.to_owned(), why, remedy });
    }

    /// The program that runs, also where it was replaced on disk.
    fn running(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/exe", self.process.pid))
    }

    /// The mappings and what they tell of runtimes and pools; nothing where the process is gone.
    fn mappings(&mut self, entry: &Proc) -> Option<()> {
        let read = match self.manner {
            Manner::Exact => mappings::read(entry),
            Manner::Gentle(sharers) => mappings::read_gently(entry, sharers),
        };
        match read {
            Ok(maps) => {
                let go = || runtime::is_go(&self.running()).then_some(Runtime::Go);
                let runtime = runtime::of_mappings(&maps).or_else(go);
                let mut hints = Hints::of(entry);
                if runtime == Some(Runtime::Go) {
                    // The stacks of goroutines lie in Go's heap.
                    hints.stack_pointers.clear();
                }
                self.process.memory = Some(mappings::by_kind(&maps, &hints));
                self.process.private = Some(mappings::private(&maps));
                self.process.runtime = runtime;
                self.process.pool = pool::of_mappings(entry.pid, &maps);
                self.process.managed = match runtime {
                    Some(Runtime::Jvm) => jvm::heap(entry, &maps),
                    Some(Runtime::V8) => v8::heap(entry.pid, &maps),
                    _ => None,
                };
                self.maps = Some(maps);
            }
            Err(Unreadable::Gone) => return None,
            Err(error) => self.lacks("mappings", NotRead::refused(entry.pid, error)),
        }
        let program = self.process.program.as_deref();
        let file = program.and_then(|program| Path::new(program).file_name()?.to_str());
        let mut names = file.into_iter().chain([self.process.name.as_str()]);
        let by_name = || names.find_map(runtime::of_name);
        self.process.runtime = self.process.runtime.or_else(by_name);
        Some(())
    }

    /// What is in charge of `malloc`, and whether its heap can be read; nothing where the process is gone.
    fn allocator(&mut self) -> Option<bool> {
        match malloc::in_charge(self.process.pid, self.process.program.as_deref()) {
            Ok(allocator) => self.process.allocator = allocator,
            Err(Unreadable::Gone) => return None,
            Err(error) => {
                let is_foreign = matches!(error, Unreadable::Bits(_));
                self.lacks("allocator", NotRead { why: error.to_string(), remedy: None });
                return Some(!is_foreign);
            }
        }
        Some(true)
    }

    /// The heap of what is in charge.
    fn heap(&mut self) {
        let allocator = &self.process.allocator;
        let (name, file) = (allocator.name.as_deref(), allocator.file.as_deref());
        match heap::read(self.process.pid, name, file, &self.known.counters) {
            Ok(heap) => self.process.heap = Some(heap),
            Err(error) => self.lacks("heap", error),
        }
    }

    /// The stacks of what is live, where the process samples.
    fn profile(&mut self) {
        match profile::running(self.process.pid, &self.known.counters) {
            Ok(profile) => self.process.profile = profile.map(|profile| profile.live()),
            Err(error) => self.lacks("heap profile", NotRead { why: error.to_string(), remedy: None }),
        }
    }

    /// Whether anonymous memory that the heap's reader did not find is worth a search. CPython's arenas explain a part
    /// of it, once they are read.
    fn has_much_unread(&self) -> bool {
        let (Some(memory), Some(heap)) = (&self.process.memory, &self.process.heap) else {
            return false;
        };
        let anonymous = [Kind::Brk, Kind::Malloc, Kind::Anonymous].iter();
        let anonymous: u64 = anonymous.filter_map(|kind| memory.get(kind)).map(|it| it.rss).sum();
        let objects = self.process.objects.as_ref().map_or(0, |objects| objects.resident);
        anonymous.saturating_sub(heap.resident).saturating_sub(objects) >= LEAST_BESIDE
    }

    /// Joins the heap of a second allocator with the one that was read: what C libraries have of libc's is there as well.
    fn join(&mut self, own: Heap) {
        self.process.heap = self.process.heap.take().map(|libc| own.with(libc));
    }

    /// Much that is not malloc's, and no runtime to have it: an allocator under other names?
    fn allocator_inside(&mut self) {
        if self.process.runtime.is_some() || !self.has_much_unread() {
            return;
        }
        let (pid, counters) = (self.process.pid, &self.known.counters);
        let name = self.process.allocator.name.as_deref();
        let (found, own) = match inside(&self.running()) {
            None | Some(Inside::Go) => return,
            // Rust's crate has no `malloc`: libc is in charge of that alone, and holds nearly nothing.
            Some(found @ Inside::Ebbmalloc)
                if name == Some(Allocator::Glibc.name()) && counters.are_in_program(pid) =>
            {
                (found, heap::read(pid, Some(Allocator::Ebbmalloc.name()), None, counters))
            }
            // Linked as `malloc`, or preloaded: its counters are read already.
            Some(Inside::Ebbmalloc) => return,
            Some(found) => {
                let unread =
                    || NotRead { why: format!("the program has {found}, which ebb does not read"), remedy: None };
                let own = heap::read_inside(pid, found).ok_or_else(unread).and_then(|read| {
                    let why = |error: &NotRead| format!("the program has {found}: {}", error.why);
                    read.map_err(|error| NotRead { why: why(&error), ..error })
                });
                (found, own)
            }
        };
        if let Some(name) = found.allocator() {
            self.process.allocator.name = Some(name.to_string());
        }
        match own {
            Ok(own) => self.join(own),
            Err(error) => {
                self.process.heap = None;
                self.lacks("heap", error);
            }
        }
    }

    /// CPython's interpreters and object arenas, as deep as is requested. A CPython whose objects are `malloc`'s or its own
    /// mimalloc's has no arenas: that is known of it, and no failure.
    fn cpython(&mut self) -> Result<(), NotRead> {
        if self.process.runtime != Some(Runtime::Cpython) {
            return Ok(());
        }
        let (pid, counters) = (self.process.pid, &self.known.counters);
        let objects = match self.depth {
            Depth::Kernel => return Ok(()),
            Depth::Heaps => python::arenas(pid),
            Depth::Objects | Depth::Settled => {
                // Only glibc's reader lists its blocks.
                let heap = self.process.heap.as_ref();
                let glibc = heap.filter(|heap| Allocator::from_reader(&heap.reader) == Some(Allocator::Glibc));
                python::read(pid, glibc.map(|heap| heap.large.as_slice())).and_then(|read| {
                    self.process.python = Some(read.python);
                    read.objects
                })
            }
        };
        match objects {
            Ok(objects) => self.process.objects = Some(objects),
            Err(_) if self.is_on_malloc() => {
                let reader = self.process.python.as_ref().map(|python| python.reader.clone());
                let reader = reader.unwrap_or_default();
                self.process.objects = Some(Objects { reader, ..Objects::default() });
            }
            Err(error) => {
                let own = self.has_much_unread().then(|| python::mimalloc(pid, counters));
                match own.flatten() {
                    Some(Ok(own)) => self.join(own),
                    _ => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Whether CPython is configured to take all its memory from `malloc`: by ebbmalloc, or by the variable.
    fn is_on_malloc(&self) -> bool {
        let pid = self.process.pid;
        let seen = self.known.counters.read(pid, Duration::MAX);
        seen.is_some_and(|seen| seen.mechanisms & ebb_stats::mechanism::CPYTHON != 0)
            || environ::at_start(pid).is_ok_and(|variables| {
                let told = variables.get(OsStr::new("PYTHONMALLOC"));
                told.is_some_and(|told| told == "malloc" || told == "malloc_debug")
            })
    }

    /// Adds the allocators in mapped files that are not in charge to the heap; the ones that are not read are named. A
    /// pool that is not in use is taken away.
    fn others(&mut self) {
        // V8, the JVM and Go have heaps of their own, which explain the memory next to malloc's.
        let may_hide = matches!(self.process.runtime, None | Some(Runtime::Cpython | Runtime::Ruby));
        let Some(maps) = self.maps.as_ref().filter(|_| may_hide && self.has_much_unread()) else {
            return;
        };
        let pid = self.process.pid;
        let in_charge = self.process.allocator.file.as_deref().map(Path::new);
        let program = Proc::new(pid).and_then(|process| process.exe()).ok();
        let is_arrow = self.process.pool == Some(Pool::Arrow);
        let mut found = self.known.searched.find(pid, maps, |name| {
            let file = name.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            // The program was searched already; CPython's own mimalloc and Arrow's pool have readers of their own.
            Some(charge::name_when_mapped(name).as_path()) == in_charge
                || Some(name) == program.as_deref()
                || file.starts_with("libpython")
                || (is_arrow && file.starts_with("libarrow.so"))
        });
        if is_arrow {
            let arrow = pool::of_arrow(pid, maps);
            if arrow.heaps.is_empty() && arrow.hidden.is_empty() {
                // It is read and has served no request.
                self.process.pool = None;
            }
            found.extend(arrow);
        }
        let heap = self.process.heap.take();
        self.process.heap = heap.map(|heap| found.heaps.into_iter().fold(heap, Heap::with));
        for hidden in &found.hidden {
            let name = hidden.name.as_deref();
            let pool = self.process.pool.filter(|pool| name == Some(&pool.to_string()));
            let why = format!("{} in {}: {}", name.unwrap_or("maybe one"), hidden.file, hidden.why);
            let remedy = pool.map(|pool| pool.remedy().to_owned());
            self.lacks("an allocator", NotRead { why, remedy });
        }
        self.process.hidden = found.hidden;
    }
}
