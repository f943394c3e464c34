//! Where the fields lie that are read, version by version.
//!
//! Up to 3.12 from the headers of each version (`internal/pycore_*.h`), compiled for x86-64; the offsets
//! of the fields did not change within a version's releases of that branch, and
//! what is read through a wrong one is refused by the plausibility checks of the readers. 3.13 and later tell
//! their own, after a cookie: `struct _Py_DebugOffsets`, whose layout differs in each version.

use crate::heap::Unsupported;
use crate::memory::Reader;

use super::locate::{FREE_THREADED_BUILD, Place};

/// The first bytes of the table that 3.13 and later publish.
const COOKIE: [u8; 8] = *b"xdebugpy";

/// Fields of that table: cookie, version, whether it is free-threaded, then groups of offsets.
const VERSION: u64 = 8;
const FREE_THREADED: u64 = 16;
const HEAD: u64 = 40;
const ID: u64 = 56;
const NEXT: u64 = 64;
const GC_OF_3_13: u64 = 80;
/// 3.14 has the main thread in front of it.
const GC_OF_3_14: u64 = 88;
/// The part of a version's number that says release, not alpha, beta or candidate.
const RELEASE_LEVEL: u64 = 0xf0;

/// Where the list of frozen objects begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frozen {
    /// So far into the collector's state.
    InState(u64),
    /// After the last generation.
    BehindGenerations,
}

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
    /// Offset of the first interpreter in the runtime.
    pub(super) head: u64,
    /// Offset of the next interpreter.
    pub(super) next: u64,
    /// Offset of the interpreter's number.
    pub(super) id: u64,
    pub(super) gc: Gc,
    pub(super) frozen: Frozen,
    pub(super) arena_bytes: u64,
    pub(super) pool_bytes: u64,
}

/// After three generations and a pointer to the first of them; 3.14 has moved the pointer. 3.14.0 to 3.14.4, whose
/// collector is another, have a young list and two old ones at the places of the generations, and the frozen one after
/// them: the sources of 3.14.5 say that they kept every place. So the micro version decides nothing here.
const FROZEN: Frozen = Frozen::InState(104);
const SMALL: (u64, u64) = (256 << 10, 4 << 10);
const LARGE: (u64, u64) = (1 << 20, 16 << 10);

impl Layout {
    /// The layout of the CPython at `place`.
    pub(super) fn of(reader: &mut Reader<'_>, place: &Place) -> Result<Self, Unsupported> {
        let (head, next, id, gc, sizes) = match place.version {
            (3, 8) => (32, 0, 16, Gc::Runtime(344), SMALL),
            (3, 9) => (32, 0, 24, Gc::Interpreter(616), SMALL),
            (3, 10) => (32, 0, 24, Gc::Interpreter(616), LARGE),
            (3, 11) => (40, 0, 48, Gc::Interpreter(648), LARGE),
            (3, 12) => (40, 0, 8, Gc::Interpreter(112), LARGE),
            (3, 13) => return Self::published(reader, place, GC_OF_3_13, FROZEN),
            (3, 14) => {
                return Self::published(reader, place, GC_OF_3_14, Frozen::BehindGenerations);
            }
            (major, minor) => {
                return Err(Unsupported::Build(format!("CPython {major}.{minor} is not one of 3.8 to 3.14")));
            }
        };
        Ok(Self { head, next, id, gc, frozen: FROZEN, arena_bytes: sizes.0, pool_bytes: sizes.1 })
    }

    /// What the runtime tells of itself.
    fn published(reader: &mut Reader<'_>, place: &Place, gc: u64, frozen: Frozen) -> Result<Self, Unsupported> {
        let mut cookie = [0; COOKIE.len()];
        reader.bytes(place.runtime, &mut cookie)?;
        if cookie != COOKIE {
            return Err(Unsupported::Build("its table of offsets has no cookie".to_owned()));
        }
        let mut field = |at: u64| reader.word(place.runtime.wrapping_add(at));
        let version = field(VERSION)?;
        if (version >> 24 & 0xff, version >> 16 & 0xff) != (place.version.0.into(), place.version.1.into())
            || version & RELEASE_LEVEL != RELEASE_LEVEL
        {
            return Err(Unsupported::Build(format!(
                "its table of offsets has version {version:#x}, which does not match the file's name"
            )));
        }
        if field(FREE_THREADED)? != 0 {
            return Err(Unsupported::Build(FREE_THREADED_BUILD.to_owned()));
        }
        Ok(Self {
            head: field(HEAD)?,
            id: field(ID)?,
            next: field(NEXT)?,
            gc: Gc::Interpreter(field(gc)?),
            frozen,
            arena_bytes: LARGE.0,
            pool_bytes: LARGE.1,
        })
    }
}
