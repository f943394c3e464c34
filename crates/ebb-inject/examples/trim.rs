//! `cargo run -p ebb-inject --example trim PID [TIMES]`: calls malloc_trim in a process.

use std::time::Duration;

fn main() {
    let mut words = std::env::args().skip(1);
    let pid = words.next().and_then(|word| word.parse().ok()).expect("a pid");
    let times = words.next().map_or(1, |word| word.parse().expect("a count"));
    for _ in 0..times {
        let target = ebb_inspect::Target::open(pid).expect("a process");
        let function = ebb_inject::Function::malloc_trim(&target).expect("glibc");
        println!("{:?}", ebb_inject::call(&target, &function, Duration::from_secs(10)));
    }
}
