//! Reads what an allocator other than glibc's holds and prints it: `read_regions ALLOCATOR PID FILE`.

use std::path::Path;
use std::process::ExitCode;

use ebb_inspect::{Target, jemalloc, mimalloc, musl, tcmalloc};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [allocator, pid, file] = arguments.as_slice() else {
        eprintln!("usage: read_regions jemalloc|mimalloc|musl|tcmalloc PID FILE");
        return ExitCode::from(64);
    };
    let Some(target) = pid.parse().ok().and_then(|pid| Target::open(pid).ok()) else {
        eprintln!("{pid}: no process that can be read");
        return ExitCode::FAILURE;
    };
    let began = std::time::Instant::now();
    let read = match allocator.as_str() {
        "jemalloc" => jemalloc::read(&target, Path::new(file)),
        "mimalloc" => mimalloc::read(&target, Path::new(file)),
        "tcmalloc" => tcmalloc::read(&target, Path::new(file)),
        "musl" => musl::read(&target, Path::new(file)),
        _ => {
            eprintln!("{allocator}: not known here");
            return ExitCode::from(64);
        }
    };
    match read {
        Ok(heap) => println!("{heap:#?}\nin {:?}", began.elapsed()),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
