//! The program `ebb`. All of it is in the library, so that the tests can use the pieces.

use std::process::ExitCode;

fn main() -> ExitCode {
    ebb::cli::main()
}
