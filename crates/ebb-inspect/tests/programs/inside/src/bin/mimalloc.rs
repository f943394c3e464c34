//! mimalloc 3, by its crate.

use inside::Own;
use mimalloc::MiMalloc;

#[global_allocator]
static GLOBAL: MiMalloc = MiMalloc;

struct Its;

impl Own for Its {
    fn usable(block: *mut u8, _asked: usize) -> usize {
        // SAFETY: the block is live.
        unsafe { GLOBAL.usable_size(block) }
    }

    fn figures() -> Vec<usize> {
        vec![GLOBAL.version() as usize]
    }
}

fn main() {
    inside::run::<Its>();
}
