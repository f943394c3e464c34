//! What one start of a container gives it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where a library lies in a container. `/dev` is a file system in memory of every container, so that the image may be
/// read-only, and nothing is left in an unpacked root.
const LIBRARIES: &str = "/dev/ebb";

/// One start of a container.
#[derive(Debug)]
pub struct Start<'a> {
    /// Its name.
    pub name: &'a str,
    /// In place of the image's own arguments, where there are any.
    pub arguments: &'a [String],
    /// Added to the image's environment.
    pub env: &'a BTreeMap<String, String>,
    /// Files of this machine that are seen in it.
    pub mounts: &'a [Mounted],
    /// An empty folder, which stays until the container is gone.
    pub dir: &'a Path,
}

/// A file of this machine that is seen in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// Here.
    pub from: PathBuf,
    /// In the container.
    pub to: PathBuf,
}

impl Mounted {
    /// A library, at the place where libraries of a trial are seen.
    pub fn library(from: PathBuf) -> Mounted {
        let to = Path::new(LIBRARIES).join(from.file_name().unwrap_or_default());
        Mounted { from, to }
    }
}
