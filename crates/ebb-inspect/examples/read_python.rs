//! Reads CPython in a process and prints it: `cargo run -p ebb-inspect --example read_python PID`.

use std::process::ExitCode;
use std::time::Instant;

use ebb_inspect::Target;
use ebb_inspect::cpython::{Python, Unsupported};

/// More types than anybody reads.
const MOST_TYPES: usize = 20;

/// The large blocks of glibc's heap.
fn large(target: &Target) -> Vec<(u64, u64)> {
    ebb_inspect::glibc::read(target).map_or_else(|_| Vec::new(), |heap| heap.large)
}

fn main() -> ExitCode {
    let pid = std::env::args().nth(1).and_then(|pid| pid.parse().ok());
    let Some(pid) = pid else {
        eprintln!("usage: read_python PID");
        return ExitCode::from(64);
    };
    let start = Instant::now();
    let read = Target::open(pid)
        .map_err(Unsupported::from)
        .and_then(|target| Python::read(&target, &large(&target)));
    match read {
        Ok(mut python) => {
            let collectors = python.interpreters.iter_mut().map(|it| &mut it.collector);
            for collector in collectors.flatten() {
                collector.types.truncate(MOST_TYPES);
            }
            println!("{python:#?}\nread in {:?}", start.elapsed());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
