//! Weak references to functions of the C library.

/// A function that the program may have: None where no object defines the name. The type is the one that the C library
/// gives to that name.
macro_rules! weak_function {
    ($name:literal as $type:ty) => {
        // SAFETY: the C library's function of that name has this type.
        unsafe { core::mem::transmute::<*const (), Option<$type>>(ebbmalloc_capi::weak_symbol!($name)) }
    };
}
pub(crate) use weak_function;
