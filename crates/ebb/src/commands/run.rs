//! `ebb run`: becomes a program that runs on the allocator asked for, or refuses with one line what
//! cannot work. The loader itself would only print a line and run the program without it.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use crate::arguments;
use crate::commands::compare::earlier;
use crate::exit::{Exit, Failure};
use crate::terminal;
use ebb_allocators::{Allocator, Choice, Environment};
use ebb_process::program::{Program, ProgramError, privilege_gained};
use ebb_trial::choice;

mod child;
mod report;
mod start;
mod verify;

use child::Child;
use start::{Start, become_program};

const EXAMPLES: &str = "Examples:
  ebb run -- ./service --port 80                 on ebbmalloc
  ebb run -a jemalloc --conf background_thread:true,dirty_decay_ms:1000 -- ./service
  ebb run --verify -- gunicorn app:app           and report whether it is in charge
  ebb run --child convert -- ./service           only where the service starts convert
  ebb run --from results/results.json -- ./service";

/// The arguments of `ebb run`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// ebbmalloc, jemalloc, mimalloc, tcmalloc, glibc (no preload), or the path of a shared object
    #[arg(long, short, value_name = "NAME|PATH", default_value = Allocator::Ebbmalloc.name())]
    allocator: String,

    /// Use the allocator and settings that a trial recommends (results.json of `ebb compare -o`)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["allocator", "conf"])]
    from: Option<PathBuf>,

    /// Settings of the allocator, in the allocator's own syntax
    #[arg(long, value_name = "KEY:VALUE,...")]
    conf: Vec<String>,

    /// An environment variable for the program
    #[arg(long, value_name = "KEY=VALUE", value_parser = arguments::variable)]
    env: Vec<(String, String)>,

    /// Only the descendant with this program's name gets the allocator, the settings and --env; CMD itself does not
    #[arg(long, value_name = "NAME", value_parser = child::name)]
    child: Option<String>,

    /// Stay as the parent and report on stderr whether the allocator is in charge of every process
    #[arg(long)]
    verify: bool,

    /// How long to look for processes
    #[arg(long, value_name = "TIME", default_value = "2s", requires = "verify", value_parser = arguments::time)]
    verify_for: Duration,

    /// Report as one line of JSON
    #[arg(long, requires = "verify")]
    json: bool,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the command. Returns only where it refuses, fails, or was asked to verify.
pub fn execute(args: Args) -> Result<ExitCode, Failure> {
    let start = prepare(&args)?;
    if args.verify {
        let style = if args.json { report::Style::Json } else { report::Style::Text };
        return verify::run(&start, &start.allocator, args.verify_for, style);
    }
    Err(become_program(&start))
}

fn prepare(args: &Args) -> Result<Start, Failure> {
    let (command, rest) = args.command.split_first().ok_or_else(|| Failure::usage("no command to run"))?;
    let inherited: BTreeMap<OsString, OsString> = env::vars_os().collect();
    let chosen = args.from.as_deref().map(from_trial).transpose()?;
    let of_trial = chosen.as_ref().map(|chosen| chosen.env.clone()).unwrap_or_default();
    let variables: Vec<(String, String)> = of_trial.into_iter().chain(args.env.iter().cloned()).collect();
    let allocator = chosen.map_or_else(|| args.allocator.clone(), |chosen| chosen.allocator);
    let mut environment = inherited.clone();
    environment.extend(variables.iter().map(|(name, value)| (name.into(), value.into())));
    let search_path = environment
        .get(OsStr::new("PATH"))
        .cloned()
        // What execvp searches where there is no PATH.
        .unwrap_or_else(|| "/bin:/usr/bin".into());

    let program = Program::find(command, &search_path)?;
    let child = args.child.as_ref().map(|name| Program::find(OsStr::new(name), &search_path));
    let child = child.transpose()?;
    let choice = resolve(&allocator, child.as_ref().unwrap_or(&program))?;
    let change = Environment::of(&choice, &args.conf, |name| environment.get(OsStr::new(name)).cloned())?;
    for other in &change.replaced {
        terminal::warn(&format!("note: {other} is removed from LD_PRELOAD"));
    }
    let child = match child.as_ref().zip(args.child.as_ref()) {
        Some((program, name)) => Some(Child::wrap(name, program, &change, &variables)?),
        None => None,
    };
    if let Some(child) = &child {
        environment = inherited;
        environment.insert("PATH".into(), child.path(&search_path));
    } else {
        for (name, value) in change.changes {
            match value {
                Some(value) => environment.insert(name, value),
                None => environment.remove(&name),
            };
        }
    }
    let mut arguments = vec![command.clone()];
    let file = if program.by_shell {
        arguments = vec!["sh".into(), program.path.into_os_string()];
        PathBuf::from("/bin/sh")
    } else {
        program.path
    };
    arguments.extend(rest.iter().cloned());
    let child = child.map(|child| child.image);
    Ok(Start { file, arguments, environment, allocator, choice, child })
}

/// What `program` is to run on; refused where the loader would ignore it.
fn resolve(allocator: &str, program: &Program) -> Result<Choice, Failure> {
    let choice = ebb_process::library::resolve(allocator, &program.elf).or_else(|error| {
        // That the program takes no library at all says more than that this one is not there.
        refuse(program)?;
        Err(Failure::from(error))
    })?;
    if let Some(library) = choice.library() {
        refuse(program)?;
        terminal::note_carried(&library.path);
    }
    Ok(choice)
}

/// The allocator that a trial recommends; it is printed on stderr, because the user did not name it.
fn from_trial(file: &Path) -> Result<choice::Choice, Failure> {
    let trial = earlier::read(file)?;
    let chosen =
        choice::of(&trial).ok_or_else(|| Failure::usage(format!("{}: the trial has no variants", file.display())))?;
    terminal::warn(&format!("note: {}: {}", chosen.variant, chosen.reason));
    Ok(chosen)
}

/// Refuses a program for which the loader ignores `LD_PRELOAD`.
fn refuse(program: &Program) -> Result<(), Failure> {
    let image = program.image.display();
    let (why, remedy) = if program.elf.is_static() {
        (
            format!("{image} is statically linked: no library can be preloaded into it"),
            "link the allocator into the program instead",
        )
    } else if let Some(privilege) = privilege_gained(&program.image) {
        (
            format!("{image} is {privilege}, so the loader ignores LD_PRELOAD"),
            "run it as the user that it switches to, with its rights granted by the service manager",
        )
    } else {
        return Ok(());
    };
    Err(Failure::new(Exit::Unsupported, why).remedy(remedy))
}

impl From<ProgramError> for Failure {
    fn from(error: ProgramError) -> Self {
        let exit = match error {
            ProgramError::NotFound(..) => Exit::CommandNotFound,
            ProgramError::NotExecutable(..) => Exit::NotExecutable,
        };
        Failure::new(exit, error.to_string())
    }
}
