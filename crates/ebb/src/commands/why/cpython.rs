//! What a look reads of a CPython: its objects, and whether it has arenas at all.
//!
//! Used by `observe`.

use std::ffi::OsStr;
use std::time::Duration;

use ebb_process::counters::Counters;
use ebb_process::look::Depth;
use ebb_process::snapshot::{Heap, Objects, Python};
use ebb_process::{NotRead, environ, python};

/// Its interpreters and its object arenas, as deep as is requested. A CPython whose objects are `malloc`'s has no arenas: that is
/// known of it, and no failure.
pub(super) fn read(
    pid: i32,
    depth: Depth,
    heap: Option<&Heap>,
    counters: &Counters,
) -> (Option<Python>, Result<Option<Objects>, NotRead>) {
    let (python, objects) = match depth {
        Depth::Kernel => (None, Ok(None)),
        Depth::Heaps => (None, python::arenas(pid).map(Some)),
        Depth::Objects | Depth::Settled => {
            // Only glibc's reader lists its blocks.
            let glibc = heap.filter(|heap| heap.reader.starts_with("glibc"));
            match python::read(pid, glibc.map(|heap| heap.large.as_slice())) {
                Ok(read) => (Some(read.python), read.objects.map(Some)),
                Err(error) => (None, Err(error)),
            }
        }
    };
    let objects = objects.or_else(|error| {
        if !is_on_malloc(pid, counters) {
            return Err(error);
        }
        let reader = python.as_ref().map(|python| python.reader.clone());
        Ok(Some(Objects { reader: reader.unwrap_or_default(), ..Objects::default() }))
    });
    (python, objects)
}

/// Whether CPython is configured to take all its memory from `malloc`: by ebbmalloc, or by the variable.
fn is_on_malloc(pid: i32, counters: &Counters) -> bool {
    let served = counters
        .read(pid, Duration::MAX)
        .is_some_and(|seen| seen.mechanisms & ebb_stats::mechanism::CPYTHON != 0);
    served
        || environ::at_start(pid).is_ok_and(|variables| {
            let told = variables.get(OsStr::new("PYTHONMALLOC"));
            told.is_some_and(|told| told == "malloc" || told == "malloc_debug")
        })
}
