//! The command line: parses it, runs the command, prints a failure as one line.
//!
//! Data goes to stdout (through [`print()`]), everything else to stderr. Nothing here or below panics
//! because a reader went away: the runtime ignores SIGPIPE, so a write fails with an error that ends
//! the program quietly.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use anstream::{AutoStream, ColorChoice};
use bytesize::ByteSize;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use crate::commands;
use crate::exit::{Exit, Failure};

/// A line is broken here where stdout is no terminal, and nowhere before.
const LEAST_COLUMNS: usize = 80;
/// Longer lines are harder to read, not easier.
const MOST_COLUMNS: usize = 100;

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

/// Writes to stdout; a reader that went away is [`Exit::BrokenPipe`], a full disk [`Exit::NotWritten`].
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => error.into(),
        _ => Failure::new(Exit::NotWritten, format!("stdout was not written: {error}")),
    })
}

/// Writes one line for the user to stderr. Where stderr is closed there is nobody to tell.
pub fn warn(line: &str) {
    let _ = writeln!(io::stderr().lock(), "ebb: {line}");
}

/// Whether stdout takes colours: on a terminal, unless `NO_COLOR` is set or TERM is `dumb`; elsewhere with
/// `CLICOLOR_FORCE`. clap's help follows the same rule.
pub fn has_colours() -> bool {
    AutoStream::choice(&io::stdout()) != ColorChoice::Never
}

/// Columns of a text on stdout: the terminal's within reason; 80 where stdout is no terminal.
pub fn columns() -> usize {
    if !io::stdout().is_terminal() {
        return LEAST_COLUMNS;
    }
    let width = comfy_table::Table::new().width().map_or(0, usize::from);
    width.clamp(LEAST_COLUMNS, MOST_COLUMNS)
}

/// A time of an argument: `500ms`, `10s`, `5m`, `1h`, `1h 30m`. A bare number is seconds.
pub fn time(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, f64); 5] = [
        ("ms", 1e-3),
        ("s", 1.0),
        ("m", 60.0),
        ("h", 3600.0),
        ("", 1.0),
    ];
    let text = text.trim();
    let seconds = UNITS.iter().find_map(|(unit, seconds)| {
        let number = text.strip_suffix(unit)?.trim_end();
        Some(number.parse::<f64>().ok()? * seconds)
    });
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .or_else(|| humantime::parse_duration(text).ok())
        .ok_or_else(|| {
            "write a time such as 500ms, 10s, 5m or 1h; a bare number is seconds".to_owned()
        })
}

/// Bytes of an argument, as Kubernetes has them.
pub fn size(text: &str) -> Result<u64, String> {
    match text.parse::<ByteSize>() {
        Ok(size) => Ok(size.as_u64()),
        Err(_) => Err("write a size such as 16MB (10^6 bytes) or 512Mi (2^20 bytes)".to_owned()),
    }
}

/// Help and version go to stdout and are no error; a wrong command line is shown by clap, whose own
/// code 2 would be taken for the service's. Where an argument is missing, an example follows.
fn report_usage(error: &clap::Error) -> Exit {
    let printed = error.print();
    if error.kind() == ErrorKind::MissingRequiredArgument
        && let Some(example) = std::env::args().nth(1).and_then(|verb| example(&verb))
    {
        let _ = writeln!(io::stderr().lock(), "\nexample: {example}");
    }
    match (error.use_stderr(), printed) {
        (false, Ok(())) => Exit::Ok,
        (false, Err(_)) => Exit::BrokenPipe,
        (true, _) => Exit::Usage,
    }
}

/// The first example of a verb's help.
fn example(verb: &str) -> Option<String> {
    let command = Cli::command();
    let help = command.find_subcommand(verb)?.get_after_help()?.to_string();
    commands_in(&help)
        .first()
        .map(|&command| command.to_owned())
}

/// The commands of a help's examples, without what each is for, which follows after two spaces.
fn commands_in(help: &str) -> Vec<&str> {
    let lines = help.lines().map(str::trim);
    lines
        .filter(|line| line.starts_with("ebb "))
        .filter_map(|line| line.split("  ").next())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::{CommandFactory, Parser};

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }

    #[test]
    fn a_bare_number_is_seconds_and_units_are_taken() {
        for (text, ms) in [
            ("1", 1_000),
            ("0.5", 500),
            ("1s", 1_000),
            ("250ms", 250),
            ("1.5 s", 1_500),
            ("2m", 120_000),
            ("2min", 120_000),
            ("1h", 3_600_000),
            ("1h 30m", 5_400_000),
            ("0", 0),
        ] {
            assert_eq!(super::time(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "-1", "1x", "ten", "inf", "nan", "1e300h"] {
            assert!(super::time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_verb_has_examples_that_its_parser_takes() {
        for verb in super::Cli::command().get_subcommands() {
            let name = verb.get_name();
            let help = verb.get_after_help().map(ToString::to_string);
            let help = help.unwrap_or_default();
            assert!(help.starts_with("Example"), "{name} has no example");
            let commands = super::commands_in(&help);
            assert!(!commands.is_empty(), "{name}: {help}");
            for command in commands {
                assert!(command.starts_with(&format!("ebb {name} ")), "{command}");
                let words = shlex::split(command).unwrap();
                let parsed = super::Cli::try_parse_from(words);
                assert!(parsed.is_ok(), "{command}: {:?}", parsed.err());
            }
            assert!(super::example(name).is_some(), "{name}");
        }
    }
}
