//! The text of a heap profile: heap_v2, as jemalloc writes it and jeprof and pprof read it.
//!
//! ```text
//! heap_v2/524288                            the mean interval between samples
//!   t*: 28: 56637 [0: 0]                    all threads: live objects: bytes [all ever: bytes]
//!   t3: 28: 56637 [0: 0] name               each thread
//! @ 0x5f86da8 0x5f5a1dc                     a stack, the innermost return address first
//!   t*: 13: 6688 [0: 0]
//!   t3: 13: 6688 [0: 0]
//! ```
//!
//! The list of mapped libraries that follows is the caller's to write. The counts are of samples, so
//! that what readers make of them, who scale by the mean size, is the estimate ([`Weight::as_samples`]).

use super::Profile;
use super::interval::Weight;
use super::records::{Printed, Stack, Sums, Thread};
use super::table::Table;
use crate::base::corrupt::Line;
use crate::os::Os;

/// What a dump found live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Bytes, estimated.
    pub bytes: u64,
    /// Objects, estimated.
    pub objects: u64,
    /// Stacks that any of them is from.
    pub stacks: u64,
}

impl Profile {
    /// Writes the profile, whose mean interval is `2^lg`, through `write`. The lock is held meanwhile.
    pub fn dump<O: Os>(&self, os: &O, lg: u32, write: &mut dyn FnMut(&[u8])) -> Summary {
        let mut table = self.table.lock(os);
        let summary = add_up(&mut table, lg);
        let mut line = Line::new();
        line.push(b"heap_v2/");
        line.push_decimal(1 << lg);
        line.push(b"\n");
        write(line.bytes());
        let mut total = Printed::default();
        table.for_each_thread(&mut |thread| total.add(thread.printed));
        write_line(None, &total, write);
        table.for_each_thread(&mut |thread| {
            if thread.printed != Printed::default() {
                write_line(Some(thread), &thread.printed, write);
            }
        });
        table.for_each_stack(&mut |table, stack| write_stack(table, stack, lg, write));
        summary
    }

    /// Calls `each` with the return addresses and the sums of each stack. The lock is held meanwhile.
    pub fn visit<O: Os>(&self, os: &O, each: &mut dyn FnMut(&[usize], &Sums)) {
        self.table.lock(os).for_each_stack(&mut |table, stack| {
            let mut total = Sums::default();
            // SAFETY: `for_each_stack` gives stacks of the table, which the lock keeps.
            let frames = unsafe {
                table.for_each_tally(stack, &mut |_, sums| total.add(shown(table, sums)));
                Stack::addresses(stack)
            };
            if total != Sums::default() {
                each(frames, &total);
            }
        });
    }

    /// What is live.
    pub fn summary<O: Os>(&self, os: &O) -> Summary {
        add_up(&mut self.table.lock(os), 0)
    }
}

/// Sums up by threads, in their records, what will be printed, and in all what is live.
fn add_up(table: &mut Table, lg: u32) -> Summary {
    let mut live = Weight::default();
    let mut stacks = 0;
    table.for_each_thread(&mut |thread| thread.printed = Printed::default());
    table.for_each_stack(&mut |table, stack| {
        let mut here = Weight::default();
        // SAFETY: `for_each_stack` gives stacks of the table.
        unsafe {
            table.for_each_tally(stack, &mut |thread, sums| {
                let shown = shown(table, sums);
                thread.printed.add(Printed::of(&shown, lg));
                here.add(shown.live);
            });
        }
        live.add(here);
        stacks += u64::from(here.objects > 0);
    });
    Summary { bytes: live.bytes, objects: live.count(), stacks }
}

/// Without `prof_accum` the second pair is zero.
fn shown(table: &Table, sums: &Sums) -> Sums {
    Sums { live: sums.live, all: if table.accumulates { sums.all } else { Weight::default() } }
}

fn write_stack(table: &mut Table, stack: *mut Stack, lg: u32, write: &mut dyn FnMut(&[u8])) {
    let mut total = Sums::default();
    // SAFETY: the caller passes a stack of the table, which the lock keeps.
    unsafe { table.for_each_tally(stack, &mut |_, sums| total.add(shown(table, sums))) };
    if total == Sums::default() {
        return;
    }
    write(b"@");
    // SAFETY: the caller passes a stack of the table, which the lock keeps.
    for &frame in unsafe { Stack::addresses(stack) } {
        let mut line = Line::new();
        line.push(b" ");
        line.push_hex(frame);
        write(line.bytes());
    }
    write(b"\n");
    write_line(None, &Printed::of(&total, lg), write);
    // SAFETY: the caller passes a stack of the table, which the lock keeps.
    unsafe {
        table.for_each_tally(stack, &mut |thread, sums| {
            write_line(Some(thread), &Printed::of(&shown(table, sums), lg), write);
        });
    }
}

/// A line of counts; `None` is all threads.
fn write_line(thread: Option<&Thread>, printed: &Printed, write: &mut dyn FnMut(&[u8])) {
    let mut line = Line::new();
    line.push(b"  t");
    match thread {
        None => line.push(b"*"),
        Some(thread) => line.push_decimal(thread.number),
    }
    let ((count, bytes), (all_count, all_bytes)) = (printed.live, printed.all);
    line.push(b": ");
    line.push_decimal(count);
    line.push(b": ");
    line.push_decimal(bytes);
    line.push(b" [");
    line.push_decimal(all_count);
    line.push(b": ");
    line.push_decimal(all_bytes);
    line.push(b"]");
    write(line.bytes());
    if let Some(thread) = thread
        && !thread.name().is_empty()
    {
        write(b" ");
        write(thread.name());
    }
    write(b"\n");
}
