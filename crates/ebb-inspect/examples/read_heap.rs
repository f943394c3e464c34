//! Reads the glibc heap of a process and prints it: `cargo run -p ebb-inspect --example read_heap PID`.

use std::process::ExitCode;
use std::time::Instant;

use ebb_inspect::{LOOK_WITHIN, Target, Unreadable, Unsupported, glibc, permission};

fn main() -> ExitCode {
    let pid = std::env::args().nth(1).and_then(|pid| pid.parse().ok());
    let Some(pid) = pid else {
        eprintln!("usage: read_heap PID");
        return ExitCode::from(64);
    };
    let start = Instant::now();
    match Target::open(pid)
        .map_err(Unsupported::from)
        .and_then(|target| glibc::read(&target.until(start + LOOK_WITHIN)))
    {
        Ok(heap) => println!("{heap:#?}\nread in {:?}", start.elapsed()),
        Err(error) => {
            eprintln!("{error}");
            if let (Unsupported::Unreadable(Unreadable::Refused), Ok(gate)) =
                (&error, permission::diagnose(pid))
            {
                eprintln!("{gate}. {}", gate.remedy());
            }
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
