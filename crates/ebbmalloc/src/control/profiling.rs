//! The heap profile: switched on at the start by `prof:true`, then here. docs/profiling.md has the
//! whole of it.

use std::ffi::CStr;
use std::path::Path;

use super::{Error, Result, tree};

key! {
    /// Whether the process was started with profiling.
    prof: "opt.prof", bool, ReadOnly;
    /// Whether a profile is written at the end.
    prof_final: "opt.prof_final", bool, ReadOnly;
    /// Whether leaks are reported at the end.
    prof_leak: "opt.prof_leak", bool, ReadOnly;
    /// The logarithm of the bytes between two samples, as set at the start.
    lg_prof_sample: "opt.lg_prof_sample", usize, ReadOnly;
    /// The logarithm of the bytes between two profiles that are written by themselves; -1 for never.
    lg_prof_interval: "opt.lg_prof_interval", isize, ReadOnly;
    /// Whether samples are taken now.
    active: "prof.active", bool, ReadWrite;
    /// Whether samples are taken in threads to come.
    thread_active_init: "prof.thread_active_init", bool, ReadWrite;
    /// Whether samples are taken in the calling thread.
    thread_active: "thread.prof.active", bool, ReadWrite;
    /// The logarithm of the bytes between two samples now.
    lg_sample: "prof.lg_sample", usize, ReadOnly;
    /// Whether a profile is written at each new peak.
    gdump: "prof.gdump", bool, ReadWrite;
}

/// Writes a profile to this file, or to one that is named by the prefix, the process and a number.
pub fn dump(file: Option<&Path>) -> Result<()> {
    let place = tree::look_up(b"prof.dump")?;
    let Some(file) = file else {
        return tree::act(&place);
    };
    let mut bytes = file.as_os_str().as_encoded_bytes().to_vec();
    bytes.push(0);
    let name = CStr::from_bytes_with_nul(&bytes).map_err(|_| Error::UNKNOWN)?;
    // SAFETY: the name takes texts, and is done with this one when the call ends.
    unsafe { tree::write(&place, name.as_ptr()) }
}

/// Forgets all samples; from now on one in 2 to this many bytes, or as before.
pub fn reset(lg_sample: Option<usize>) -> Result<()> {
    let place = tree::look_up(b"prof.reset")?;
    match lg_sample {
        // SAFETY: the name takes values of this type.
        Some(lg_sample) => unsafe { tree::write(&place, lg_sample) },
        None => tree::act(&place),
    }
}
