//! The files that `-o DIR` leaves, and the width of the terminal.

use crate::exit::{Exit, Failure};
use crate::terminal;
use ebb_report::{html, markdown};
pub use ebb_trial::logs::probe;
use ebb_trial::results::Trial;
use std::path::{Path, PathBuf};

const LOGS: &str = "logs";
/// All that a trial leaves.
const FILES: [&str; 4] = ["results.json", "report.md", "report.html", LOGS];

/// The folder of `-o`.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes it, before anything is measured: a folder that cannot be written, or a full disk, is found out now,
    /// not after twenty minutes.
    pub fn create(path: &Path) -> Result<Folder, Failure> {
        std::fs::create_dir_all(path).and_then(|()| probe(path)).map_err(|error| unusable("-o", path, &error))?;
        Ok(Folder(path.to_owned()))
    }

    /// Moves the files of an earlier trial into a folder of their own, and makes room for the logs of this one.
    /// Answers where the earlier ones are.
    pub fn clear(&self) -> Result<Option<PathBuf>, Failure> {
        let failed = |path: &Path, error| Failure::at(Exit::Usage, path, error);
        let there: Vec<&str> = FILES.into_iter().filter(|name| self.0.join(name).exists()).collect();
        let mut kept = None;
        if there.iter().any(|name| *name != LOGS) {
            let place = self.place_of_earlier();
            std::fs::create_dir_all(&place).map_err(|error| failed(&place, error))?;
            for name in there {
                let from = self.0.join(name);
                std::fs::rename(&from, place.join(name)).map_err(|error| failed(&from, error))?;
            }
            kept = Some(place);
        }
        std::fs::create_dir_all(self.logs()).map_err(|error| failed(&self.logs(), error))?;
        Ok(kept)
    }

    /// `earlier-1`, or the first number that is free.
    fn place_of_earlier(&self) -> PathBuf {
        let places = (1..).map(|number: u32| self.0.join(format!("earlier-{number}")));
        places.into_iter().find(|place| !place.exists()).unwrap_or_else(|| self.0.clone())
    }

    /// Where the logs of the runs go.
    pub fn logs(&self) -> PathBuf {
        self.0.join(LOGS)
    }

    pub fn page(&self) -> PathBuf {
        self.0.join("report.html")
    }

    pub fn results(&self) -> PathBuf {
        self.0.join("results.json")
    }

    /// Writes all files. One that cannot be written does not keep the others from it.
    pub fn write(&self, trial: &Trial) -> Result<(), Failure> {
        let page = html::render(trial).map_err(|error| Failure::new(Exit::Internal, error))?;
        let files = [
            ("results.json", serde_json::to_string(trial)?),
            ("report.md", markdown::render(trial)),
            ("report.html", page),
        ];
        let failed = files.into_iter().filter_map(|(name, text)| {
            let path = self.0.join(name);
            let error = std::fs::write(&path, text).err()?;
            // Half a file would be taken for a whole one.
            let _ = std::fs::remove_file(&path);
            Some((path.display().to_string(), error))
        });
        let (paths, errors): (Vec<String>, Vec<std::io::Error>) = failed.unzip();
        let Some(error) = errors.first() else {
            return Ok(());
        };
        let what = format!("not written: {}: {error}", paths.join(", "));
        Err(Failure::new(Exit::NotWritten, what))
    }
}

/// An output that was tried out before the trial and cannot be written.
pub fn unusable(option: &str, path: &Path, error: &std::io::Error) -> Failure {
    use std::io::ErrorKind;
    let exit = match error.kind() {
        ErrorKind::PermissionDenied => Exit::Permission,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Exit::NotWritten,
        _ => Exit::Usage,
    };
    Failure::new(exit, format!("{option} {}: {error}", path.display()))
        .remedy("name a writable place; nothing was started")
}

/// The first failure; the others are reported at once.
pub fn all(results: impl Iterator<Item = Result<(), Failure>>) -> Result<(), Failure> {
    let mut failures = results.filter_map(Result::err);
    let first = failures.next();
    failures.for_each(|other| terminal::warn(&other.to_string()));
    first.map_or(Ok(()), Err)
}

/// Of stdout; 120 where it is no terminal, so that a log file's tables do not wrap.
pub fn terminal_width() -> u16 {
    comfy_table::Table::new().width().unwrap_or(120).max(60)
}
