//! CPython's own memory: interpreters, the garbage collector's state and lists, the arenas in which
//! pymalloc keeps objects of up to 512 bytes.
//!
//! Found from the symbol `_PyRuntime` of the program or of libpython, on x86-64, for the ordinary builds of
//! 3.8 to 3.14; anything else is [`Unsupported`], never a guess. The process goes on meanwhile: a list that
//! changes while it is followed is left there, and the result says that it is not complete.
//!
//! What the kernel's heap and these arenas have in common: glibc's breakdown counts an arena as one block mapped
//! by itself; free memory inside is seen here only.

use crate::heap::Unsupported;
use crate::memory::Reader;
use crate::space::Space;
use crate::target::{Mapping, Target};

mod arenas;
mod arrays;
mod buffers;
mod code;
mod collector;
mod layout;
mod locate;
mod remote;
#[cfg(test)]
mod tests;

pub use arenas::Arenas;
pub use code::{Code, Codes};
pub use collector::{Collector, Interpreter, OfType};
pub use locate::file;
pub use remote::Remote;

use collector::{interpreters, states};
use layout::Layout;

/// From this version on an interpreter with a lock of its own has arenas of its own.
const OWN_ARENAS: (u8, u8) = (3, 12);

/// What one process with CPython in it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Python {
    /// Major and minor version.
    pub version: (u8, u8),
    /// The interpreters, the newest first.
    pub interpreters: Vec<Interpreter>,
    /// pymalloc's arenas, of all interpreters together; none where pymalloc is not used
    /// (`PYTHONMALLOC=malloc`) or its state was not found.
    pub arenas: Option<Arenas>,
    /// What the blocks that were asked about are to Python, by type, the most bytes first.
    pub buffers: Vec<OfType>,
}

impl Python {
    /// Reads the process; of its allocator's live `blocks` (addresses and bytes) it tells what they are to Python.
    pub fn read(target: &Target, blocks: &[(u64, u64)]) -> Result<Self, Unsupported> {
        let mut found = Found::of(target)?;
        let (arrays, arenas) = found.arenas()?;
        let Found { place, layout, mut reader, .. } = found;
        let buffers = buffers::owners(&mut reader, blocks, &arrays, &layout, place.type_of_types)?;
        // At the end: the collectors' lists may be longer than there is time.
        let interpreters = interpreters(&mut reader, place.runtime, &layout)?;
        Ok(Self { version: place.version, interpreters, arenas, buffers })
    }

    /// Its version and its arenas alone, without a step through the collector's lists: those of many
    /// objects take seconds.
    pub fn arenas(target: &Target) -> Result<((u8, u8), Option<Arenas>), Unsupported> {
        let mut found = Found::of(target)?;
        let (_, arenas) = found.arenas()?;
        Ok((found.place.version, arenas))
    }
}

/// Where CPython's structures are in a process.
struct Found<'a> {
    place: locate::Place,
    layout: Layout,
    reader: Reader<'a>,
    mappings: Vec<Mapping>,
}

impl<'a> Found<'a> {
    fn of(target: &'a Target) -> Result<Self, Unsupported> {
        let mappings = target.mappings()?;
        let place = locate::runtime(target, &mappings)?;
        let mut reader = Reader::new(target.memory());
        let layout = Layout::of(&mut reader, &place)?;
        Ok(Self { place, layout, reader, mappings })
    }

    /// Where the arrays of pymalloc's arenas are, and what is in them.
    fn arenas(&mut self) -> Result<(Vec<u64>, Option<Arenas>), Unsupported> {
        let Self { place, layout, reader, mappings } = self;
        let space = Space { memory: reader.memory(), mappings };
        let Some(first) = arrays::find(space, reader, &place.data, layout)? else {
            return Ok((Vec::new(), None));
        };
        let arrays = if place.version < OWN_ARENAS {
            arrays::Arrays::one(&first)
        } else {
            let states = states(reader, place.runtime, layout)?;
            arrays::of_interpreters(reader, &first, &states, layout)?
        };
        let mut sum = Arenas { unread: arrays.unknown, ..Arenas::default() };
        for &array in &arrays.found {
            arenas::read(reader, array, layout, &mut sum)?;
        }
        Ok((arrays.found, Some(sum)))
    }
}
