//! Where the fields lie that are read, version by version.
//!
//! Up to 3.12 from the headers of each version (`internal/pycore_*.h`), compiled for x86-64; the offsets
//! in front of which the fields stand did not change within a version's releases of that branch, and
//! what is read through a wrong one is refused by the plausibility checks of the readers. 3.13 tells its
//! own, behind a cookie.

use crate::memory::{Memory, Reader};

use super::Unsupported;
use super::locate::Place;

/// The first bytes of the table that 3.13 and later publish.
const COOKIE: [u8; 8] = *b"xdebugpy";

/// Where the collector's state lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gc {
    /// In each interpreter.
    Interpreter(u64),
    /// In the runtime.
    Runtime(u64),
}

/// Offsets within the runtime and an interpreter, and pymalloc's sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Of the first interpreter, in the runtime.
    pub(super) head: u64,
    /// Of the next interpreter.
    pub(super) next: u64,
    /// Of its number.
    pub(super) id: u64,
    pub(super) gc: Gc,
    pub(super) arena_bytes: u64,
    pub(super) pool_bytes: u64,
}

const SMALL: (u64, u64) = (256 << 10, 4 << 10);
const LARGE: (u64, u64) = (1 << 20, 16 << 10);

impl Layout {
    /// The layout of the CPython at `place`.
    pub(super) fn of<M: Memory>(
        reader: &mut Reader<M>,
        place: &Place,
    ) -> Result<Self, Unsupported> {
        let (head, next, id, gc, sizes) = match place.version {
            (3, 8) => (32, 0, 16, Gc::Runtime(344), SMALL),
            (3, 9) => (32, 0, 24, Gc::Interpreter(616), SMALL),
            (3, 10) => (32, 0, 24, Gc::Interpreter(616), LARGE),
            (3, 11) => (40, 0, 48, Gc::Interpreter(648), LARGE),
            (3, 12) => (40, 0, 8, Gc::Interpreter(112), LARGE),
            (3, 13) => return Self::published(reader, place.runtime),
            (major, minor) => {
                return Err(Unsupported::Layout(format!(
                    "CPython {major}.{minor} is not one of 3.8 to 3.13"
                )));
            }
        };
        Ok(Self {
            head,
            next,
            id,
            gc,
            arena_bytes: sizes.0,
            pool_bytes: sizes.1,
        })
    }

    /// `struct _Py_DebugOffsets` of 3.13: cookie, version, whether it is free-threaded, then groups of
    /// offsets.
    fn published<M: Memory>(reader: &mut Reader<M>, runtime: u64) -> Result<Self, Unsupported> {
        const FREE_THREADED: u64 = 16;
        const HEAD: u64 = 40;
        const ID: u64 = 56;
        const NEXT: u64 = 64;
        const GC: u64 = 80;
        let mut cookie = [0; COOKIE.len()];
        reader.bytes(runtime, &mut cookie)?;
        if cookie != COOKIE {
            return Err(Unsupported::Layout(
                "its table of offsets has no cookie".to_owned(),
            ));
        }
        let mut field = |at: u64| reader.word(runtime.wrapping_add(at));
        if field(FREE_THREADED)? != 0 {
            return Err(Unsupported::Layout(
                "a free-threaded build: its memory is mimalloc's".to_owned(),
            ));
        }
        Ok(Self {
            head: field(HEAD)?,
            id: field(ID)?,
            next: field(NEXT)?,
            gc: Gc::Interpreter(field(GC)?),
            arena_bytes: LARGE.0,
            pool_bytes: LARGE.1,
        })
    }
}
