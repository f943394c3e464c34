//! Reads the glibc heap of a process and prints it: `cargo run -p ebb-inspect --example read_heap PID`.

use std::time::Instant;

use ebb_inspect::{Heap, Target};

fn main() {
    let pid = std::env::args().nth(1).and_then(|pid| pid.parse().ok());
    let pid = pid.expect("usage: read_heap PID");
    let start = Instant::now();
    let heap = Target::open(pid)
        .map_err(Into::into)
        .and_then(|target| Heap::read(&target));
    println!("{heap:#?}\n{:?}", start.elapsed());
}
