//! The command line: parses it, runs the command, prints a failure as one line.
//!
//! Data goes to stdout, everything else to stderr, both through `terminal`.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::commands;
use crate::exit::{Exit, Failure};
use crate::supervised::supervised;
use crate::terminal::warn;

/// Find out whether a Linux service keeps memory that it has freed, and measure what another allocator gains.
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
    /// Show where a process's memory is: in use, freed but held, or not malloc's.
    #[command(alias = "diagnose")]
    Why(commands::why::Args),
    /// Write the figures of a process to a file: counts and sizes, no contents.
    Snap(commands::snap::Args),
    /// Show what changed between two files of `ebb snap`.
    Diff(commands::diff::Args),
    /// Show what all processes and containers of this machine hold, live.
    Top(commands::top::Args),
    /// Export a process's figures for Prometheus.
    Watch(commands::watch::Args),
    /// Show which workloads of a fleet hold freed memory, and what that costs.
    Fleet(commands::fleet::Args),
    /// Export figures of all containers, units and processes of a machine for Prometheus.
    Agent(commands::agent::Args),
    /// Show which functions hold a running process's memory.
    Profile(commands::profile::Args),
    /// Say which block of ebbmalloc an address is in, in a core dump or a process.
    Explain(commands::explain::Args),
    /// Return a running process's freed memory, or show how much it would return.
    Trim(commands::trim::Args),
    /// Check whether the allocator is in charge of processes, an image or a Dockerfile.
    Check(commands::check::Args),
    /// Put an allocator into a Dockerfile, compose file, manifest, unit, Procfile, script or Cargo.toml.
    Fix(commands::fix::Args),
    /// Write libebbmalloc.so and ebbmalloc.h, or print the library's path.
    Library(commands::library::Args),
}

/// The command line with every verb, for the man pages and the completions of shells.
pub fn command() -> clap::Command {
    Cli::command()
}

/// The whole program, built from `commit`; `is_static` if nothing of the system's is linked.
pub fn main(commit: Option<&'static str>, is_static: bool) -> ExitCode {
    let command = Cli::command().long_version(&*long_version(commit, is_static).leak());
    let parsed = command.try_get_matches().and_then(|it| Cli::from_arg_matches(&it));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(report_usage(&error)),
    };
    let result = match cli.command {
        // A program that was verified ends `ebb` with its own code.
        Command::Run(args) => return code(commands::run::execute(args)),
        Command::Compare(args) => commands::compare::execute(&args),
        Command::Burst(args) => commands::burst::execute(&args),
        Command::Why(args) if args.looks_once() => {
            return supervised(|| code(commands::why::execute(&args).map(ExitCode::from)));
        }
        Command::Snap(args) if args.looks_once() => {
            return supervised(|| code(commands::snap::execute(&args).map(ExitCode::from)));
        }
        Command::Trim(args) if args.looks_once() => {
            return supervised(|| code(commands::trim::execute(&args).map(ExitCode::from)));
        }
        Command::Top(args) if args.looks_once() => {
            return supervised(|| code(commands::top::execute(&args).map(ExitCode::from)));
        }
        Command::Check(args) => {
            return supervised(|| code(commands::check::execute(&args).map(ExitCode::from)));
        }
        Command::Top(args) => commands::top::execute(&args),
        Command::Why(args) => commands::why::execute(&args),
        Command::Snap(args) => commands::snap::execute(&args),
        Command::Diff(args) => commands::diff::execute(&args),
        Command::Watch(args) => commands::watch::execute(&args),
        Command::Fleet(args) => commands::fleet::execute(&args),
        Command::Agent(args) => commands::agent::execute(&args),
        Command::Profile(args) => commands::profile::execute(&args),
        Command::Explain(args) => commands::explain::execute(&args),
        Command::Trim(args) => commands::trim::execute(&args),
        Command::Fix(args) => commands::fix::execute(&args),
        Command::Library(args) => commands::library::execute(&args),
    };
    code(result.map(ExitCode::from))
}

/// What `--version` prints after the name. `-V` prints the number alone.
fn long_version(commit: Option<&str>, is_static: bool) -> String {
    let system = if cfg!(target_env = "gnu") { "linux-gnu" } else { "linux-musl" };
    let linked = if is_static { ", static" } else { "" };
    let mut text = format!(
        "{}\ncommit {}\ntarget {}-unknown-{system}{linked}\n",
        env!("CARGO_PKG_VERSION"),
        commit.unwrap_or("unknown"),
        std::env::consts::ARCH,
    );
    let carried: Vec<&str> =
        ["x86_64", "aarch64"].into_iter().filter(|arch| ebb_process::carried::has_library(arch)).collect();
    text += "library ";
    text += &if carried.is_empty() { "none".to_owned() } else { carried.join(", ") };
    let newest = ebb_inspect::NEWEST.map(|(allocator, version)| format!("{allocator} {version}"));
    text += "\nreads up to ";
    text += &newest.join(", ");
    text
}

fn code(result: Result<ExitCode, Failure>) -> ExitCode {
    result.unwrap_or_else(|failure| {
        if failure.exit() != Exit::BrokenPipe {
            warn(&failure.to_string());
        }
        failure.exit().into()
    })
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
    commands_in(&help).first().map(|&command| command.to_owned())
}

/// The commands of a help's examples, without what reads their output, and what each is for, which follows after two spaces.
fn commands_in(help: &str) -> Vec<&str> {
    let lines = help.lines().map(str::trim);
    lines
        .filter(|line| line.starts_with("ebb "))
        .filter_map(|line| line.split("  ").next()?.split(" | ").next())
        .collect()
}

#[cfg(test)]
mod tests {

    use clap::{CommandFactory, Parser};

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
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
