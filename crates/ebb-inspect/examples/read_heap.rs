//! Reads a heap of a process and prints it: `cargo run -p ebb-inspect --example read_heap PID`. With an allocator and
//! the file that it lies in: that allocator's; with `python`: CPython.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use ebb_inspect::cpython::Python;
use ebb_inspect::{LOOK_WITHIN, Target, Unreadable, Unsupported};
use ebb_inspect::{glibc, jemalloc, mimalloc, musl, permission, tcmalloc};

/// More of CPython's types than anybody reads.
const MOST_TYPES: usize = 20;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some(pid) = words.first().and_then(|pid| pid.parse().ok()) else {
        eprintln!("usage: read_heap PID [python | jemalloc|mimalloc|musl|tcmalloc FILE]");
        return ExitCode::from(64);
    };
    let start = Instant::now();
    let read = match Target::open(pid) {
        Ok(target) => read(&target.until(start + LOOK_WITHIN), &words[1..]),
        Err(error) => Err(error.into()),
    };
    match read {
        Ok(text) => println!("{text}\nread in {:?}", start.elapsed()),
        Err(error) => {
            eprintln!("{error}");
            if let (Unsupported::Unreadable(Unreadable::Refused), Ok(gate)) = (&error, permission::diagnose(pid)) {
                eprintln!("{gate}. {}", gate.remedy());
            }
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn read(target: &Target, what: &[&str]) -> Result<String, Unsupported> {
    let heap = match *what {
        [] => glibc::read(target),
        ["python"] => {
            return python(target);
        }
        ["jemalloc", file] => jemalloc::read(target, Path::new(file)),
        ["mimalloc", file] => mimalloc::read(target, Path::new(file)),
        ["musl", file] => musl::read(target, Path::new(file)),
        ["tcmalloc", file] => tcmalloc::read(target, Path::new(file)),
        _ => Err(Unsupported::Layout(what.join(" "))),
    };
    Ok(format!("{:#?}", heap?))
}

fn python(target: &Target) -> Result<String, Unsupported> {
    let large = glibc::read(target).map_or_else(|_| Vec::new(), |heap| heap.large);
    let mut python = Python::read(target, &large)?;
    let collectors = python.interpreters.iter_mut().filter_map(|it| it.collector.as_mut());
    collectors.for_each(|collector| collector.types.truncate(MOST_TYPES));
    Ok(format!("{python:#?}"))
}
