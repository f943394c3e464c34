//! A file that is to change, and all that is proposed.

use std::fs;
use std::path::{Path, PathBuf};

use crate::exit::{Exit, Failure};
use ebb_deploy::check::Report as Check;
use ebb_deploy::fix::Edit;
use ebb_deploy::fix::edit::apply;

#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) path: PathBuf,
    pub(super) name: String,
    /// Its text, or `None` for a new file.
    pub(super) before: Option<String>,
    /// What changes in it.
    pub(super) edits: Vec<Edit>,
}

/// The proposed changes.
#[derive(Debug)]
pub(super) struct Proposal {
    /// What kind of file was named.
    pub(super) kind: &'static str,
    /// All files; those without edits stay.
    pub(super) changes: Vec<Change>,
    /// What the user should know.
    pub(super) notes: Vec<String>,
    /// What `ebb check` says of the result.
    pub(super) check: Option<Check>,
    /// Where a copy of our library has to go.
    pub(super) library: Option<PathBuf>,
}

impl Change {
    pub(super) fn of(path: &Path, before: Option<String>, edits: Vec<Edit>) -> Self {
        Self { path: path.to_owned(), name: path.display().to_string(), before, edits }
    }

    pub(super) fn is_change(&self) -> bool {
        !self.edits.is_empty()
    }

    pub(super) fn after(&self) -> String {
        apply(self.before.as_deref().unwrap_or_default(), &self.edits)
    }
}

/// A text that is worth a look: files that start services are short.
pub(super) fn read(path: &Path) -> Result<String, Failure> {
    const MOST_BYTES: u64 = 1 << 20;
    let unusable = |why: String| Failure::usage(format!("{}: {why}", path.display()));
    let meta = fs::metadata(path).map_err(|error| unusable(error.to_string()))?;
    if !meta.is_file() {
        return Err(unusable("it is not a file".to_owned()).remedy("name the file that starts the service"));
    }
    if meta.len() > MOST_BYTES {
        return Err(
            unusable(format!("it has {} bytes, too many for such a file", meta.len())).remedy("nothing was changed")
        );
    }
    let text = fs::read_to_string(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => Failure::new(Exit::Permission, format!("{}: {error}", path.display())),
        std::io::ErrorKind::InvalidData => unusable("it is not text".to_owned()).remedy("nothing was changed"),
        _ => unusable(error.to_string()).remedy("nothing was changed"),
    })?;
    if text.trim().is_empty() {
        return Err(unusable("it is empty".to_owned()).remedy("nothing was changed"));
    }
    Ok(text)
}
