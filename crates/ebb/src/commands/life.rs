//! The file of a program's marked points: JSON lines, one snapshot with a label each. Written by `ebb snap --label`, read by
//! `ebb diff`.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::exit::{Exit, Failure};
use ebb_process::snapshot::Snapshot;

/// The text of the file with one point more.
pub(super) fn with(file: &Path, snapshot: &Snapshot) -> Result<String, Failure> {
    let mut text = match fs::read_to_string(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        result => result.map_err(|error| Failure::at(Exit::NotWritten, file, error))?,
    };
    // What is no such file is somebody's.
    points(file, &text)?;
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text + &serde_json::to_string(snapshot)? + "\n")
}

/// The points in order, with their labels.
pub(super) fn read(file: &Path) -> Result<Vec<(String, Snapshot)>, Failure> {
    let text = fs::read_to_string(file).map_err(|error| Failure::at(Exit::Usage, file, error))?;
    let points = points(file, &text)?;
    if points.len() < 2 {
        return Err(unusable(file, "it has fewer than two marked points"));
    }
    Ok(points)
}

fn points(file: &Path, text: &str) -> Result<Vec<(String, Snapshot)>, Failure> {
    let point = |line: &str| {
        let snapshot =
            Snapshot::from_json(line).map_err(|error| unusable(file, &format!("no marked point: {error}")))?;
        let label = snapshot.label.clone();
        Ok((label.ok_or_else(|| unusable(file, "a snapshot without a label"))?, snapshot))
    };
    text.lines().map(point).collect()
}

fn unusable(file: &Path, why: &str) -> Failure {
    Failure::at(Exit::Usage, file, why).remedy("name a file of `ebb snap --label`, or two files of `ebb snap`")
}
