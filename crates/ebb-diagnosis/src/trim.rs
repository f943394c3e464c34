//! Whether malloc_trim is to be called in a process, and what it would do: from the facts of one look, before
//! anything is touched.

use ebb_allocators::Allocator;

use super::findings::megabytes;
use crate::facts::trim::{Cost, Left, Prediction, Reason};
use ebb_process::snapshot::{Heap, Missing, Process, Runtime};

/// What the caller allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Less than this is not worth it.
    pub least_bytes: u64,
    /// A longer pause is too long.
    pub most_pause_s: f64,
}

/// What would happen, where that can be told, and why it is not to.
pub fn judge(
    process: &Process,
    missing: &[Missing],
    cost: Option<&Cost>,
    limits: &Limits,
) -> (Option<Prediction>, Option<Left>) {
    let name = process.allocator.name.as_deref();
    let heap = match (name.map(Allocator::from_name), &process.heap) {
        (Some(Some(Allocator::Ebbmalloc)), Some(heap)) => return (None, Some(of_ebbmalloc(heap))),
        (Some(Some(Allocator::Glibc)) | None, Some(heap)) => heap,
        (Some(Some(Allocator::Glibc | Allocator::Ebbmalloc)) | None, None) => {
            return (None, Some(unread(process, missing)));
        }
        (Some(known), _) => return (None, Some(cannot(known, name.unwrap_or_default()))),
    };
    let prediction = predict(heap, cost);
    (Some(prediction), too_little(&prediction, heap.locked, limits).or_else(|| too_long(&prediction, limits)))
}

fn predict(heap: &Heap, cost: Option<&Cost>) -> Prediction {
    let pause_s = cost.zip(heap.free_blocks).map(|(cost, blocks)| {
        let pages = heap.trimmable as f64 / cost.page_bytes as f64;
        // No more blocks than pages have a whole page each.
        cost.call_s * pages.min(blocks as f64) + cost.page_s * pages
    });
    Prediction { returns: heap.trimmable, tops: heap.tops, pinned: heap.pinned, pause_s }
}

fn too_little(prediction: &Prediction, locked: u64, limits: &Limits) -> Option<Left> {
    let least = limits.least_bytes;
    let remedy = if prediction.tops >= least {
        Some(format!(
            "malloc_trim does not return {} MB at the ends of secondary arenas: use \
             MALLOC_TRIM_THRESHOLD_=131072 or another allocator, and restart",
            megabytes(prediction.tops)
        ))
    } else if locked >= least {
        let locked = megabytes(locked);
        Some(format!("{locked} MB are free but locked in memory (mlock): the program has to unlock them first"))
    } else {
        None
    };
    let (returns, min) = (megabytes(prediction.returns), megabytes(least));
    let why = format!("malloc_trim would return {returns} MB, less than the {min} MB of --min");
    (prediction.returns < least).then_some(Left { reason: Reason::BelowThreshold, why, remedy })
}

fn too_long(prediction: &Prediction, limits: &Limits) -> Option<Left> {
    let pause_s = prediction.pause_s.filter(|&pause_s| pause_s > limits.most_pause_s)?;
    Some(Left {
        reason: Reason::TooLong,
        why: format!(
            "a thread would be busy for about {:.0} ms, longer than --max-pause ({:.0} ms)",
            pause_s * 1e3,
            limits.most_pause_s * 1e3
        ),
        remedy: Some("raise --max-pause, or try when the service is quiet".to_owned()),
    })
}

fn of_ebbmalloc(heap: &Heap) -> Left {
    let waiting = megabytes(heap.trimmable);
    match heap.returns_within_ms {
        Some(ms) => Left {
            reason: Reason::ReturnsByItself,
            why: format!("ebbmalloc returns idle pages by itself, within {ms} ms; {waiting} MB are waiting"),
            remedy: None,
        },
        None => Left {
            reason: Reason::CannotTrim,
            why: format!("its ebbmalloc is configured to keep idle pages ({waiting} MB)"),
            remedy: Some(
                "call malloc_trim(0) in the program, or start it without purge:off and dirty_decay_ms:-1".to_owned(),
            ),
        },
    }
}

fn unread(process: &Process, missing: &[Missing]) -> Left {
    let about = |what: &str| missing.iter().find(|missing| missing.pid == Some(process.pid) && missing.what == what);
    let found = about("mappings").or_else(|| about("heap")).or_else(|| about("allocator"));
    match found {
        Some(missing) => Left {
            reason: match missing.remedy {
                Some(_) => Reason::NoRight,
                None => Reason::NotRead,
            },
            why: missing.why.clone(),
            remedy: missing.remedy.clone(),
        },
        None => Left {
            reason: Reason::CannotTrim,
            why: "it does not use malloc".to_owned(),
            remedy: of_runtime(process.runtime).map(str::to_owned),
        },
    }
}

fn cannot(known: Option<Allocator>, name: &str) -> Left {
    let remedy = match known {
        Some(Allocator::Jemalloc) => {
            "call mallctl(\"arena.4096.purge\") in the program, or start it with \
             MALLOC_CONF=background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:1000"
        }
        Some(Allocator::Mimalloc) => {
            "call mi_collect(true) in each thread, or start it with MIMALLOC_PURGE_DELAY=0; before 2.1 only a start \
             with MIMALLOC_DECOMMIT_DELAY=0 helps"
        }
        Some(Allocator::Tcmalloc) => {
            "call MallocExtension::ReleaseFreeMemory in the program, or start it with TCMALLOC_AGGRESSIVE_DECOMMIT=t"
        }
        Some(Allocator::Musl) => "musl already returns what it can; restart with another allocator",
        _ => "use its own control, if it has one, or restart with another allocator",
    };
    Left {
        reason: Reason::CannotTrim,
        why: format!("it uses {name}, which has no malloc_trim"),
        remedy: Some(remedy.to_owned()),
    }
}

fn of_runtime(runtime: Option<Runtime>) -> Option<&'static str> {
    Some(match runtime? {
        Runtime::Go => "call debug.FreeOSMemory() in the program, or set GOMEMLIMIT",
        Runtime::Jvm => "run jcmd PID GC.run, if the collector is G1",
        Runtime::V8 => "node --max-old-space-size limits it",
        Runtime::Cpython | Runtime::Ruby => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_process::snapshot::Allocator;

    const MB: u64 = 1_000_000;
    const COST: Cost = Cost { call_s: 1e-6, page_s: 2e-7, page_bytes: 4096 };
    const LIMITS: Limits = Limits { least_bytes: 16 * MB, most_pause_s: 0.1 };

    fn process(allocator: &str, heap: Option<Heap>) -> Process {
        Process {
            pid: 7,
            allocator: Allocator { name: Some(allocator.to_owned()), file: None },
            heap,
            ..Process::default()
        }
    }

    fn glibc(trimmable: u64, tops: u64, free_blocks: u64) -> Process {
        let heap = Heap { trimmable, tops, free_blocks: Some(free_blocks), ..Heap::default() };
        process("glibc", Some(heap))
    }

    /// Why nothing is done, and words of what to do instead.
    #[test]
    fn each_reason_to_leave_a_process_alone_has_its_remedy() {
        let ours = |returns_within_ms| {
            process("ebbmalloc", Some(Heap { trimmable: 5 * MB, returns_within_ms, ..Heap::default() }))
        };
        let mut locked = glibc(0, 0, 1);
        locked.heap.as_mut().unwrap().locked = 100 * MB;
        let too_little = Reason::BelowThreshold;
        for (name, process, reason, remedy) in [
            ("enough that is quickly done", glibc(100 * MB, 0, 10_000), None, ""),
            ("too little", glibc(15 * MB, 0, 1), Some(too_little), ""),
            ("too long", glibc(4000 * MB, 0, 900_000), Some(Reason::TooLong), "--max-pause"),
            ("tops", glibc(0, 200 * MB, 1), Some(too_little), "MALLOC_TRIM_THRESHOLD_"),
            ("locked", locked, Some(too_little), "mlock"),
            ("by itself", ours(Some(500)), Some(Reason::ReturnsByItself), ""),
            ("told to keep", ours(None), Some(Reason::CannotTrim), "purge:off"),
            ("jemalloc", process("jemalloc", None), Some(Reason::CannotTrim), "MALLOC_CONF"),
            ("mimalloc", process("mimalloc", None), Some(Reason::CannotTrim), "mi_collect"),
            ("tcmalloc", process("tcmalloc", None), Some(Reason::CannotTrim), "ReleaseFreeMemory"),
            ("musl", process("musl", None), Some(Reason::CannotTrim), "another allocator"),
            ("libfoo.so", process("libfoo.so", None), Some(Reason::CannotTrim), "its own control"),
        ] {
            let (prediction, left) = judge(&process, &[], Some(&COST), &LIMITS);
            assert_eq!(left.as_ref().map(|left| left.reason), reason, "{name}");
            let is_glibc = process.allocator.name.as_deref() == Some("glibc");
            assert_eq!(prediction.is_some(), is_glibc, "{name}");
            let Some(Left { why, remedy: found, .. }) = left else { continue };
            assert!(found.unwrap_or_default().contains(remedy), "{name}");
            let is_other = reason == Some(Reason::CannotTrim) && name != "told to keep";
            assert!(!is_other || why.contains(name), "{why}");
        }
    }

    #[test]
    fn a_pause_is_that_of_the_calls_and_pages_and_small_free_blocks_make_no_calls() {
        let pause = |process| judge(&process, &[], Some(&COST), &LIMITS).0.unwrap().pause_s.unwrap();
        let expected = 10_000.0 * 1e-6 + (100 * MB) as f64 / 4096.0 * 2e-7;
        assert!((pause(glibc(100 * MB, 0, 10_000)) - expected).abs() < 1e-9);
        // A million of free blocks, but only ten pages.
        assert!(pause(glibc(40960, 0, 1_000_000)) < 20e-6);
    }

    #[test]
    fn a_closed_heap_is_a_right_that_is_missing() {
        let missing = |remedy: Option<&str>| Missing {
            pid: Some(7),
            what: "heap".to_owned(),
            why: "no".to_owned(),
            remedy: remedy.map(str::to_owned),
        };
        let of = |missing| judge(&process("glibc", None), &[missing], Some(&COST), &LIMITS).1;
        assert_eq!(of(missing(Some("root"))).unwrap().reason, Reason::NoRight);
        assert_eq!(of(missing(None)).unwrap().reason, Reason::NotRead);
    }
}
