//! The command line: parses it, runs the command, prints a failure as one line.
//!
//! Data goes to stdout (through [`print()`]), everything else to stderr. Nothing here or below panics
//! because a reader went away: the runtime ignores SIGPIPE, so a write fails with an error that ends
//! the program quietly.

use std::io::{self, Write};
use std::process::ExitCode;

use bytesize::ByteSize;
use clap::{Parser, Subcommand};

use crate::commands;
use crate::exit::{Exit, Failure};

/// Does a Linux service keep memory it no longer needs? Try another allocator, prove what it gains.
#[derive(Debug, Parser)]
#[command(name = "ebb", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a program on an allocator.
    Run(commands::run::Args),
    /// Compare allocators under a service's own load.
    Compare(Box<commands::compare::Args>),
    /// Send a burst of HTTP requests to a service.
    Burst(commands::burst::Args),
    /// Say where a running process's memory is, and whether it is held or in use.
    #[command(alias = "diagnose")]
    Why(commands::why::Args),
    /// Write one look at a process to a file: counts, no contents.
    Snap(commands::snap::Args),
    /// Say what grew between two such files.
    Diff(commands::diff::Args),
    /// Export the figures of a process for Prometheus.
    Watch(commands::watch::Args),
    /// Make a running process give freed memory back: says what it would return, and does it if it may.
    Trim(commands::trim::Args),
    /// Say whether the allocator that should be in charge really is: of processes, an image, a Dockerfile.
    Check(commands::check::Args),
    /// Write the change that puts an allocator in charge: Dockerfile, compose, Kubernetes, systemd, Procfile, Cargo.toml.
    Fix(commands::fix::Args),
}

/// The whole program.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(report_usage(&error)),
    };
    let result = match cli.command {
        Command::Run(args) => commands::run::execute(args),
        Command::Compare(args) => commands::compare::execute(&args).map(ExitCode::from),
        Command::Burst(args) => commands::burst::execute(&args).map(ExitCode::from),
        Command::Why(args) => commands::why::execute(&args),
        Command::Snap(args) => commands::snap::execute(&args),
        Command::Diff(args) => commands::diff::execute(&args),
        Command::Watch(args) => commands::watch::execute(&args),
        Command::Trim(args) => commands::trim::execute(&args),
        Command::Check(args) => commands::check::execute(&args).map(ExitCode::from),
        Command::Fix(args) => commands::fix::execute(&args).map(ExitCode::from),
    };
    match result {
        Ok(code) => code,
        Err(failure) => {
            if failure.exit() != Exit::BrokenPipe {
                warn(&failure.to_string());
            }
            failure.exit().into()
        }
    }
}

/// Writes to stdout; a reader that went away is [`Exit::BrokenPipe`].
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Writes one line for the user to stderr. Where stderr is closed there is nobody to tell.
pub fn warn(line: &str) {
    let _ = writeln!(io::stderr().lock(), "ebb: {line}");
}

/// Bytes of an argument, as Kubernetes has them.
pub fn size(text: &str) -> Result<u64, String> {
    match text.parse::<ByteSize>() {
        Ok(size) => Ok(size.as_u64()),
        Err(_) => Err("write a size such as 16MB (10^6 bytes) or 512Mi (2^20 bytes)".to_owned()),
    }
}

/// Help and version go to stdout and are no error; a wrong command line is shown by clap, whose own
/// code 2 would be taken for the service's.
fn report_usage(error: &clap::Error) -> Exit {
    let printed = error.print();
    match (error.use_stderr(), printed) {
        (false, Ok(())) => Exit::Ok,
        (false, Err(_)) => Exit::BrokenPipe,
        (true, _) => Exit::Usage,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
