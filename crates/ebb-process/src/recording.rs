//! A recording: a folder with one file of records for each day (UTC), which one program writes and others read.
//!
//! Today's file is JSON lines, one record each, written with one call and then synced: a crash cuts off the last line at most.
//! Files of past days are compressed with gzip, under another name first. If a crash leaves both, they are read as one.
//! Any tool reads them: `zcat -f DIR/* | jq`.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use nix::fcntl::{Flock, FlockArg};

use crate::record::Record;
use crate::whole_file;

const PLAIN: &str = ".jsonl";
const PACKED: &str = ".jsonl.gz";

/// The writer of a recording; there is one at a time.
#[derive(Debug)]
pub struct Writer {
    folder: PathBuf,
    keep: Duration,
    today: Option<(Date, File)>,
    /// Holds the lock.
    _lock: Flock<File>,
}

/// Why a recording cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum NotOpened {
    /// Another program writes it.
    #[error("another ebb snap writes to this folder")]
    InUse,
    /// The system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Writer {
    /// Opens the folder, which is created if needed. Days older than `keep` are deleted.
    pub fn open(folder: &Path, keep: Duration) -> Result<Self, NotOpened> {
        fs::create_dir_all(folder)?;
        let lock = Flock::lock(File::open(folder)?, FlockArg::LockExclusiveNonblock);
        let lock = lock.map_err(|(_, errno)| match errno {
            nix::errno::Errno::EWOULDBLOCK => NotOpened::InUse,
            errno => NotOpened::Io(errno.into()),
        })?;
        Ok(Self { folder: folder.to_owned(), keep, today: None, _lock: lock })
    }

    /// Adds a record.
    pub fn append(&mut self, record: &Record) -> io::Result<()> {
        let day = day(record.at);
        let file = match &mut self.today {
            Some((today, file)) if *today == day => file,
            today => {
                let file = open_plain(&self.folder, day)?;
                rotate(&self.folder, day, self.keep)?;
                &mut today.insert((day, file)).1
            }
        };
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        file.write_all(&line)?;
        file.sync_data()
    }
}

fn day(at: Timestamp) -> Date {
    at.to_zoned_datetime(TimeZone::UTC).date()
}

/// Opens a day's file for more records. A line that a crash cut off is ended.
fn open_plain(folder: &Path, day: Date) -> io::Result<File> {
    let path = folder.join(format!("{day}{PLAIN}"));
    let mut file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
    let mut last = [b'\n'];
    if file.seek(SeekFrom::End(0))? > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    if last != [b'\n'] {
        file.write_all(b"\n")?;
    }
    Ok(file)
}

/// Compresses the days before `today`, deletes older ones than `keep`.
fn rotate(folder: &Path, today: Date, keep: Duration) -> io::Result<()> {
    let oldest = today.checked_sub(keep).unwrap_or(Date::MIN);
    for (day, files) in days(folder)? {
        if day < oldest {
            files.iter().try_for_each(fs::remove_file)?;
            continue;
        }
        let Some(plain) = files.iter().find(|_| day < today).filter(|it| !is_packed(it)) else {
            continue;
        };
        let mut lines = Lines::default();
        files.iter().for_each(|path| lines.add(path));
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        for line in lines.in_order() {
            packed.write_all(line.as_bytes())?;
            packed.write_all(b"\n")?;
        }
        whole_file::replace(&folder.join(format!("{day}{PACKED}")), &packed.finish()?, None)?;
        fs::remove_file(plain)?;
    }
    Ok(())
}

fn is_packed(path: &Path) -> bool {
    path.extension().is_some_and(|it| it == "gz")
}

/// The files of each day, the plain one first.
fn days(folder: &Path) -> io::Result<BTreeMap<Date, Vec<PathBuf>>> {
    let mut days: BTreeMap<Date, Vec<PathBuf>> = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let date = name.strip_suffix(PLAIN).or_else(|| name.strip_suffix(PACKED));
        if let Some(date) = date.and_then(|date| date.parse().ok()) {
            days.entry(date).or_default().push(entry.path());
        }
    }
    days.values_mut().for_each(|files| files.sort());
    Ok(days)
}

/// Lines of one day, each once.
#[derive(Default)]
struct Lines {
    lines: Vec<String>,
    broken: Vec<PathBuf>,
}

impl Lines {
    fn add(&mut self, path: &Path) {
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|mut file| match is_packed(path) {
            true => MultiGzDecoder::new(file).read_to_end(&mut bytes),
            false => file.read_to_end(&mut bytes),
        });
        if read.is_err() {
            // What was read until then is good.
            self.broken.push(path.to_owned());
        }
        self.lines.extend(String::from_utf8_lossy(&bytes).lines().map(str::to_owned));
    }

    fn in_order(mut self) -> Vec<String> {
        self.lines.sort();
        self.lines.dedup();
        self.lines
    }
}

/// Records of a time.
#[derive(Debug, Default)]
pub struct Recording {
    /// By their time.
    pub records: Vec<Record>,
    /// What could not be read, one sentence each.
    pub notes: Vec<String>,
}

/// Reads all records.
pub fn read(folder: &Path) -> io::Result<Recording> {
    Ok(of_days(days(folder)?.values()))
}

/// The newest record. Only its day is read.
pub fn last(folder: &Path) -> io::Result<Option<Record>> {
    let days = days(folder)?;
    Ok(days.values().rev().find_map(|files| of_days([files]).records.pop()))
}

fn of_days<'a>(days: impl IntoIterator<Item = &'a Vec<PathBuf>>) -> Recording {
    let mut recording = Recording::default();
    for files in days {
        let mut lines = Lines::default();
        files.iter().for_each(|path| lines.add(path));
        for path in &lines.broken {
            recording.notes.push(format!("{}: only a part could be read", path.display()));
        }
        let mut unreadable = 0;
        for line in lines.in_order() {
            match serde_json::from_str(&line) {
                Ok(record) => recording.records.push(record),
                Err(_) => unreadable += usize::from(!line.is_empty()),
            }
        }
        if let (1.., Some(path)) = (unreadable, files.first()) {
            let records = if unreadable == 1 {
                "1 record was"
            } else {
                &format!("{unreadable} records were")
            };
            recording
                .notes
                .push(format!("{}: {records} cut off by a crash and left out", path.display()));
        }
    }
    recording.records.sort_by_key(|record| record.at);
    recording
}

#[cfg(test)]
mod tests;
