//! CPython's small objects from this allocator, as `PYTHONMALLOC=malloc` would have it, without the variable.
//!
//! pymalloc takes arenas of 256 KiB or 1 MiB from the kernel and returns whole ones only, so that one object keeps an
//! arena. Here the functions of CPython's domain RAW, which call `malloc`, are set for its domains MEM and OBJ as well
//! (docs/decisions/0038-cpython.md). That is possible until its first object is made: at the start of a program that
//! has CPython or is linked with it, and when `dlopen` has loaded it. What the user chooses (`PYTHONMALLOC`, `-X dev`,
//! `PyMem_SetAllocator`) takes effect later, and wins.

use core::ffi::{CStr, c_int, c_void};
use core::mem::{MaybeUninit, transmute};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, Ordering};

use ebbmalloc_capi::{calloc, free, malloc, realloc, weak_symbol};
use ebbmalloc_core::runtime::control;

use crate::loaded;

/// `PyMemAllocatorEx`.
#[repr(C)]
struct Functions {
    context: *mut c_void,
    malloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    calloc: unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void,
    realloc: unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void, *mut c_void),
}

/// `PyMemAllocatorDomain`.
const RAW: c_int = 0;
const MEM: c_int = 1;
const OBJ: c_int = 2;

type GetAllocator = unsafe extern "C" fn(c_int, *mut Functions);
type SetAllocator = unsafe extern "C" fn(c_int, *const Functions);
type SetupDebugHooks = unsafe extern "C" fn();
type IsInitialized = unsafe extern "C" fn() -> c_int;

/// The addresses of what is called, in one CPython.
struct Interface {
    get_allocator: *const (),
    set_allocator: *const (),
    setup_debug_hooks: *const (),
    is_initialized: *const (),
    /// Since 3.8, the oldest version that this was tried with.
    pre_initialize: *const (),
    /// In free-threaded builds only.
    merge_zero_local_refcount: *const (),
}

/// The program has CPython or is linked with it: no second one has to be looked for. Not set for one that was loaded
/// later, which may be unloaded and come again (Apache does so with its modules).
/// Relaxed: written before `main`.
static IS_LINKED: AtomicBool = AtomicBool::new(false);

/// Looks for CPython in the program and the libraries that it was linked with, before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = {
    extern "C" fn at_start() {
        let interface = Interface {
            get_allocator: weak_symbol!("PyMem_GetAllocator"),
            set_allocator: weak_symbol!("PyMem_SetAllocator"),
            setup_debug_hooks: weak_symbol!("PyMem_SetupDebugHooks"),
            is_initialized: weak_symbol!("Py_IsInitialized"),
            pre_initialize: weak_symbol!("Py_PreInitialize"),
            merge_zero_local_refcount: weak_symbol!("_Py_MergeZeroLocalRefcount"),
        };
        IS_LINKED.store(!interface.set_allocator.is_null(), Ordering::Relaxed);
        interface.serve();
    }
    at_start
};

/// Whether a library that is loaded now may be CPython, or need it.
pub fn may_come() -> bool {
    !IS_LINKED.load(Ordering::Relaxed)
}

/// Looks for CPython in a library that was opened, and in the libraries that it needs. `symbol` finds a name in them.
/// There were `earlier` objects before it was opened: a CPython among those may have objects of its own, even if no
/// interpreter runs now, and is left alone.
pub fn look_in(symbol: impl Fn(&CStr) -> *const (), earlier: usize) {
    let set_allocator = symbol(c"PyMem_SetAllocator");
    if set_allocator.is_null() || !loaded::is_behind(earlier, set_allocator) {
        return;
    }
    Interface {
        set_allocator,
        get_allocator: symbol(c"PyMem_GetAllocator"),
        setup_debug_hooks: symbol(c"PyMem_SetupDebugHooks"),
        is_initialized: symbol(c"Py_IsInitialized"),
        pre_initialize: symbol(c"Py_PreInitialize"),
        merge_zero_local_refcount: symbol(c"_Py_MergeZeroLocalRefcount"),
    }
    .serve();
}

impl Interface {
    /// Has its objects allocated by `malloc`, if all is there, it has made no object yet, and no one has chosen an
    /// allocator for them.
    fn serve(&self) {
        // SAFETY: CPython's functions of these names have these types, in all versions since 3.5.
        let (get, set, set_up_debug_hooks, is_initialized) = unsafe {
            (
                transmute::<*const (), Option<GetAllocator>>(self.get_allocator),
                transmute::<*const (), Option<SetAllocator>>(self.set_allocator),
                transmute::<*const (), Option<SetupDebugHooks>>(self.setup_debug_hooks),
                transmute::<*const (), Option<IsInitialized>>(self.is_initialized),
            )
        };
        let (Some(get), Some(set), Some(set_up_debug_hooks), Some(is_initialized)) =
            (get, set, set_up_debug_hooks, is_initialized)
        else {
            return;
        };
        // The collector of a free-threaded build finds its objects in a mimalloc inside CPython: they have no other place.
        if self.pre_initialize.is_null() || !self.merge_zero_local_refcount.is_null() {
            return;
        }
        // SAFETY: may be called at any time.
        if unsafe { is_initialized() } != 0 || !control::serves_cpython() {
            return;
        }
        let (mut raw, mut object) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: before the interpreter's start all three may be called without its lock. The first fills in what the
        // second reads, and neither keeps the address.
        unsafe {
            get(RAW, raw.as_mut_ptr());
            get(OBJ, object.as_mut_ptr());
            let chosen = object.assume_init_ref().malloc as *const ();
            if !loaded::are_in_one_object(chosen, self.set_allocator) {
                return;
            }
            // Those of a debug build are checks of the domain RAW around `malloc`: the other domains have their own.
            let is_debug_build = !raw.assume_init_ref().context.is_null();
            let functions = if is_debug_build { &UNCHECKED } else { raw.assume_init_ref() };
            set(MEM, functions);
            set(OBJ, functions);
            if is_debug_build {
                set_up_debug_hooks();
            }
        }
        control::note_cpython(is_single_threaded());
    }
}

/// Whether glibc, from 2.32 on, says that there is one thread. False where nothing is known.
fn is_single_threaded() -> bool {
    let word = weak_symbol!("__libc_single_threaded").cast::<u8>();
    // SAFETY: glibc's variable of this name is a byte, which another thread writes only after it was made.
    !word.is_null() && unsafe { word.read_volatile() } != 0
}

/// What a debug build of CPython puts its checks around. As its own, they make a block of one byte for 0 bytes.
const UNCHECKED: Functions = {
    unsafe extern "C" fn allocate(_: *mut c_void, size: usize) -> *mut c_void {
        // SAFETY: any size may be asked for.
        unsafe { malloc(size.max(1)) }
    }
    unsafe extern "C" fn allocate_zeroed(_: *mut c_void, n: usize, size: usize) -> *mut c_void {
        match n == 0 || size == 0 {
            // SAFETY: any number and size may be asked for.
            true => unsafe { calloc(1, 1) },
            // SAFETY: any number and size may be asked for; an overflow gives null.
            false => unsafe { calloc(n, size) },
        }
    }
    unsafe extern "C" fn resize(_: *mut c_void, block: *mut c_void, size: usize) -> *mut c_void {
        // SAFETY: CPython passes null or a block from here.
        unsafe { realloc(block, size.max(1)) }
    }
    unsafe extern "C" fn release(_: *mut c_void, block: *mut c_void) {
        // SAFETY: CPython passes null or a block from here that it no longer uses.
        unsafe { free(block) }
    }
    Functions { context: null_mut(), malloc: allocate, calloc: allocate_zeroed, realloc: resize, free: release }
};
