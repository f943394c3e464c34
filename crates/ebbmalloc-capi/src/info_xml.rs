//! The XML of `malloc_info`.

use core::ffi::c_void;
use core::fmt::{self, Write};

use ebb_stats::Snapshot;

use crate::errno::hooks;

/// Text on its way into a `FILE`.
struct Stream(*mut c_void);

impl Write for Stream {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // SAFETY: the stream is open, as [`write`] demands.
        let written = unsafe { (hooks().write_stream)(self.0, text.as_bytes()) };
        if written { Ok(()) } else { Err(fmt::Error) }
    }
}

/// Writes the document; whether the stream took all of it.
///
/// # Safety
/// `stream` is an open `FILE *` of the C library.
pub unsafe fn write(stats: &Snapshot, stream: *mut c_void) -> bool {
    document(stats, &mut Stream(stream)).is_ok()
}

/// One heap, whose free bytes are those of caches ("fast") and of resident pages ("rest"), as glibc
/// tells its fast bins from the others; then the same as the total of all heaps.
fn document(stats: &Snapshot, out: &mut impl Write) -> fmt::Result {
    out.write_str("<malloc version=\"1\">\n<heap nr=\"0\">\n<sizes>\n</sizes>\n")?;
    figures(stats, out)?;
    out.write_str("</heap>\n")?;
    figures(stats, out)?;
    out.write_str("</malloc>\n")
}

fn figures(stats: &Snapshot, out: &mut impl Write) -> fmt::Result {
    let system_bytes = stats.live_bytes + stats.cached_bytes + stats.idle_bytes;
    let lines: [(&str, &str, u64); 7] = [
        ("total", "fast", stats.cached_bytes),
        ("total", "rest", stats.idle_bytes),
        ("total", "live", stats.live_bytes),
        ("system", "current", system_bytes),
        ("system", "resident", stats.resident_bytes),
        ("aspace", "total", stats.mapped_bytes),
        ("aspace", "mprotect", stats.mapped_bytes),
    ];
    for (element, kind, bytes) in lines {
        writeln!(out, "<{element} type=\"{kind}\" size=\"{bytes}\"/>")?;
    }
    Ok(())
}
