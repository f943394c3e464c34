//! `arena.<i>.*`: one arena, or all of them.

use crate::arenas;
use crate::errno::{Errno, Result};
use crate::figures::{self, Which};
use crate::node::{Access, Node, Text};
use core::ffi::CStr;
use ebbmalloc_core::base::exact::u8_of;
use ebbmalloc_core::cache::explicit::NAME_BYTES;
use ebbmalloc_core::os::hooks::ExtentHooks;
use ebbmalloc_core::runtime::{self, decay};

/// The index that stands for all arenas.
pub const ALL: usize = 4096;
/// The index that stands for the destroyed arenas.
pub const DESTROYED: usize = 4097;
/// What jemalloc knows of the use of `sbrk`. Here it is never used, whatever is written.
const DSS: [&CStr; 3] = [c"disabled", c"primary", c"secondary"];

/// Whether there is an arena of this index; the one after the last is an old name for all.
pub fn holds(_: &[usize], index: usize) -> bool {
    index == ALL || index == DESTROYED || index <= arenas::count()
}

/// What an index that [`holds`] stands for.
pub fn which(index: usize) -> Which {
    match index {
        DESTROYED => Which::Destroyed,
        ALL => Which::All,
        index if index == arenas::count() => Which::All,
        index => Which::One(index),
    }
}

/// How long memory of an arena may stay idle, in milliseconds; -1 for ever.
pub fn decay_of(index: usize) -> Result<isize> {
    match which(index) {
        Which::One(index) => decay::of_arena(index).ok_or(Errno::EFAULT),
        _ => Ok(decay::of_future()),
    }
}

/// The same between lazily and really returned.
pub fn muzzy_decay_of(index: usize) -> Result<isize> {
    match which(index) {
        Which::One(index) if !arenas::is_there(index) => Err(Errno::EFAULT),
        _ => Ok(arenas::muzzy()),
    }
}

pub static NODES: &[Node] = &[
    read!("initialized", bool, |mib| Ok(match which(mib[1]) {
        Which::One(index) => arenas::is_there(index),
        Which::All => true,
        Which::Destroyed => figures::any_ended(),
    })),
    act!("decay", |mib| each(mib, arenas::decay)),
    act!("purge", |mib| match which(mib[1]) {
        Which::All => {
            runtime::trim();
            Ok(())
        }
        _ => each(mib, arenas::purge),
    }),
    // SAFETY: a program that resets an arena says that no block of it is in use any more.
    act!("reset", |mib| explicit(mib, |index| unsafe { arenas::reset(index) })),
    // SAFETY: a program that destroys an arena says that no block of it is in use any more.
    act!("destroy", |mib| explicit(mib, |index| unsafe { arenas::destroy(index) })),
    Node::leaf::<Text>("dss", Access::ReadWrite, |call| {
        if let Some(new) = call.take::<Text>()?.filter(|new| !new.is_null()) {
            // SAFETY: a caller who writes a text writes the address of a C string.
            let new = unsafe { CStr::from_ptr(new) };
            if !DSS.contains(&new) {
                return Err(Errno::EINVAL);
            }
        }
        match which(call.mib[1]) {
            Which::One(index) if !arenas::is_there(index) => Err(Errno::EFAULT),
            Which::Destroyed => Err(Errno::EFAULT),
            _ => call.give::<Text>(crate::node::text(DSS[0])),
        }
    }),
    read_write!(
        "dirty_decay_ms",
        isize,
        |mib| match which(mib[1]) {
            Which::One(index) => decay::of_arena(index).ok_or(Errno::EFAULT),
            _ => Err(Errno::EFAULT),
        },
        |mib, new| if arenas::set_decay(mib[1], new) { Ok(()) } else { Err(Errno::EFAULT) }
    ),
    read_write!("muzzy_decay_ms", isize, |mib| one(mib).map(|_| arenas::muzzy()), |mib, new| {
        one(mib)?;
        if arenas::set_muzzy(new) { Ok(()) } else { Err(Errno::EFAULT) }
    }),
    Node::leaf::<*mut ExtentHooks>("extent_hooks", Access::ReadWrite, |call| {
        let index = call.mib[1];
        let old = arenas::hooks(index).ok_or(Errno::EFAULT)?;
        let new = call.take::<*mut ExtentHooks>()?;
        if let Some(new) = new.filter(|&new| new != old) {
            // SAFETY: who sets hooks keeps them for as long as the arena lives.
            if !unsafe { arenas::set_hooks(index, new) } {
                return Err(Errno::EFAULT);
            }
        }
        call.give(old)
    }),
    read_write!("retain_grow_limit", usize, |mib| arenas::grow_limit(mib[1]).ok_or(Errno::EFAULT), |mib, new| {
        if arenas::set_grow_limit(mib[1], new) { Ok(()) } else { Err(Errno::EFAULT) }
    }),
    Node::leaf::<Text>("name", Access::ReadWrite, name),
];

/// Reading copies the name to where the caller's pointer points.
fn name(call: &crate::call::Call<'_>) -> Result<()> {
    let Which::One(index) = which(call.mib[1]) else {
        return Err(Errno::EINVAL);
    };
    if !arenas::is_there(index) {
        return Err(Errno::EFAULT);
    }
    if call.wants_old() {
        let (old, old_len, _, _) = call.raw();
        // SAFETY: valid, as `wants_old` says.
        if unsafe { *old_len } != size_of::<*mut u8>() {
            return Err(Errno::EINVAL);
        }
        let mut text = arenas::name(index).ok_or(Errno::EFAULT)?.get();
        if text[0] == 0 {
            text = first_name(index);
        }
        // SAFETY: the caller's pointer leads to room for a name, as jemalloc wants it too.
        unsafe {
            let place = *old.cast::<*mut u8>();
            if place.is_null() {
                return Err(Errno::EINVAL);
            }
            let length = text.iter().position(|&byte| byte == 0).unwrap_or(0);
            place.copy_from_nonoverlapping(text.as_ptr(), length + 1);
        }
    }
    if let Some(new) = call.take::<Text>()? {
        if new.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: a caller who writes a text writes the address of a C string.
        let new = unsafe { CStr::from_ptr(new) };
        arenas::name(index).ok_or(Errno::EFAULT)?.set(new.to_bytes());
    }
    Ok(())
}

/// The name of an arena that was given none.
fn first_name(index: usize) -> [u8; NAME_BYTES] {
    let kind: &[u8] = if index < arenas::automatic() { b"auto_" } else { b"manual_" };
    let mut text = [0; NAME_BYTES];
    text[..kind.len()].copy_from_slice(kind);
    let mut digits = 1;
    while index / 10_usize.pow(digits) > 0 {
        digits += 1;
    }
    for place in 0..digits {
        let digit = index / 10_usize.pow(digits - 1 - place) % 10;
        text[kind.len() + place as usize] = b'0' + u8_of(digit);
    }
    text
}

/// Calls `work` for the arena of a call, or for all.
fn each(mib: &[usize], work: fn(usize) -> bool) -> Result<()> {
    match which(crate::node::unsigned(mib, 1)? as usize) {
        Which::One(index) => {
            // One that has ended has nothing to return.
            work(index);
            Ok(())
        }
        Which::All => {
            for index in 0..arenas::count() {
                work(index);
            }
            Ok(())
        }
        Which::Destroyed => Err(Errno::EFAULT),
    }
}

/// Calls `work` for an explicit arena.
fn explicit(mib: &[usize], work: fn(usize) -> bool) -> Result<()> {
    match which(crate::node::unsigned(mib, 1)? as usize) {
        Which::One(index) if work(index) => Ok(()),
        _ => Err(Errno::EFAULT),
    }
}

/// The index of one arena that is there.
fn one(mib: &[usize]) -> Result<usize> {
    match which(mib[1]) {
        Which::One(index) if arenas::is_there(index) => Ok(index),
        _ => Err(Errno::EFAULT),
    }
}
