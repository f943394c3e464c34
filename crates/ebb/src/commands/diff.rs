//! `ebb diff`: what grew between two files of `ebb snap`.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::commands::snap;
use crate::exit::{Exit, Failure};
use crate::terminal;
use ebb_diagnosis::difference;

const EXAMPLES: &str = "Example:
  ebb diff before.json after.json  two files of ebb snap";

/// The arguments of `ebb diff`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The earlier snapshot
    #[arg(value_name = "BEFORE")]
    before: PathBuf,

    /// The later snapshot
    #[arg(value_name = "AFTER")]
    after: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn execute(args: &Args) -> Result<ExitCode, Failure> {
    let difference = difference::of(&snap::read(&args.before)?, &snap::read(&args.after)?);
    let text = match args.json {
        true => {
            serde_json::to_string_pretty(&difference)
                .map_err(|error| Failure::new(Exit::Internal, error.to_string()))?
                + "\n"
        }
        false => {
            let text = ebb_report::growth::render_difference(&difference);
            if terminal::has_colours() { crate::paint::difference(&text) } else { text }
        }
    };
    terminal::print(&text)?;
    Ok(Exit::Ok.into())
}
