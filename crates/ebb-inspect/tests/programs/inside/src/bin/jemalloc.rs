//! jemalloc as most Rust programs have it: tikv-jemallocator, under prefixed names.

use inside::Own;
use tikv_jemalloc_ctl::{epoch, raw};
use tikv_jemallocator::Jemalloc;

#[global_allocator]
static GLOBAL: Jemalloc = Jemalloc;

const PAGE_BYTES: usize = 4096;

struct Its;

fn read(name: &str) -> usize {
    // SAFETY: every name that is read here is one of a size_t.
    unsafe { raw::read(name.as_bytes()) }.unwrap_or_else(|error| panic!("{name}: {error}"))
}

impl Own for Its {
    fn usable(block: *mut u8, _asked: usize) -> usize {
        // SAFETY: the block is live.
        unsafe { tikv_jemallocator::usable_size(block) }
    }

    fn figures() -> Vec<usize> {
        epoch::advance().expect("its statistics are there");
        vec![
            read("stats.allocated\0"),
            read("stats.active\0"),
            read("stats.metadata\0"),
            read("stats.retained\0"),
            read("stats.arenas.4096.pdirty\0") * PAGE_BYTES,
            read("stats.arenas.4096.pmuzzy\0") * PAGE_BYTES,
            read("stats.arenas.4096.tcache_bytes\0"),
        ]
    }
}

fn main() {
    inside::run::<Its>();
}
