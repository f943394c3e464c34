//! `ebb diff`: what grew between two files of `ebb snap`.

use std::path::PathBuf;

use crate::commands::snap;
use crate::exit::{Exit, Failure};
use crate::{paint, terminal};
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
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    let difference = difference::of(&snap::read(&args.before)?, &snap::read(&args.after)?);
    if args.json {
        terminal::print_json(&difference, true)?;
    } else {
        let text = ebb_report::growth::render_difference(&difference);
        terminal::print(&if terminal::has_colours() { paint::difference(&text) } else { text })?;
    }
    Ok(Exit::Ok)
}
