//! A service's `/debug/pprof/heap`: writes the heap profile of this program to a file. Start it with `EBB_CONF=profile:on`;
//! then `go tool pprof -top heap.pb.gz`.

use ebbmalloc::Ebbmalloc;

#[global_allocator]
static GLOBAL: Ebbmalloc = Ebbmalloc;

#[inline(never)]
fn kept_for_ever() -> Vec<Vec<u8>> {
    (0..20_000).map(|_| vec![1; 2000]).collect()
}

/// Keeps memory, and writes the profile.
pub fn main() {
    let kept = kept_for_ever();
    let file = std::env::var_os("HEAP_PROFILE").unwrap_or("heap.pb.gz".into());
    match ebbmalloc::profile::pprof() {
        Some(profile) => std::fs::write(file, profile).expect("a file that can be written"),
        None => println!("nothing is sampled: EBB_CONF=profile:on switches it on"),
    }
    drop(kept);
}
