//! The tracers at the probes of USDT, whose code and notes are `arch`'s.

use core::sync::atomic::{AtomicU16, Ordering};

/// Tracers that are attached; each counts itself here, from outside. Relaxed: a figure of its own. It lies in the file, not in
/// zeroed memory, since the kernel finds it by its offset there.
#[used]
#[unsafe(link_section = ".probes")]
pub(super) static TRACERS: AtomicU16 = AtomicU16::new(0);

/// Whether a tracer is attached to a probe.
#[inline]
pub(super) fn is_traced() -> bool {
    TRACERS.load(Ordering::Relaxed) != 0
}
