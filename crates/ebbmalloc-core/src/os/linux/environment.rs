//! The environment, as libc has it or, before libc has set it up, as the kernel gave it.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicUsize, Ordering};

use super::{Linux, Os};

/// As much of the kernel's copy as is looked at: settings beyond it are not found.
const COPY_BYTES: usize = 64 * 1024;

/// The kernel's copy of the environment, read once.
struct Copy {
    /// [`Copy::UNREAD`], [`Copy::READING`], or the number of bytes read plus [`Copy::READ`]. The
    /// release store that ends the reading pairs with the acquire loads of those who look.
    state: AtomicUsize,
    bytes: UnsafeCell<[u8; COPY_BYTES]>,
}

// SAFETY: `bytes` is written by the one thread that moves `state` to READING, and read after READ.
unsafe impl Sync for Copy {}

static COPY: Copy = Copy { state: AtomicUsize::new(Copy::UNREAD), bytes: UnsafeCell::new([0; COPY_BYTES]) };

impl Linux {
    /// The value of the variable `name`, without its final NUL. `environ` is libc's variable of
    /// that name; null, or still holding null, before libc is there. None in a privileged program.
    ///
    /// # Safety
    /// `environ` is null or points to libc's variable; the program does not change the
    /// environment during the call, nor later the variable whose value is used.
    pub unsafe fn environment(&self, environ: *const *const *const c_char, name: &[u8]) -> Option<&'static [u8]> {
        if self.is_privileged() {
            return None;
        }
        // SAFETY: `environ` is null or leads to libc's list (fn contract).
        let list = unsafe { environ.as_ref() }.copied().filter(|list| !list.is_null());
        match list {
            // SAFETY: libc's list ends with a null pointer and consists of C strings.
            Some(list) => unsafe { find_in_list(list, name) },
            None => value_in(self.kernel_copy(), name),
        }
    }

    fn kernel_copy(&self) -> &'static [u8] {
        let (unread, reading) = (Copy::UNREAD, Copy::READING);
        let state = &COPY.state;
        if state.compare_exchange(unread, reading, Ordering::Acquire, Ordering::Acquire).is_ok() {
            // SAFETY: the exchange made this thread the only writer, and no thread reads before READ.
            let into = unsafe { &mut *COPY.bytes.get() };
            let read = self.read_file(c"/proc/self/environ", into).unwrap_or(0);
            state.store(Copy::READ + read, Ordering::Release);
        }
        loop {
            let now = state.load(Ordering::Acquire);
            if now >= Copy::READ {
                // SAFETY: no thread writes any more.
                let bytes: &'static [u8; COPY_BYTES] = unsafe { &*COPY.bytes.get() };
                return &bytes[..(now - Copy::READ).min(COPY_BYTES)];
            }
            self.yield_now();
        }
    }
}

/// The value that the variable `name` had when the program started. None in a privileged program.
pub(super) fn at_start(os: &Linux, name: &[u8]) -> Option<&'static [u8]> {
    if os.is_privileged() { None } else { value_in(os.kernel_copy(), name) }
}

impl Copy {
    const UNREAD: usize = 0;
    const READING: usize = 1;
    const READ: usize = 2;
}

/// # Safety
/// `list` is an array of C strings that ends with a null pointer; all stay as they are.
unsafe fn find_in_list(list: *const *const c_char, name: &[u8]) -> Option<&'static [u8]> {
    let mut at = list;
    loop {
        // SAFETY: `at` is within the list, whose end is not passed.
        let entry = unsafe { at.read() };
        if entry.is_null() {
            return None;
        }
        // SAFETY: the list consists of C strings.
        if let Some(value) = value_of(unsafe { CStr::from_ptr(entry) }.to_bytes(), name) {
            return Some(value);
        }
        // SAFETY: the end has not been reached.
        at = unsafe { at.add(1) };
    }
}

/// Finds a variable among entries that each end with a NUL; an entry cut off at the end is not one.
fn value_in<'a>(entries: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let whole = entries.iter().rposition(|&byte| byte == 0)?;
    let mut each = entries[..whole].split(|&byte| byte == 0);
    each.find_map(|entry| value_of(entry, name))
}

fn value_of<'a>(entry: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    entry.strip_prefix(name)?.strip_prefix(b"=")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_copy_and_libcs_list_agree() {
        unsafe extern "C" {
            static environ: *const *const c_char;
        }
        let os = Linux::new();
        for (name, value) in std::env::vars() {
            // SAFETY: no test changes the environment.
            let listed = unsafe { os.environment(&raw const environ, name.as_bytes()) };
            assert_eq!(listed, Some(value.as_bytes()), "{name}");
            // SAFETY: no test changes the environment.
            let copied = unsafe { os.environment(core::ptr::null(), name.as_bytes()) };
            assert_eq!(copied, Some(value.as_bytes()), "{name}");
        }
        // SAFETY: no test changes the environment.
        let unset = unsafe { os.environment(core::ptr::null(), b"EBB_NOT_SET") };
        assert_eq!(unset, None);
    }

    #[test]
    fn names_match_as_a_whole_and_cut_entries_do_not_count() {
        let entries = b"PATHS=1\0PATH=a=b\0EMPTY=\0NOVALUE\0CUT=of";
        assert_eq!(value_in(entries, b"PATH"), Some(b"a=b".as_slice()));
        assert_eq!(value_in(entries, b"EMPTY"), Some(b"".as_slice()));
        assert_eq!(value_in(entries, b"NOVALUE"), None);
        assert_eq!(value_in(entries, b"CUT"), None);
        assert_eq!(value_in(b"", b"A"), None);
    }
}
