//! Functions of a libpthread that was loaded late. Before glibc 2.34 it is a library of its own: a program without threads
//! may get it by `dlopen`, when the loader has bound our weak references already, to nothing.
//!
//! `dlsym` takes the loader's lock. Another thread has that lock while it runs constructors, and one of these may wait
//! for the thread that asks here. So the library is searched for in the list for debuggers, under the lock of
//! `dl_iterate_phdr`, which is held only while the list is changed or read; and the function in the library's own tables.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::{null, null_mut};
use core::slice;
use core::sync::atomic::{AtomicPtr, Ordering};

use ebbmalloc_capi::weak_symbol;

use crate::weak_function;

/// `struct link_map`, as far as debuggers know it.
#[repr(C)]
struct Map {
    base: usize,
    name: *const c_char,
    dynamic: *const Entry,
    next: *const Map,
}

/// The beginning of `struct r_debug`.
#[repr(C)]
struct Debug {
    version: c_int,
    map: *const Map,
}

/// `Elf64_Dyn`. The loader has added the base to addresses.
#[repr(C)]
struct Entry {
    tag: usize,
    value: usize,
}

/// `Elf64_Sym`.
#[repr(C)]
struct Symbol {
    name: u32,
    kind: u16,
    section: u16,
    value: usize,
    size: usize,
}

const DT_NULL: usize = 0;
/// Two words: buckets, and symbols. glibc's libraries have this table as long as they have a libpthread with code.
const DT_HASH: usize = 4;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;

type Visit = unsafe extern "C" fn(*const c_void, usize, *mut c_void) -> c_int;
type IteratePhdr = unsafe extern "C" fn(Visit, *mut c_void) -> c_int;

/// The library, once it was found; it is never unloaded. Relaxed: every thread finds the same.
static LIBRARY: AtomicPtr<Map> = AtomicPtr::new(null_mut());

/// The function `name` of libpthread; null where there is none.
pub fn function(name: &CStr) -> *const () {
    let library = match LIBRARY.load(Ordering::Relaxed) {
        library if library.is_null() => find(),
        library => library,
    };
    // SAFETY: null, or the entry of a library that stays loaded.
    unsafe { library.as_ref() }.map_or(null(), |library| address(library, name))
}

fn find() -> *mut Map {
    let mut found: *mut Map = null_mut();
    if let Some(iterate) = weak_function!("dl_iterate_phdr" as IteratePhdr) {
        // SAFETY: `visit` takes what it is called with, and `found` outlives the call.
        unsafe { iterate(visit, (&raw mut found).cast()) };
    }
    LIBRARY.store(found, Ordering::Relaxed);
    found
}

/// Called once, under the lock of the list.
unsafe extern "C" fn visit(_: *const c_void, _: usize, found: *mut c_void) -> c_int {
    // SAFETY: the loader's variable of this name is such a structure, or there is none.
    let debug = unsafe { weak_symbol!("_r_debug").cast::<Debug>().as_ref() };
    let mut next = debug.map_or(null(), |debug| debug.map);
    // SAFETY: the lock keeps the list, whose last entry has no next one.
    while let Some(map) = unsafe { next.as_ref() } {
        // SAFETY: a name that is not null is a C string.
        if !map.name.is_null() && is_libpthread(unsafe { CStr::from_ptr(map.name) }.to_bytes()) {
            // SAFETY: `find` passes the address of such a pointer.
            unsafe { found.cast::<*const Map>().write(next) };
            return 1;
        }
        next = map.next;
    }
    1
}

fn is_libpthread(path: &[u8]) -> bool {
    path.ends_with(b"/libpthread.so.0")
}

/// The function in the tables of `library`, which is loaded and relocated.
fn address(library: &Map, name: &CStr) -> *const () {
    let (mut symbols, mut strings) = (null::<Symbol>(), null::<c_char>());
    let mut count = 0;
    let mut entry = library.dynamic;
    loop {
        // SAFETY: the dynamic section of a loaded library ends with DT_NULL, where the loop ends.
        let Entry { tag, value } = unsafe { &*entry };
        match *tag {
            DT_NULL => break,
            DT_STRTAB => strings = *value as *const c_char,
            DT_SYMTAB => symbols = *value as *const Symbol,
            // SAFETY: the table begins with two words.
            DT_HASH => count = unsafe { *(*value as *const u32).add(1) } as usize,
            _ => {}
        }
        // SAFETY: this was not the last entry.
        entry = unsafe { entry.add(1) };
    }
    if symbols.is_null() || strings.is_null() {
        return null();
    }
    // SAFETY: the hash table has an entry for each symbol of the table.
    let symbols = unsafe { slice::from_raw_parts(symbols, count) };
    let is_wanted = |symbol: &&Symbol| {
        // SAFETY: a symbol's name is a C string in the table of strings.
        symbol.section != 0 && unsafe { CStr::from_ptr(strings.add(symbol.name as usize)) } == name
    };
    let found = symbols.iter().find(is_wanted);
    found.map_or(null(), |symbol| library.base.wrapping_add(symbol.value) as *const ())
}
