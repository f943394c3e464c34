//! What the allocator needs from the C library: functions that a face supplies.

/// What the allocator needs from the C library, supplied by the face that links it: weak
/// references in the preload object, strong ones in the archive and the Rust crate.
///
/// A face defines `#[unsafe(no_mangle)] extern "Rust" fn __ebbmalloc_hooks() -> &'static Hooks`.
/// It is called before libc may be relocated, so it must not call into libc itself.
pub struct Hooks {
    /// Registers the three fork handlers (`__register_atfork` or `pthread_atfork`); false if the
    /// libc has neither, or they are not there yet. Called outside any lock of the allocator.
    pub register_fork: unsafe fn(
        prepare: unsafe extern "C" fn(),
        parent: unsafe extern "C" fn(),
        child: unsafe extern "C" fn(),
    ) -> bool,
    /// Asks libc to call `destructor(value)` when the calling thread ends (`pthread_key_create`
    /// once, `pthread_setspecific` each time). May allocate. False where threads cannot be had.
    pub on_thread_exit: unsafe fn(destructor: unsafe extern "C" fn(*mut u8), value: *mut u8) -> bool,
    /// The calling thread's value of a key of somebody else (`pthread_getspecific`); null where there is none.
    pub thread_value: unsafe fn(key: u32) -> *mut u8,
    /// The value of an environment variable, as bytes without the final NUL; from `environ` once
    /// libc has set it, else from /proc/self/environ (read into static memory of the face). None
    /// in a set-uid program. `name` comes without `=`.
    pub environment: unsafe fn(name: &[u8]) -> Option<&'static [u8]>,
    /// What the program's own symbol `malloc_conf` (0) or `malloc_conf_2_conf_harder` (1) points to,
    /// if it has that.
    pub program_settings: fn(which: usize) -> Option<&'static [u8]>,
    /// Hands a text to the program's own `malloc_message`; false if it has none.
    pub message: fn(text: &core::ffi::CStr) -> bool,
    /// Prints the statistics, by the options of `malloc_stats_print`.
    pub print_statistics: fn(options: &core::ffi::CStr),
    /// In the child of a fork, which has one thread: what the face keeps behind a lock is as if unlocked.
    pub in_child: unsafe fn(),
    /// The allocator is a shared object of its own: its frames are no part of the program's stacks.
    pub is_own_object: bool,
    /// Address of the calling thread's `errno`; null where there is none. For the C face only.
    pub errno_location: unsafe fn() -> *mut core::ffi::c_int,
    /// Writes `text` to an open `FILE *` of the C library; false if it does not take all of it.
    /// For the C face only.
    pub write_stream: unsafe fn(stream: *mut core::ffi::c_void, text: &[u8]) -> bool,
    /// Address of `name` in the shared library `library`, if the program has that loaded; else, and
    /// in static programs, null. For the C face only.
    pub loaded_symbol: unsafe fn(library: &core::ffi::CStr, name: &core::ffi::CStr) -> *const (),
}

impl Hooks {
    /// Of a face without a C library: nothing can be asked for, everything is unset.
    pub const NONE: Self = Self {
        register_fork: |_, _, _| false,
        on_thread_exit: |_, _| false,
        thread_value: |_| core::ptr::null_mut(),
        environment: |_| None,
        program_settings: |_| None,
        message: |_| false,
        print_statistics: |_| (),
        in_child: || (),
        is_own_object: true,
        errno_location: || core::ptr::null_mut(),
        write_stream: |_, _| false,
        loaded_symbol: |_, _| core::ptr::null(),
    };
}

unsafe extern "Rust" {
    safe fn __ebbmalloc_hooks() -> &'static Hooks;
}

/// What the face supplies.
pub(super) fn hooks() -> &'static Hooks {
    __ebbmalloc_hooks()
}

#[cfg(test)]
mod test_hooks {
    use super::Hooks;

    /// Unit tests of this crate use no instance; the symbol is there for the linker.
    #[unsafe(no_mangle)]
    extern "Rust" fn __ebbmalloc_hooks() -> &'static Hooks {
        const { &Hooks { is_own_object: false, ..Hooks::NONE } }
    }
}
