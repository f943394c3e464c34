//! `--export-csv` and `--export-markdown`: the figures of a trial in one file each, a row per variant.

use super::outputs;
use crate::commands::snap;
use crate::exit::{Exit, Failure};
use ebb_report::export;
use ebb_trial::results::Trial;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

/// Where to write them.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Write the figures as CSV to this file, one row per variant.
    #[arg(long, value_name = "FILE")]
    export_csv: Option<PathBuf>,

    /// Write the main figures as a Markdown table to this file, one row per variant.
    #[arg(long, value_name = "FILE")]
    export_markdown: Option<PathBuf>,
}

impl Args {
    fn given(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let csv = self.export_csv.as_deref().map(|file| ("--export-csv", file));
        let markdown = self.export_markdown.as_deref();
        csv.into_iter().chain(markdown.map(|file| ("--export-markdown", file)))
    }

    /// Finds out before the trial whether the files can be written. Changes none of them.
    pub fn check(&self) -> Result<(), Failure> {
        for (option, file) in self.given() {
            if file == Path::new("-") {
                let what = format!("{option} -: stdout is used for the tables");
                return Err(Failure::usage(what).remedy("name a file"));
            }
            try_out(file).map_err(|error| outputs::unusable(option, file, &error))?;
        }
        Ok(())
    }

    /// Writes the files. The second is written even if the first cannot be.
    pub fn write(&self, trial: &Trial) -> Result<(), Failure> {
        let csv = self.export_csv.as_deref().map(|file| {
            let text = export::csv(trial);
            let text = text.map_err(|error| Failure::new(Exit::Internal, error))?;
            snap::write(file, &text, None)
        });
        let markdown = self.export_markdown.as_deref();
        let markdown = markdown.map(|file| snap::write(file, &export::markdown(trial), None));
        outputs::all([csv, markdown].into_iter().flatten())
    }
}

/// Whether a file can be written: its folder takes another, and where it exists it may be replaced.
fn try_out(file: &Path) -> std::io::Result<()> {
    if file.exists() {
        // A folder cannot be opened so; a file keeps what it has.
        OpenOptions::new().append(true).open(file)?;
        if !file.is_file() {
            return Ok(());
        }
    }
    let file = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let folder = file.parent().filter(|it| !it.as_os_str().is_empty());
    outputs::probe(folder.unwrap_or(Path::new(".")))
}
