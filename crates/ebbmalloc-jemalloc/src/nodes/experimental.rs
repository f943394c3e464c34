//! `experimental.*`: functions that take part in the heap profile, questions of programs that defragment themselves,
//! and many blocks by one call.

use crate::blocks::{Choice, allocate_with};
use crate::call::Call;
use crate::errno::{Errno, Result};
use crate::node::{Access, Node};
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use ebbmalloc_core::runtime::face::HEAP;
use ebbmalloc_core::runtime::profile_control as profile;

pub static NODES: &[Node] = &[
    Node::group("hooks", HOOKS),
    Node::group("utilization", UTILIZATION),
    Node::leaf::<usize>("batch_alloc", Access::ReadWrite, batch_alloc),
];

static HOOKS: &[Node] = &[
    Node::leaf::<*mut c_void>("prof_backtrace", Access::ReadWrite, |call| {
        part_in_profile(call, profile::stack_walker, |walk| {
            if walk.is_null() {
                return Err(Errno::EINVAL);
            }
            // SAFETY: who sets a function says that it can be called.
            unsafe { profile::set_stack_walker(walk) };
            Ok(())
        })
    }),
    Node::leaf::<*mut c_void>("prof_dump", Access::ReadWrite, |call| {
        part_in_profile(call, profile::dump_listener, |listener| {
            // SAFETY: who sets a function says that it can be called.
            unsafe { profile::set_dump_listener(listener) };
            Ok(())
        })
    }),
];

/// A function of the program's that takes part in the heap profile.
fn part_in_profile(call: &Call<'_>, get: fn() -> *mut (), set: impl FnOnce(*mut ()) -> Result<()>) -> Result<()> {
    if !call.wants_old() && !call.has_new() {
        return Err(Errno::EINVAL);
    }
    let is_on = profile::is_on();
    call.give(if is_on { get() } else { null_mut() })?;
    if call.has_new() && !is_on {
        return Err(Errno::ENOENT);
    }
    call.take::<*mut ()>()?.map_or(Ok(()), set)
}

/// What is asked about is written, what is answered is read.
static UTILIZATION: &[Node] = &[
    Node::leaf::<*mut c_void>("query", Access::ReadWrite, query),
    Node::leaf::<*mut c_void>("batch_query", Access::ReadWrite, batch_query),
];

/// The answer to `query`, as jemalloc lays it out.
#[derive(Clone, Copy)]
#[repr(C)]
struct Verbose {
    /// The slab that requests are served from: here that is any, the lowest address first.
    current_slab: *mut c_void,
    free: usize,
    slots: usize,
    bytes: usize,
    bin_free: usize,
    bin_slots: usize,
}

/// One answer to `batch_query`, as jemalloc lays it out.
#[derive(Clone, Copy)]
#[repr(C)]
struct Brief {
    free: usize,
    slots: usize,
    bytes: usize,
}

fn query(call: &Call<'_>) -> Result<()> {
    call.insists_on_old::<Verbose>()?;
    let block = call.insists_on_new::<usize>()?;
    let found = HEAP.utilization(block);
    call.give(Verbose {
        current_slab: null_mut(),
        free: found.free,
        slots: found.slots,
        bytes: found.bytes,
        bin_free: found.bin_free,
        bin_slots: found.bin_slots,
    })
}

/// An array of blocks is written, as many answers are read.
fn batch_query(call: &Call<'_>) -> Result<()> {
    let (old, old_len, new, new_len) = call.raw();
    let count = new_len / size_of::<usize>();
    // SAFETY: C's arguments: `old_len` is null or valid.
    let fits = unsafe { old_len.as_ref() } == Some(&(count * size_of::<Brief>()));
    if old.is_null() || new.is_null() || count == 0 || !fits || new_len % size_of::<usize>() != 0 {
        return Err(Errno::EINVAL);
    }
    for index in 0..count {
        // SAFETY: `new` has that many addresses, and `old` room for that many answers.
        unsafe {
            let block = new.cast::<usize>().add(index).read_unaligned();
            let found = HEAP.utilization(block);
            old.cast::<Brief>().add(index).write_unaligned(Brief {
                free: found.free,
                slots: found.slots,
                bytes: found.bytes,
            });
        }
    }
    Ok(())
}

/// What `batch_alloc` is written, as jemalloc lays it out.
#[derive(Clone, Copy)]
#[repr(C)]
struct Batch {
    blocks: *mut *mut c_void,
    count: usize,
    size: usize,
    flags: c_int,
}

/// As many blocks of one size as there is memory for; how many is read.
fn batch_alloc(call: &Call<'_>) -> Result<()> {
    call.insists_on_old::<usize>()?;
    let batch = call.insists_on_new::<Batch>()?;
    let choice = Choice::from_flags(batch.flags);
    let mut made = 0;
    while made < batch.count {
        let block = allocate_with(batch.size, &choice);
        if block.is_null() {
            break;
        }
        // SAFETY: the caller's array has `count` places.
        unsafe { batch.blocks.add(made).write(block.cast()) };
        made += 1;
    }
    call.give(made)
}
