//! How a trial looks at the processes of a service: from `ebb-process` to `ebb-trial`, which does not know it.

use crate::relief::inject::malloc_trim;
use ebb_allocators::Allocator;
use ebb_process::cgroup::Place;
use ebb_process::inside::{Inside, inside};
use ebb_process::instruments::Instrument;
use ebb_process::root::Root;
use ebb_process::{Counters, MallocSource, Tree, Unreadable, heap};
use ebb_trial::disturbance::Machine;
use ebb_trial::refaults;
use ebb_trial::results::{FreeMemory, Sample};
use ebb_trial::sampler::{Observer, Seen, ServiceCgroup};
use ebb_trial::variant::Prepared;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A process that has just been started has no libraries yet: it is asked again for this long.
const STARTING_LIMIT: Duration = Duration::from_secs(2);

/// A thread may be at no place where malloc_trim can be called: it is waited for this long.
const SAFE_PLACE_LIMIT: Duration = Duration::from_secs(10);
/// A process that starts and watches others holds less.
const SMALL_BYTES: u64 = 1 << 20;

/// Published counters that are older say nothing of the live heap now.
const COUNTERS_AGE: Duration = Duration::from_secs(2);

/// Reads process trees through `/proc`.
#[derive(Debug)]
pub struct Processes {
    counters: Counters,
    zero: Instant,
    /// Libraries of variants are paths of the container.
    in_container: bool,
}

impl Default for Processes {
    fn default() -> Processes {
        Processes { counters: Counters::default(), zero: Instant::now(), in_container: false }
    }
}

impl Processes {
    pub fn in_container() -> Processes {
        Processes { in_container: true, ..Processes::default() }
    }

    /// Live heap of all processes together; `None` where one of them does not publish it.
    fn live_bytes(&self, tree: &Tree) -> Option<u64> {
        let live = |pid: &i32| Some(self.counters.read(*pid, COUNTERS_AGE)?.live_bytes);
        tree.pids().iter().map(live).sum()
    }

    /// What a tree uses now; `None` when it is gone.
    pub fn sample_of(&self, tree: &Tree) -> Option<Seen> {
        let seen = tree.sample();
        // All of them ended while they were read: that is no tree that uses nothing.
        let sample = (seen.processes > 0).then(|| Sample {
            at_s: 0.0,
            rss_bytes: seen.rss,
            pss_bytes: seen.pss,
            anon_bytes: seen.anon,
            live_bytes: self.live_bytes(tree),
            cpu_s: Option::zip(seen.cpu_user, seen.cpu_sys).map(|(user, system)| user + system),
            cpu_system_s: seen.cpu_sys,
            faults: seen.faults,
            refaults: None,
            processes: u32::try_from(seen.processes).unwrap_or(u32::MAX),
            cgroup_bytes: None,
        })?;
        let held = seen.held.iter().map(held).collect();
        Some(Seen { sample, held })
    }

    /// Whether the program of a process has that allocator in its own code.
    fn is_inside(&self, pid: i32, allocator: &str) -> Result<(), String> {
        let program = format!("/proc/{pid}/exe");
        let found = match inside(Path::new(&program)).and_then(Inside::allocator) {
            Some(found) => found.name() == allocator,
            // ebbmalloc is known by its counters, which lie in the program's data.
            None => allocator == Allocator::Ebbmalloc.name() && self.counters.are_in_program(pid),
        };
        // What ended in the meantime held no memory at the end.
        if found || has_ended(pid) {
            return Ok(());
        }
        Err(format!("{} has no {allocator} in its program", name(pid)))
    }
}

impl Observer for Processes {
    fn sample(&self, pid: u32) -> Option<Seen> {
        self.sample_of(&Tree::of(i32::try_from(pid).ok()?).ok()?)
    }

    fn cgroup(&self, pid: u32) -> Option<Arc<dyn ServiceCgroup>> {
        let place = Place::of(i32::try_from(pid).ok()?)?;
        Some(Arc::new(CgroupOf(place)))
    }

    fn instruments(&self, pid: u32) -> Vec<Instrument> {
        let tree = i32::try_from(pid).ok().and_then(|pid| Tree::of(pid).ok());
        let pids = tree.as_ref().map_or(&[][..], Tree::pids);
        pids.iter().flat_map(|pid| ebb_process::instruments::of(*pid)).collect()
    }

    fn machine(&self) -> Option<Machine> {
        // Ours first: what we use between the two readings must not look like somebody else's.
        let own_s = ebb_process::machine::own_s()?;
        let busy = ebb_process::machine::busy()?;
        Some(Machine {
            at_s: self.zero.elapsed().as_secs_f64(),
            processors: busy.processors,
            busy_s: busy.busy_s,
            own_s,
            memory_wait_s: busy.memory_wait_s,
        })
    }

    fn free_memory(&self, pid: u32) -> Option<FreeMemory> {
        let (mut sum, mut most) = (FreeMemory::default(), 0);
        for pid in pids(pid).ok()? {
            let heap = heap::read(pid, Some(Allocator::Glibc.name()), None, &self.counters);
            let heap = match heap {
                Ok(heap) => heap,
                Err(_) if has_ended(pid) => continue,
                Err(_) => return None,
            };
            let parts = &heap.breakdown;
            let top = parts.main_top.resident + parts.secondary_tops.resident;
            let free = parts.glibc_free().resident;
            sum.top_bytes += top;
            sum.inside_bytes += free - top;
            sum.arenas = Some(sum.arenas.unwrap_or(0) + heap.arenas.unwrap_or(0));
            let thresholds = heap.glibc.and_then(|glibc| glibc.thresholds);
            if let Some(thresholds) = thresholds.filter(|_| free >= most) {
                (sum.trim_threshold_bytes, most) = (Some(thresholds.trim_threshold), free);
            }
        }
        Some(sum)
    }

    fn trim(&self, pid: u32) -> Result<(), String> {
        pids(pid)?.into_iter().try_for_each(|pid| match malloc_trim(pid, SAFE_PLACE_LIMIT) {
            Ok(_) => Ok(()),
            Err(_) if has_ended(pid) => Ok(()),
            Err(left) => Err(format!("{}: {}", name(pid), left.why)),
        })
    }

    fn in_charge(&self, pid: u32, variant: &Prepared) -> Result<(), String> {
        let pid = i32::try_from(pid).map_err(|error| error.to_string())?;
        let tree = Tree::of(pid).map_err(|error| error.to_string())?;
        tree.pids().iter().try_for_each(|pid| match variant.spec.linked {
            true => self.is_inside(*pid, &variant.spec.allocator),
            // What starts and watches the service of an image is often static, and small.
            false if self.in_container && is_small_and_static(*pid) => Ok(()),
            false => takes_malloc_from(*pid, variant, self.in_container),
        })
    }
}

/// A process and its descendants.
fn pids(root: u32) -> Result<Vec<i32>, String> {
    let root = i32::try_from(root).map_err(|error| error.to_string())?;
    Tree::of(root).map(|tree| tree.pids().to_vec()).map_err(|error| error.to_string())
}

fn has_ended(pid: i32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}

/// What one process holds, in pages; `None` where it does not show it.
fn held(of: &ebb_process::tree::Held) -> Option<refaults::Held> {
    Some(refaults::Held {
        space: refaults::AddressSpace { pid: of.pid, started_ticks: of.started_ticks, stack: of.stack },
        anon_pages: of.anon? / procfs::page_size(),
    })
}

struct CgroupOf(Place);

impl ServiceCgroup for CgroupOf {
    fn oom_kills(&self) -> Option<u64> {
        self.0.oom_kills()
    }

    fn throttled_s(&self) -> Option<f64> {
        self.0.throttled_s()
    }

    fn limit_bytes(&self) -> Option<u64> {
        self.0.limit_bytes()
    }
}

fn is_small_and_static(pid: i32) -> bool {
    let anon = Tree::of_pids(vec![pid]).sample().anon;
    anon.is_some_and(|bytes| bytes < SMALL_BYTES) && ebb_process::malloc_source(pid) == Ok(MallocSource::Static)
}

fn takes_malloc_from(pid: i32, variant: &Prepared, in_container: bool) -> Result<(), String> {
    let wanted = variant.library.as_deref();
    let here = wanted.filter(|_| in_container).and_then(|it| Root::of(pid).resolve(it).ok());
    let library = here.as_deref().or(wanted);
    let source = match ebb_process::started_malloc_source(pid, STARTING_LIMIT) {
        // What ended in the meantime held no memory at the end.
        Err(Unreadable::Gone) => return Ok(()),
        Err(error) => {
            return Err(format!("it is not known which allocator {} uses: {error}", name(pid)));
        }
        Ok(source) => source,
    };
    let expected = match library {
        Some(library) => source.is(library),
        None => source.is_libc(),
    };
    if expected {
        return variant.beside.as_deref().map_or(Ok(()), |beside| is_mapped(pid, beside));
    }
    let wanted = wanted.map_or("the C library".into(), |library| library.display().to_string());
    let found = match source {
        MallocSource::File(path) => &format!("uses malloc from {}", path.display()),
        MallocSource::Static => "is statically linked, so nothing can be preloaded",
        MallocSource::Nobody => "has no malloc",
    };
    Err(format!("{} {found}, not from {wanted}", name(pid)))
}

/// Whether what is preloaded together with the allocator is in the process.
fn is_mapped(pid: i32, beside: &Path) -> Result<(), String> {
    match ebb_process::maps_contain(pid, beside) {
        Ok(true) | Err(Unreadable::Gone) => Ok(()),
        Ok(false) => Err(format!("{} runs without {}", name(pid), beside.display())),
        Err(error) => {
            let (name, beside) = (name(pid), beside.display());
            Err(format!("it is not known whether {name} runs with {beside}: {error}"))
        }
    }
}

fn name(pid: i32) -> String {
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("process {pid} ({})", comm.trim())
}
