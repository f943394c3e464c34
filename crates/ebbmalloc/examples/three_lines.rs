//! The three lines that a program needs, and what it gains: memory of a burst is returned without a call.

use ebbmalloc::Ebbmalloc;

#[global_allocator]
static GLOBAL: Ebbmalloc = Ebbmalloc;

fn main() {
    let burst: Vec<String> = (0..400_000).map(|n| format!("{n:>200}")).collect();
    println!("during the burst: {} MiB resident", resident_mib());
    drop(burst);
    std::thread::sleep(std::time::Duration::from_secs(3));
    println!("three seconds later: {} MiB resident", resident_mib());
}

fn resident_mib() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096 / (1 << 20)
}
