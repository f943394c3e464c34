//! From an address to its size class, on the fast path of free.

use super::instance::HEAP;

/// [`Heap::quick_class`](crate::heap::Heap::quick_class) of the process's heap, in seven instructions
/// instead of nine: the compiler folds no atomic load into a subtraction or a comparison, and does
/// not know that the words lie at fixed addresses.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn quick_class(address: usize) -> Option<usize> {
    use crate::heap::Heap;
    use crate::os::linux::Linux;
    use core::arch::asm;

    const BASE: usize = Heap::<Linux>::FIRST_VIEW;
    const TOP: usize = BASE + 8;
    const MAP: usize = BASE + 16;
    let mut index = address;
    let class: usize;
    // SAFETY: loads of words that are written atomically, so that each is whole; then what
    // `Arena::class_in_first_region` says: the map has a byte for each index below the second word.
    unsafe {
        asm!(
            "sub {index}, qword ptr [rip + {heap} + {base}]",
            "shr {index}, 16",
            index = inout(reg) index,
            heap = sym HEAP,
            base = const BASE,
            options(nostack, readonly),
        );
        asm!(
            "cmp {index}, qword ptr [rip + {heap} + {top}]",
            "jae {outside}",
            index = in(reg) index,
            heap = sym HEAP,
            top = const TOP,
            outside = label { return None },
            options(nostack, readonly),
        );
        asm!(
            "mov {class}, qword ptr [rip + {heap} + {map}]",
            "movzx {class:e}, byte ptr [{class} + {index}]",
            class = out(reg) class,
            index = in(reg) index,
            heap = sym HEAP,
            map = const MAP,
            options(nostack, readonly, preserves_flags),
        );
    }
    Some(class)
}

/// [`Heap::quick_class`](crate::heap::Heap::quick_class) of the process's heap.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub fn quick_class(address: usize) -> Option<usize> {
    HEAP.quick_class(address)
}
