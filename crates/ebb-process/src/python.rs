//! CPython in a process: its interpreters, what its collectors track, its object arenas, in the terms of our facts.
//!
//! Used by `ebb why` and its kin.

use std::collections::HashMap;

use ebb_allocators::Allocator;
use ebb_inspect::Target;
use ebb_inspect::cpython::{self, Arenas};

use super::counters::Counters;
use super::heap;
use super::look;
use super::look::NotRead;
use crate::snapshot::{Heap, Interpreter, Objects, OfType, Python};

/// Number of types that are reported.
const MOST_TYPES: usize = 100;

/// What was read: the object arenas apart, which may be missing or torn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// Interpreters, types, large blocks.
    pub python: Python,
    /// The arenas.
    pub objects: Result<Objects, NotRead>,
}

/// Reads the CPython in `pid`. `large` are the live blocks of its `malloc` from 1 MiB on, where they are known.
pub fn read(pid: i32, large: Option<&[(u64, u64)]>) -> Result<Read, NotRead> {
    let target = look::open(pid).map_err(|error| NotRead::of(pid, error))?;
    let read = cpython::Python::read(&target, large.unwrap_or_default());
    let mut read = read.map_err(|error| NotRead::of(pid, error))?;
    let reader = name(read.version);
    Ok(Read {
        objects: objects(&target, &reader, read.arenas),
        python: Python {
            buffers: large.map(|_| read.buffers),
            types: types(&mut read.interpreters),
            interpreters: read.interpreters,
            reader,
        },
    })
}

/// Reads its object arenas alone: without the collectors' lists, which take seconds where there are many objects.
pub fn arenas(pid: i32) -> Result<Objects, NotRead> {
    let target = look::open(pid).map_err(|error| NotRead::of(pid, error))?;
    let read = cpython::Python::arenas(&target);
    let (version, arenas) = read.map_err(|error| NotRead::of(pid, error))?;
    objects(&target, &name(version), arenas)
}

/// Reads the mimalloc that CPython has of its own since 3.13: a free-threaded build's objects and buffers are there, those of others
/// with `PYTHONMALLOC=mimalloc`.
pub fn mimalloc(pid: i32, counters: &Counters) -> Option<Result<Heap, NotRead>> {
    let target = look::open(pid).ok()?;
    let file = cpython::file(&target).ok()??;
    let read = heap::read(pid, Some(Allocator::Mimalloc.name()), file.to_str(), counters);
    Some(read.map(|mut heap| {
        heap.notes.push(
            "CPython's objects and buffers are in its own mimalloc, which another allocator does not replace"
                .to_owned(),
        );
        heap
    }))
}

fn name((major, minor): (u8, u8)) -> String {
    format!("CPython {major}.{minor}")
}

fn objects(target: &Target, reader: &str, arenas: Option<Arenas>) -> Result<Objects, NotRead> {
    let arenas = arenas.ok_or_else(|| {
        let status = target.process().status().ok();
        NotRead::because(match status.and_then(|status| status.vmswap) {
            Some(1..) => {
                "pymalloc is not used, or was not found; parts of the process are in swap, which ebb does not read"
            }
            _ => "pymalloc is not used, or was not found",
        })
    })?;
    if arenas.swapped > 0 {
        return Err(NotRead::because(format!("{} arenas have pages in swap, which are not read", arenas.swapped)));
    }
    if arenas.unread > 0 {
        return Err(NotRead::because(format!("{} arenas or interpreters changed while they were read", arenas.unread)));
    }
    Ok(Objects {
        reader: reader.to_owned(),
        resident: arenas.resident_bytes,
        live: arenas.used_bytes.min(arenas.resident_bytes),
        arenas: arenas.count,
    })
}

/// The types of all interpreters, taken out of them: each has its own `list`, by another address and the same name.
fn types(interpreters: &mut [Interpreter]) -> Vec<OfType> {
    let mut sums: HashMap<Option<String>, OfType> = HashMap::new();
    let collectors = interpreters.iter_mut().filter_map(|it| it.collector.as_mut());
    for of in collectors.flat_map(|collector| std::mem::take(&mut collector.types)) {
        let sum = sums.entry(of.name.clone()).or_insert_with(|| OfType { name: of.name, ..OfType::default() });
        sum.count += of.count;
        sum.bytes += of.bytes;
    }
    let mut types: Vec<OfType> = sums.into_values().collect();
    OfType::sort(&mut types);
    types.truncate(MOST_TYPES);
    types
}
