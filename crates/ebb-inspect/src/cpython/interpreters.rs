//! The interpreters of a process, and their collectors.

use super::collector::{self, Collector};
use super::layout::{self, Layout};
use crate::heap::Unsupported;
use crate::memory::{Reader, Unreadable};

/// No process has more; a longer list is torn.
const MOST_INTERPRETERS: usize = 1024;

/// One interpreter.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Interpreter {
    /// Its number; the main one has 0.
    pub id: i64,
    /// Its garbage collector. In 3.8 all interpreters share one; it stands with the main one.
    pub collector: Option<Collector>,
}

/// Addresses and numbers of the interpreters, the newest first.
pub(super) fn states(
    reader: &mut Reader<'_>,
    runtime: u64,
    layout: &Layout,
) -> Result<Vec<(u64, i64)>, Unsupported> {
    let mut states = Vec::new();
    let mut next = reader.word(runtime.wrapping_add(layout.head))?;
    while next != 0 {
        if states.len() == MOST_INTERPRETERS {
            return Err(Unsupported::Build("its list of interpreters has no end".to_owned()));
        }
        states.push((next, reader.word(next.wrapping_add(layout.id))?.cast_signed()));
        next = reader.word(next.wrapping_add(layout.next))?;
    }
    if states.is_empty() {
        return Err(Unsupported::Build("it has no interpreter (yet)".to_owned()));
    }
    Ok(states)
}

/// The address of the interpreter that the process began with.
pub(super) fn main_interpreter(
    reader: &mut Reader<'_>,
    runtime: u64,
    layout: &Layout,
) -> Result<u64, Unsupported> {
    states(reader, runtime, layout)?
        .into_iter()
        .find(|&(_, id)| id == 0)
        .map(|(state, _)| state)
        .ok_or_else(|| Unsupported::Build("it has no main interpreter".to_owned()))
}

pub(super) fn interpreters(
    reader: &mut Reader<'_>,
    runtime: u64,
    layout: &Layout,
) -> Result<Vec<Interpreter>, Unsupported> {
    let mut interpreters = Vec::new();
    for (state, id) in states(reader, runtime, layout)? {
        let gc = match layout.gc {
            layout::Gc::Interpreter(offset) => Some(state.wrapping_add(offset)),
            layout::Gc::Runtime(offset) => (id == 0).then(|| runtime.wrapping_add(offset)),
        };
        let collector = match gc.map(|at| collector::read(reader, at, layout.frozen)) {
            Some(Err(Unreadable::Late)) => None,
            collector => collector.transpose()?,
        };
        interpreters.push(Interpreter { id, collector });
    }
    Ok(interpreters)
}
