//! The files that `-o DIR` leaves, the width of the terminal, and the signals that end a trial.

use crate::cli;
use crate::exit::{Exit, Failure};
use crate::facts::trial::Trial;
use crate::report::{html, markdown};
use crate::trial::interrupt::{Groups, Interrupt};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};

/// The folder of `-o`.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes it, before anything is measured: a folder that cannot be written is found out now, not
    /// after twenty minutes.
    pub fn create(path: &Path) -> Result<Folder, Failure> {
        let logs = path.join("logs");
        std::fs::create_dir_all(&logs)
            .map_err(|error| Failure::new(Exit::Usage, format!("{}: {error}", logs.display())))?;
        Ok(Folder(path.to_owned()))
    }

    /// Where the logs of the runs go.
    pub fn logs(&self) -> PathBuf {
        self.0.join("logs")
    }

    /// The page.
    pub fn page(&self) -> PathBuf {
        self.0.join("report.html")
    }

    /// The results.
    pub fn results(&self) -> PathBuf {
        self.0.join("results.json")
    }

    /// Writes all files.
    pub fn write(&self, trial: &Trial) -> Result<(), Failure> {
        let page = html::render(trial).map_err(|error| Failure::new(Exit::Internal, error))?;
        for (name, text) in [
            ("results.json", json(trial)?),
            ("report.md", markdown::render(trial)),
            ("report.html", page),
        ] {
            let path = self.0.join(name);
            std::fs::write(&path, text).map_err(|error| {
                Failure::new(Exit::Internal, format!("{}: {error}", path.display()))
            })?;
        }
        Ok(())
    }
}

/// The results as JSON.
pub fn json(trial: &Trial) -> Result<String, Failure> {
    serde_json::to_string(trial).map_err(|error| Failure::new(Exit::Internal, error.to_string()))
}

/// Of stdout; 120 where it is no terminal, so that a log file's tables do not wrap.
pub fn terminal_width() -> u16 {
    comfy_table::Table::new().width().unwrap_or(120).max(60)
}

/// The first Ctrl-C ends the trial in order, the second kills what was started: then nothing is left that the end has
/// to wait for. timeout(1) comes as two, to the process and to its group, so what was measured is kept all the
/// same; the third ends ebb itself.
pub fn on_signals(interrupt: Interrupt, groups: Groups) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::spawn(move || {
        for (number, _) in signals.forever().enumerate() {
            match number {
                0 => {
                    cli::warn(
                        "interrupted: stopping what was started, keeping what was measured (again to kill)",
                    );
                    interrupt.set();
                }
                1 => {
                    cli::warn(
                        "interrupted twice: killing what was started, keeping what was measured (again to keep nothing)",
                    );
                    groups.kill_all();
                }
                _ => {
                    groups.kill_all();
                    cli::warn("interrupted three times: everything was killed, nothing is kept");
                    std::process::exit(i32::from(Exit::Interrupted.code()));
                }
            }
        }
    });
    Ok(())
}
