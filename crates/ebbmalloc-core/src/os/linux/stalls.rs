//! Memory pressure as the kernel counts it (PSI): for how long a task of the process's cgroup, or of the machine, has
//! waited for memory.
//!
//! Only for the purger once it has descriptors of its own ([`Linux::leave_descriptors`]): the file stays open, has no number
//! in the program's table, and closes with the thread.

use core::ffi::CStr;

use super::arch::nr;
use super::call::call;
use super::startup::{O_CLOEXEC, open};
use super::{Linux, environment};

/// Room for a path that the environment names.
const PATH_BYTES: usize = 1024;

/// An open file of the kernel's with the text of a memory pressure.
#[derive(Debug)]
pub struct Stalls {
    descriptor: usize,
}

impl Linux {
    /// The file that `$MEMORY_PRESSURE_WATCH` names, or of the process's cgroup, or of the machine. `None` if there is none,
    /// or the variable names no such text, as `/dev/null` does.
    ///
    /// The calling thread has descriptors of its own.
    pub fn open_stalls(&self) -> Option<Stalls> {
        let mut path = [0; PATH_BYTES];
        if let Some(named) = environment::at_start(self, b"MEMORY_PRESSURE_WATCH") {
            path.get_mut(..named.len())?.copy_from_slice(named);
            return Stalls::open(CStr::from_bytes_until_nul(&path).ok()?);
        }
        self.cgroup_pressure(Stalls::open).or_else(|| Stalls::open(c"/proc/pressure/memory"))
    }
}

impl Stalls {
    fn open(path: &CStr) -> Option<Self> {
        let stalls = Self { descriptor: open(path, O_CLOEXEC, 0).ok()? };
        stalls.total_us().map(|_| stalls)
    }

    /// Microseconds in which at least one task has waited, since the start.
    pub fn total_us(&self) -> Option<u64> {
        let mut text = [0u8; 256];
        let arguments = [self.descriptor, text.as_mut_ptr() as usize, text.len(), 0];
        // SAFETY: `text` is writable for as many bytes as we say.
        let read = unsafe { call(nr::PREAD64, arguments) }.ok()?;
        total_us(text.get(..read)?)
    }
}

/// The total of the line `some avg10=0.00 avg60=0.00 avg300=0.00 total=12345`.
fn total_us(text: &[u8]) -> Option<u64> {
    let line = text.strip_prefix(b"some ")?.split(|&byte| byte == b'\n').next()?;
    let number = line.split(|&byte| byte == b' ').find_map(|word| word.strip_prefix(b"total="))?;
    core::str::from_utf8(number).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_lines_total_counts() {
        let text = b"some avg10=5.91 avg60=3.14 avg300=1.00 total=28492706\nfull avg10=0.00 total=7\n";
        assert_eq!(total_us(text), Some(28_492_706));
        for odd in [&b""[..], b"full total=7\n", b"some avg10=0.00\nfull total=7\n", b"some total=x"] {
            assert_eq!(total_us(odd), None);
        }
    }
}
