//! Where CPython 3.14 takes a request to run a script: the interpreter's own remote execution (PEP 768).
//!
//! The main thread's state has a place for a script's path and a flag; the interpreter looks there when it comes by
//! with a bit of its `eval_breaker` set. This is the reading half: `ebb-inject` writes. Of all threads only
//! the main one is named, because its state is never freed while the interpreter runs.

use crate::exact::usize_of;
use crate::heap::Unsupported;
use crate::memory::Reader;
use crate::target::Target;

use super::collector::main_interpreter;
use super::layout::Layout;
use super::locate::{self, Place};

/// Fields of the runtime's table of offsets, as 3.14 has it.
const FINALIZING: u64 = 32;
const THREADS_MAIN: u64 = 80;
const THREAD_BYTES: u64 = 176;
const NATIVE_THREAD_ID: u64 = 224;
const EVAL_BREAKER: u64 = 712;
const SUPPORT: u64 = 720;
const IS_ENABLED: u64 = 728;
const PENDING: u64 = 736;
const PATH: u64 = 744;
const PATH_BYTES: u64 = 752;
/// The path's room in every release so far. Another figure: another table.
const EXPECTED_PATH_BYTES: u64 = 512;
/// No state of a thread is larger; 3.14's has 1 KiB.
const MOST_THREAD_BYTES: u64 = 64 << 10;

/// Where a request for the main thread goes. Addresses in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Whether the interpreter would look: not with `PYTHON_DISABLE_REMOTE_DEBUG`, `-X disable-remote-debug`, or in a
    /// build without it.
    pub is_enabled: bool,
    /// Whether a request is waiting already.
    pub is_pending: bool,
    /// The kernel's number of the main thread.
    pub thread: i32,
    /// The flag, an `int`: 1 asks.
    pub pending: u64,
    /// The script's path, with a zero at its end.
    pub path: u64,
    /// Size of the path's buffer.
    pub path_bytes: usize,
    /// The byte of `eval_breaker` in which the bit lies that makes the thread look.
    pub eval_breaker: u64,
}

impl Remote {
    /// The bit of [`Remote::eval_breaker`].
    pub const BIT: u8 = 1 << 5;

    /// Reads it; unsupported before 3.14 and while the interpreter is about to end.
    pub fn read(target: &Target) -> Result<Self, Unsupported> {
        let place = locate::runtime(target, &target.mappings()?)?;
        let mut reader = Reader::new(target.memory());
        let layout = Layout::of(&mut reader, &place)?;
        Self::of(&mut reader, &place, &layout)
    }

    fn of(reader: &mut Reader<'_>, place: &Place, layout: &Layout) -> Result<Self, Unsupported> {
        let (major, minor) = place.version;
        if place.version < (3, 14) {
            return Err(Unsupported::Build(format!("CPython {major}.{minor} has no remote execution; it needs 3.14")));
        }
        let unknown = || Unsupported::Build("its table of offsets is not known".into());
        let interpreter = main_interpreter(reader, place.runtime, layout)?;
        let mut field = |at: u64| reader.word(place.runtime.wrapping_add(at));
        let (support, pending, path) = (field(SUPPORT)?, field(PENDING)?, field(PATH)?);
        let (thread_bytes, path_bytes) = (field(THREAD_BYTES)?, field(PATH_BYTES)?);
        let (eval_breaker, native_id) = (field(EVAL_BREAKER)?, field(NATIVE_THREAD_ID)?);
        let (main, is_enabled, finalizing) = (field(THREADS_MAIN)?, field(IS_ENABLED)?, field(FINALIZING)?);
        let ends = [
            support.checked_add(path).and_then(|at| at.checked_add(path_bytes)),
            support.checked_add(pending).and_then(|at| at.checked_add(4)),
            eval_breaker.checked_add(8),
            native_id.checked_add(8),
        ];
        let fits = |end: &Option<u64>| end.is_some_and(|end| end <= thread_bytes);
        if path_bytes != EXPECTED_PATH_BYTES || thread_bytes > MOST_THREAD_BYTES || !ends.iter().all(fits) {
            return Err(unknown());
        }
        if reader.word(place.runtime.wrapping_add(finalizing))? != 0 {
            return Err(Unsupported::Build("its interpreter is ending".to_owned()));
        }
        let thread = reader.word(interpreter.wrapping_add(main))?;
        if thread == 0 {
            return Err(Unsupported::Build("it has no main thread (yet)".to_owned()));
        }
        let support = thread.wrapping_add(support);
        Ok(Self {
            is_enabled: reader.int(interpreter.wrapping_add(is_enabled))? == 1,
            is_pending: reader.int(support.wrapping_add(pending))? != 0,
            thread: i32::try_from(reader.word(thread.wrapping_add(native_id))?).map_err(|_| unknown())?,
            pending: support.wrapping_add(pending),
            path: support.wrapping_add(path),
            path_bytes: usize_of(path_bytes),
            eval_breaker: thread.wrapping_add(eval_breaker),
        })
    }
}
