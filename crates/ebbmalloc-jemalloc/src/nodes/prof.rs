//! `prof.*` and `thread.prof.*`: heap profiling. Without `prof:true` most of it is not there (ENOENT).

use crate::call::Call;
use crate::errno::{Errno, Result};
use crate::node::{Access, Node, Text};
use core::ffi::CStr;
use ebbmalloc_core::base::exact::u32_of;
use ebbmalloc_core::runtime::profile_control as profile;

/// `prof.*`.
pub static NODES: &[Node] = &[
    Node::leaf::<bool>("thread_active_init", Access::ReadWrite, |call| {
        switch(call, profile::thread_active_init, profile::set_thread_active_init)
    }),
    Node::leaf::<bool>("active", Access::ReadWrite, |call| {
        let new = call.take::<bool>()?;
        let was = profile::is_active();
        match new {
            Some(true) if !profile::is_on() => return Err(Errno::ENOENT),
            Some(active) if profile::is_on() => profile::set_active(active),
            _ => {}
        }
        call.give(was)
    }),
    Node::leaf::<Text>("dump", Access::Write, |call| {
        let path = text(call)?;
        if profile::dump(path) { Ok(()) } else { Err(Errno::EFAULT) }
    }),
    Node::leaf::<bool>("gdump", Access::ReadWrite, |call| {
        switch(call, profile::dumps_at_growth, profile::set_dumps_at_growth)
    }),
    Node::leaf::<Text>("prefix", Access::Write, |call| match text(call)? {
        Some(prefix) if profile::set_prefix(prefix.to_bytes()) => Ok(()),
        _ => Err(Errno::EFAULT),
    }),
    Node::leaf::<usize>("reset", Access::Write, |call| {
        is_on()?;
        call.write_only()?;
        let lg = call.take::<usize>()?;
        profile::reset(lg.map(|lg| u32_of(lg.min(63))));
        Ok(())
    }),
    read!("interval", u64, |_| { Ok(is_on().map_or(0, |()| profile::interval())) }),
    read!("lg_sample", usize, |_| { Ok(is_on().map_or(0, |()| profile::lg_sample() as usize)) }),
];

/// `thread.prof.*`.
pub static THREAD: &[Node] = &[
    Node::leaf::<Text>("name", Access::ReadWrite, |call| {
        is_on()?;
        call.read_or_write()?;
        match call.take::<Text>()? {
            None => call.give::<Text>(name()),
            Some(name) => set_name(name),
        }
    }),
    Node::leaf::<bool>("active", Access::ReadWrite, |call| {
        let was = profile::is_thread_active();
        if call.has_new() {
            is_on()?;
        }
        if let Some(active) = call.take::<bool>()?
            && !profile::set_thread_active(active)
        {
            return Err(Errno::EAGAIN);
        }
        call.give(was)
    }),
];

fn is_on() -> Result<()> {
    if profile::is_on() { Ok(()) } else { Err(Errno::ENOENT) }
}

/// A truth value that reads as false, and cannot be written, without a profile.
fn switch(call: &Call<'_>, get: fn() -> bool, set: fn(bool)) -> Result<()> {
    if call.has_new() {
        is_on()?;
    }
    let was = get();
    if let Some(new) = call.take::<bool>()? {
        set(new);
    }
    call.give(was)
}

/// The C string that the caller writes; `None` if it writes none, or null.
fn text<'a>(call: &Call<'a>) -> Result<Option<&'a CStr>> {
    is_on()?;
    call.write_only()?;
    let text = call.take::<Text>()?.filter(|text| !text.is_null());
    // SAFETY: what is written to a node of this type is a C string, for the time of the call.
    Ok(text.map(|text| unsafe { CStr::from_ptr(text) }))
}

/// The calling thread's name; an empty one if it has none.
fn name() -> Text {
    let start = profile::start_of_thread_name();
    if start.is_null() { c"".as_ptr() } else { start.cast() }
}

fn set_name(name: Text) -> Result<()> {
    if name.is_null() {
        return Err(Errno::EFAULT);
    }
    // SAFETY: what is written to a node of this type is a C string, for the time of the call.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let is_shown = |byte: &u8| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\t');
    if !name.iter().all(is_shown) {
        return Err(Errno::EFAULT);
    }
    if profile::set_thread_name(name) { Ok(()) } else { Err(Errno::EAGAIN) }
}
