//! The objects that the loader has loaded: the program and its libraries, in the order in which they were loaded.

use core::ffi::{c_char, c_int, c_void};
use core::mem::MaybeUninit;

use crate::weak_function;

/// The first fields of `dl_phdr_info`.
#[repr(C)]
struct Object {
    bias: usize,
    name: *const c_char,
}

/// `Dl_info`.
#[repr(C)]
struct Place {
    file: *const c_char,
    base: usize,
    symbol: *const c_char,
    address: *const (),
}

type Visit = unsafe extern "C" fn(*const Object, usize, *mut c_void) -> c_int;
type IteratePhdr = unsafe extern "C" fn(Visit, *mut c_void) -> c_int;
type Dladdr = unsafe extern "C" fn(*const (), *mut Place) -> c_int;

/// How many there are.
pub fn count() -> usize {
    walk(usize::MAX).objects
}

/// Whether the object at `address` comes after the first `earlier` ones. False if that is not known.
pub fn is_behind(earlier: usize, address: *const ()) -> bool {
    let found = base(address).and_then(|base| walk(base).found);
    found.is_some_and(|place| place >= earlier)
}

/// Whether two addresses lie in the same library, or both in the program. False if that is not known.
pub fn are_in_one_object(one: *const (), other: *const ()) -> bool {
    base(one).is_some_and(|found| base(other) == Some(found))
}

fn base(address: *const ()) -> Option<usize> {
    let dladdr = weak_function!("dladdr" as Dladdr)?;
    let mut place = MaybeUninit::<Place>::uninit();
    // SAFETY: takes any address, and fills in all where it returns another value than 0.
    unsafe { (dladdr(address, place.as_mut_ptr()) != 0).then(|| place.assume_init_ref().base) }
}

struct Walk {
    objects: usize,
    wanted: usize,
    found: Option<usize>,
}

/// Counts the objects, and finds the place of the library that begins at `wanted`: a library's addresses count from its
/// beginning.
fn walk(wanted: usize) -> Walk {
    unsafe extern "C" fn visit(object: *const Object, _: usize, walk: *mut c_void) -> c_int {
        // SAFETY: the loader passes an object, and the pointer that `walk` gave it.
        let (object, walk) = unsafe { (&*object, &mut *walk.cast::<Walk>()) };
        if object.bias == walk.wanted {
            walk.found = Some(walk.objects);
        }
        walk.objects += 1;
        0
    }
    let mut walk = Walk { objects: 0, wanted, found: None };
    if let Some(iterate) = weak_function!("dl_iterate_phdr" as IteratePhdr) {
        // SAFETY: `visit` takes what it is called with, and `walk` outlives the call.
        unsafe { iterate(visit, (&raw mut walk).cast()) };
    }
    walk
}
