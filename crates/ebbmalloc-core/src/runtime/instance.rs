//! The heap of this process. All of `runtime` uses it; nothing else of the runtime is needed to have it.

use crate::heap::Heap;
use crate::os::linux::Linux;

/// The heap that every face of the allocator in this process uses.
pub static HEAP: Heap<Linux> = Heap::new(Linux::new());
