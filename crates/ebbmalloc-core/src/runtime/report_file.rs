//! The file that `report_file` names: after the line with which the process ends, what calls led there, and what is known of
//! the memory. It allocates nothing, and waits for no lock.

use super::checks::is_strict;
use super::checks::report::{push_block, push_place};
use super::checks::tag::{Place, State, TAG};
use super::conf::keys::REPORT_FILE;
use super::conf::{PATH_BYTES, expand_path};
use super::in_force;
use super::instance::HEAP;
use super::lookup::quick_class;
use super::profile::backtrace;
use crate::base::corrupt::{self, Line};
use crate::base::exact::usize_of;
use crate::base::lock::Wait;
use crate::heap::utilization::Memory;
use crate::os::linux::NewFile;
use crate::size::CLASS;

/// As many calls are written.
const DEPTH: usize = 32;

/// At boot.
pub fn listen() {
    if in_force::text(REPORT_FILE).is_some() {
        corrupt::listen(write);
    }
}

fn open() -> Option<NewFile> {
    let pattern = in_force::text(REPORT_FILE).filter(|_| !HEAP.os.is_confined())?;
    let mut room = [0; PATH_BYTES];
    HEAP.os.append_to_file(expand_path(pattern.to_bytes(), HEAP.os.process_id(), &mut room)?)
}

/// Adds the line about `address` and all that is known.
fn write(line: &[u8], address: usize) {
    let Some(file) = open() else { return };
    file.write(line);
    let mut frames = [0; DEPTH];
    let depth = backtrace::walk(&mut frames, &mut [], Wait::No);
    write_calls(&file, b"called at:\n", &mut frames[..depth].iter().copied());
    if let Some(record) = HEAP.parts.guarded.record(address) {
        let titles = [&b"allocated at:\n"[..], b"freed at:\n"];
        for (title, stack) in titles.into_iter().zip(&record.stacks) {
            write_calls(&file, title, &mut stack.iter().map(|&call| usize_of(call)));
        }
    }
    if let Memory::Slot { slab, slot } = HEAP.memory_at(address) {
        let size = CLASS[quick_class(slot).unwrap_or(0)].size as usize;
        let mut line = Line::new();
        line.push(b"slot of ");
        line.push_decimal(size as u64);
        line.push(b" bytes at ");
        line.push_hex(slot);
        line.push(b"\n");
        file.write(line.bytes());
        // Before, at and after it.
        for at in [slot.wrapping_sub(size), slot, slot + size] {
            if is_strict() && HEAP.memory_at(at) == (Memory::Slot { slab, slot: at }) {
                write_block(&file, at);
            }
        }
    }
}

#[inline(never)]
fn write_calls(file: &NewFile, title: &[u8], calls: &mut dyn Iterator<Item = usize>) {
    file.write(title);
    for call in calls.take_while(|&call| call != 0) {
        let mut line = Line::new();
        line.push(b"  ");
        push_place(&mut line, call);
        line.push(b"\n");
        file.write(line.bytes());
    }
}

/// The block in the slot at an address, in strict mode.
#[inline(never)]
fn write_block(file: &NewFile, slot: usize) {
    for front in [TAG, 2 * TAG] {
        let place = Place::at(slot + front);
        // SAFETY: in a slot of a slab, whose memory can be read.
        let Some((tag, state)) = (unsafe { place.read() }) else { continue };
        let mut line = Line::new();
        line.push(b"block ");
        line.push_hex(place.block);
        line.push(b": ");
        push_block(&mut line, &tag);
        line.push(if state == State::Live { b", live\n" } else { b", freed\n" });
        file.write(line.bytes());
    }
}
