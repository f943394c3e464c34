//! What `ebb fix --write` has written, so that `--undo` can take back exactly that. One record per file that was
//! named, in the user's state folder: nothing is left next to the file, where a builder would take it
//! along.
//!
//! A file that is as it was written gets its old bytes back. In one that was changed since, what was written
//! is taken out of its surroundings, where those are still there, and everything else stays.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::change::Change;
use super::write::{at, changed, holds, replace};
use crate::exit::{Exit, Failure};
use ebb_deploy::fix::edit;
use ebb_deploy::fix::report::File;

/// The version of the record.
const FORMAT: u32 = 1;

/// All that was written by way of one file.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    format: u32,
    file: PathBuf,
    /// The oldest first.
    written: Vec<Written>,
}

/// What one call wrote.
#[derive(Debug, Serialize, Deserialize)]
struct Written {
    texts: Vec<Text>,
    /// A library that was copied, with its length and checksum.
    library: Option<(PathBuf, u64, u64)>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Text {
    path: PathBuf,
    /// None where it was made.
    before: Option<String>,
    after: String,
    /// Old and new text, by the place in the old text.
    pieces: Vec<(usize, String, String)>,
    /// A folder that was made for it.
    folder: Option<PathBuf>,
}

/// Writes the changes and the library, and the record of both first.
pub(super) fn write(named: &Path, changes: &[Change], library: Option<&(PathBuf, PathBuf)>) -> Result<(), Failure> {
    let changes: Vec<&Change> = changes.iter().filter(|it| it.is_change()).collect();
    for change in &changes {
        if !holds(&change.path, change.before.as_deref().map(str::as_bytes)) {
            return Err(changed(&change.path));
        }
    }
    let (place, mut record) = open(named)?;
    let texts = changes.iter().map(|it| text_of(it)).collect::<Result<Vec<Text>, _>>()?;
    let copy = library.map(|(from, to)| read_library(from, to)).transpose()?.flatten();
    let copied = copy.as_ref().map(|(to, bytes)| (absolute(to), bytes.len() as u64, checksum(bytes)));
    record.written.push(Written { texts, library: copied });
    save(&place, &record)?;
    let done =
        write_texts(&changes, &record).and_then(|()| copy.map_or(Ok(()), |(to, bytes)| replace(&to, None, &bytes)));
    if done.is_err()
        && let Some(last) = record.written.last()
        && restore(last).is_ok()
    {
        // Files written until then are restored; the record keeps the old text where that fails, too.
        record.written.pop();
        save(&place, &record)?;
    }
    done
}

fn write_texts(changes: &[&Change], record: &Record) -> Result<(), Failure> {
    for (number, change) in changes.iter().enumerate() {
        let folder = record.written.last().and_then(|it| it.texts[number].folder.as_ref());
        if let Some(folder) = folder {
            fs::create_dir(folder).map_err(|error| at(folder, &error))?;
        }
        let before = change.before.as_deref().map(str::as_bytes);
        replace(&change.path, before, change.after().as_bytes())?;
    }
    Ok(())
}

fn text_of(change: &Change) -> Result<Text, Failure> {
    let path = absolute(&change.path);
    let before = change.before.clone().unwrap_or_default();
    let mut edits: Vec<_> = change.edits.iter().collect();
    edits.sort_by_key(|it| it.at.start);
    let pieces = edits.iter().map(|it| (it.at.start, before[it.at.clone()].to_owned(), it.text.clone())).collect();
    let folder = path.parent().filter(|it| !it.exists()).map(Path::to_owned);
    if let Some(above) = folder.as_deref().and_then(Path::parent).filter(|it| !it.is_dir()) {
        return Err(Failure::usage(format!("{}: no such folder", above.display())));
    }
    Ok(Text { path, before: change.before.clone(), after: change.after(), pieces, folder })
}

/// The library's bytes; none where the same ones are there already.
fn read_library(from: &Path, to: &Path) -> Result<Option<(PathBuf, Vec<u8>)>, Failure> {
    let bytes = fs::read(from).map_err(|error| at(from, &error))?;
    match fs::read(to) {
        Ok(there) if there == bytes => Ok(None),
        Ok(_) => Err(Failure::new(Exit::Changed, format!("{} already exists, and is another library", to.display()))
            .remedy("move it away; nothing was written")),
        Err(_) => Ok(Some((to.to_owned(), bytes))),
    }
}

/// Takes back what the last call wrote by way of this file.
pub(super) fn undo(named: &Path) -> Result<(Vec<File>, Vec<String>), Failure> {
    let (place, mut record) = open(named)?;
    let Some(last) = record.written.last() else {
        return Err(Failure::usage(format!("ebb fix has written nothing to {}", named.display()))
            .remedy(format!("the records of its changes are in {}", place.parent().unwrap_or(&place).display())));
    };
    let files = restore(last)?;
    record.written.pop();
    if record.written.is_empty() {
        fs::remove_file(&place).map_err(|error| at(&place, &error))?;
    } else {
        save(&place, &record)?;
    }
    let again = record.written.len();
    let mut notes: Vec<String> =
        files.iter().filter(|it| it.diff.is_empty()).map(|it| format!("{} is removed", it.path)).collect();
    notes.push(if again == 0 { "undone".to_owned() } else { format!("undone; {again} earlier change is still there") });
    Ok((files, notes))
}

/// Looks at every file before it touches one.
fn restore(written: &Written) -> Result<Vec<File>, Failure> {
    let mut planned = Vec::new();
    for text in &written.texts {
        let now = match fs::read_to_string(&text.path) {
            Ok(now) => now,
            // It was made by us and is gone.
            Err(_) if text.before.is_none() => continue,
            Err(error) => return Err(at(&text.path, &error)),
        };
        if text.before.as_deref() == Some(now.as_str()) {
            continue;
        }
        let then = if now == text.after { text.before.clone() } else { Some(without(text, &now)?) };
        planned.push((text, now, then));
    }
    let mut files = Vec::new();
    for (text, now, then) in planned {
        let name = text.path.display().to_string();
        match &then {
            Some(then) => replace(&text.path, Some(now.as_bytes()), then.as_bytes())?,
            None => {
                fs::remove_file(&text.path).map_err(|error| at(&text.path, &error))?;
                if let Some(folder) = &text.folder {
                    // Somebody else may have put something there.
                    let _ = fs::remove_dir(folder);
                }
            }
        }
        let diff = edit::diff(&name, Some(&now), then.as_deref().unwrap_or_default());
        files.push(File { path: name, created: false, diff, lines: Vec::new() });
    }
    if let Some((path, length, sum)) = &written.library
        && let Ok(bytes) = fs::read(path)
        && bytes.len() as u64 == *length
        && checksum(&bytes) == *sum
    {
        fs::remove_file(path).map_err(|error| at(path, &error))?;
        files.push(File { created: false, ..File::library(path) });
    }
    Ok(files)
}

/// A text that was changed since, without what we wrote: each piece must be there once, between the lines it was
/// written between.
fn without(text: &Text, now: &str) -> Result<String, Failure> {
    let failure = || {
        Failure::new(Exit::Changed, format!("{} was changed where ebb fix wrote", text.path.display()))
            .remedy("nothing was undone: undo it by hand, or with version control")
    };
    let mut now = now.to_owned();
    let mut grown = 0_isize;
    for (start, removed, inserted) in &text.pieces {
        let at = start.checked_add_signed(grown).filter(|it| *it <= text.after.len()).ok_or_else(failure)?;
        grown += inserted.len() as isize - removed.len() as isize;
        let end = at + inserted.len();
        let from = text.after[..at].trim_end_matches('\n').rfind('\n').map_or(0, |it| it + 1);
        let to = text.after[end..].find('\n').map_or(text.after.len(), |it| end + it + 1);
        let places = [(from, to), (at, end)].into_iter().filter(|(from, to)| from < to && !inserted.is_empty());
        let found = places.filter_map(|(from, to)| {
            let wanted = &text.after[from..to];
            let place = now.find(wanted)?;
            (now.rfind(wanted) == Some(place)).then_some(place + (at - from))
        });
        let place = found.into_iter().next().ok_or_else(failure)?;
        now.replace_range(place..place + inserted.len(), removed);
    }
    Ok(now)
}

/// The record of a file, and where it lies.
fn open(named: &Path) -> Result<(PathBuf, Record), Failure> {
    let file = fs::canonicalize(named).map_err(|error| Failure::usage(format!("{}: {error}", named.display())))?;
    let folder = state_folder()?;
    let name = file.file_name().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default();
    let place = folder.join(format!("{name}-{:016x}.json", checksum(file.as_os_str().as_encoded_bytes())));
    let empty = Record { format: FORMAT, file: file.clone(), written: Vec::new() };
    let text = match fs::read_to_string(&place) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((place, empty)),
        Err(error) => return Err(unrecorded(&place, &error)),
    };
    let unusable =
        |why: String| Failure::usage(format!("{}: {why}", place.display())).remedy("delete it if it is not needed");
    let record: Record = serde_json::from_str(&text).map_err(|error| unusable(error.to_string()))?;
    if record.format != FORMAT || record.file != file {
        return Err(unusable("it is the record of another file".to_owned()));
    }
    Ok((place, record))
}

fn save(place: &Path, record: &Record) -> Result<(), Failure> {
    let folder = place.parent().unwrap_or(place);
    fs::create_dir_all(folder).map_err(|error| unrecorded(folder, &error))?;
    let text = serde_json::to_string(record).map_err(|error| Failure::new(Exit::Internal, error.to_string()))?;
    let before = fs::read(place).ok();
    replace(place, before.as_deref(), text.as_bytes())
}

fn unrecorded(path: &Path, error: &std::io::Error) -> Failure {
    at(path, error).remedy("changes are recorded there for --undo: set XDG_STATE_HOME; nothing was written")
}

/// `$XDG_STATE_HOME/ebb/fix`, else below the home folder.
fn state_folder() -> Result<PathBuf, Failure> {
    let set = |name: &str| env::var_os(name).map(PathBuf::from).filter(|it| it.is_absolute());
    let base = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|it| it.join(".local/state")));
    base.map(|it| it.join("ebb/fix")).ok_or_else(|| {
        Failure::usage("neither XDG_STATE_HOME nor HOME is set, so the change cannot be recorded")
            .remedy("set one of them; nothing was written")
    })
}

/// FNV-1a: tells one path or library from another, no more.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn absolute(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (fs::canonicalize(parent), path.file_name()) {
        (Ok(parent), Some(name)) => parent.join(name),
        _ => std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
    }
}
