//! CPython's own memory: interpreters, the garbage collector's state and lists, the arenas in which
//! pymalloc keeps objects of up to 512 bytes.
//!
//! Found from the symbol `_PyRuntime` of the program or of libpython, on x86-64, for the ordinary builds of
//! 3.8 to 3.13; anything else is [`Unsupported`], never a guess. The process goes on meanwhile: a list that
//! changes while it is followed is left there, and the result says that it is not complete.
//!
//! What the kernel's heap and these arenas have in common: glibc's ledger counts an arena as one block mapped
//! by itself; what is free inside is seen here only.

use crate::memory::process::ProcessMemory;
use crate::memory::{Reader, Unreadable};
use crate::target::Target;

pub mod arenas;
pub mod collector;
mod layout;
mod locate;
#[cfg(test)]
mod tests;

pub use arenas::Arenas;
pub use collector::{Collector, Generation, Type};

use layout::Layout;

/// No process has more; a longer list is torn.
const MOST_INTERPRETERS: usize = 1024;

/// What one process with CPython in it holds.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Python {
    /// Major and minor version.
    pub version: (u8, u8),
    /// The interpreters, the newest first.
    pub interpreters: Vec<Interpreter>,
    /// pymalloc's arenas, those of the main interpreter from 3.12 on; none where pymalloc is not used
    /// (`PYTHONMALLOC=malloc`) or its state was not found.
    pub arenas: Option<Arenas>,
}

/// One interpreter.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Interpreter {
    /// Its number; the main one has 0.
    pub id: i64,
    /// Its garbage collector. In 3.8 all interpreters share one; it stands with the main one.
    pub collector: Option<Collector>,
}

/// Why there is nothing to say.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// No file of the process defines `_PyRuntime`.
    #[error("no CPython is in it")]
    NoPython,
    /// A version or a kind of build whose layout is not known.
    #[error("{0}")]
    Layout(String),
    /// It could not be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

impl Python {
    /// Reads the process.
    pub fn read(target: &Target) -> Result<Self, Unsupported> {
        let Found {
            place,
            layout,
            mut reader,
        } = Found::of(target)?;
        Ok(Self {
            version: place.version,
            interpreters: interpreters(&mut reader, place.runtime, &layout)?,
            arenas: arenas::find(&mut reader, &place.data, &layout)?,
        })
    }

    /// Its version and its arenas alone, without a step through the collector's lists: those of many
    /// objects take seconds.
    pub fn arenas(target: &Target) -> Result<((u8, u8), Option<Arenas>), Unsupported> {
        let Found {
            place,
            layout,
            mut reader,
        } = Found::of(target)?;
        let arenas = arenas::find(&mut reader, &place.data, &layout)?;
        Ok((place.version, arenas))
    }
}

/// Where CPython's structures are in a process.
struct Found<'a> {
    place: locate::Place,
    layout: Layout,
    reader: Reader<&'a ProcessMemory>,
}

impl<'a> Found<'a> {
    fn of(target: &'a Target) -> Result<Self, Unsupported> {
        let mappings = target.mappings()?;
        let place = locate::runtime(target, &mappings)?;
        let mut reader = Reader::new(target.memory());
        let layout = Layout::of(&mut reader, &place)?;
        Ok(Self {
            place,
            layout,
            reader,
        })
    }
}

fn interpreters<M: crate::Memory>(
    reader: &mut Reader<M>,
    runtime: u64,
    layout: &Layout,
) -> Result<Vec<Interpreter>, Unsupported> {
    let mut interpreters = Vec::new();
    let mut next = reader.word(runtime.wrapping_add(layout.head))?;
    while next != 0 {
        if interpreters.len() == MOST_INTERPRETERS {
            return Err(Unsupported::Layout(
                "its list of interpreters does not end".to_owned(),
            ));
        }
        let id = reader.word(next.wrapping_add(layout.id))? as i64;
        let gc = match layout.gc {
            layout::Gc::Interpreter(offset) => Some(next.wrapping_add(offset)),
            layout::Gc::Runtime(offset) => (id == 0).then(|| runtime.wrapping_add(offset)),
        };
        let collector = gc.map(|at| collector::read(reader, at)).transpose()?;
        interpreters.push(Interpreter { id, collector });
        next = reader.word(next.wrapping_add(layout.next))?;
    }
    if interpreters.is_empty() {
        return Err(Unsupported::Layout(
            "it has no interpreter (yet)".to_owned(),
        ));
    }
    Ok(interpreters)
}
