//! The log: files of JSON lines, one after another, their writer, and the two ways in which they are read.

use crate::overview::Overview;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::fs::{File, OpenOptions};
use tokio::io::{AsyncBufReadExt, AsyncSeekExt, AsyncWriteExt, BufReader};
use tokio::sync::Mutex;

/// Seconds in a day.
const DAY_S: u64 = 86_400;

/// One request that came, as it is logged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Seconds since 1970.
    pub at: u64,
    /// Who.
    pub address: String,
    /// GET and the like.
    pub method: String,
    /// What was asked for, with its query.
    pub path: String,
    /// What was answered.
    pub status: u16,
    /// Rule that the request broke.
    pub rule: Option<String>,
    /// Its other data.
    pub headers: BTreeMap<String, String>,
}

/// The log with its one writer: files with numbers for names; the last one is written to.
#[derive(Debug)]
pub struct Journal {
    folder: PathBuf,
    /// A file that has grown longer is followed by a new one.
    most_bytes: u64,
    /// How many files the dashboard shows.
    shown: usize,
    writer: Mutex<Writer>,
    /// What the readers of the tail have found so far, by file.
    seen: Mutex<BTreeMap<u64, Seen>>,
}

#[derive(Debug)]
struct Writer {
    number: u64,
    file: File,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Seen {
    /// The end of the last whole line.
    offset: u64,
    overview: Overview,
}

impl Journal {
    /// Opens it, at the end of its last file.
    pub fn open(folder: &Path, most_bytes: u64, shown: usize) -> Result<Journal, String> {
        let problem = |error: io::Error| format!("{}: {error}", folder.display());
        std::fs::create_dir_all(folder).map_err(problem)?;
        let last = numbers(folder).map_err(problem)?.last().copied();
        let number = last.unwrap_or_else(today);
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path(folder, number)).map_err(problem)?;
        let bytes = file.metadata().map_err(problem)?.len();
        let file = File::from_std(file);
        Ok(Journal {
            folder: folder.to_owned(),
            most_bytes,
            shown,
            writer: Mutex::new(Writer { number, file, bytes }),
            seen: Mutex::default(),
        })
    }

    /// Adds a line.
    pub async fn append(&self, entry: &Entry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        let mut writer = self.writer.lock().await;
        if writer.bytes >= self.most_bytes {
            writer.number += 1;
            let next = path(&self.folder, writer.number);
            let mut options = OpenOptions::new();
            writer.file = options.create(true).append(true).open(next).await?;
            writer.bytes = 0;
        }
        writer.bytes += line.len() as u64;
        writer.file.write_all(&line).await?;
        writer.file.flush().await
    }

    /// Every entry that is shown, as the case's service read them: file after file, each as a whole. A
    /// line that is no entry is left out.
    pub async fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for number in self.shown()? {
            let text = tokio::fs::read_to_string(path(&self.folder, number)).await?;
            let found = text.lines().map(serde_json::from_str::<Entry>);
            entries.extend(found.filter_map(Result::ok));
        }
        Ok(entries)
    }

    /// The figures of the same entries, of which only new ones are read, one line at a time.
    pub async fn overview(&self) -> io::Result<Overview> {
        let numbers = self.shown()?;
        let mut seen = self.seen.lock().await;
        seen.retain(|number, _| numbers.contains(number));
        let mut sum = Overview::default();
        for number in numbers {
            let seen = seen.entry(number).or_default();
            seen.read_on(&path(&self.folder, number)).await?;
            sum.merge(&seen.overview);
        }
        Ok(sum)
    }

    fn shown(&self) -> io::Result<Vec<u64>> {
        let numbers = numbers(&self.folder)?;
        Ok(numbers[numbers.len().saturating_sub(self.shown)..].to_vec())
    }
}

impl Seen {
    /// Adds up the lines that came since.
    async fn read_on(&mut self, path: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new().read(true).open(path).await?;
        file.seek(io::SeekFrom::Start(self.offset)).await?;
        let mut reader = BufReader::new(file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line).await?;
            if line.last() != Some(&b'\n') {
                // The end, or a line that is still being written.
                return Ok(());
            }
            self.offset += read as u64;
            if let Ok(entry) = serde_json::from_slice(&line) {
                self.overview.add(&entry);
            }
        }
    }
}

/// The first file has the number of the day since 1970, so that there is room for older ones.
fn today() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(1, |since| since.as_secs() / DAY_S)
}

fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number}.jsonl"))
}

/// The numbers of the files, the oldest first.
fn numbers(folder: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for file in std::fs::read_dir(folder)? {
        let name = file?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".jsonl"));
        numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub fn entry(number: u64) -> Entry {
        Entry {
            at: 1_750_000_000 + number,
            address: format!("203.0.113.{}", number % 7),
            method: "GET".into(),
            path: format!("/wp-login.php?n={}", number % 3),
            status: 404,
            rule: (number % 2 == 0).then(|| "wordpress".into()),
            headers: BTreeMap::from([("user-agent".into(), "probe".into())]),
        }
    }

    #[tokio::test]
    async fn both_ways_of_reading_give_the_same_figures() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path(), 4000, 3).unwrap();
        for round in 1..=6 {
            for number in 0..20 {
                journal.append(&entry(round * 20 + number)).await.unwrap();
            }
            let whole = Overview::of(&journal.entries().await.unwrap());
            assert_eq!(journal.overview().await.unwrap(), whole);
            assert!(whole.requests <= round * 20 && whole.requests >= 20);
        }
        assert!(numbers(folder.path()).unwrap().len() > 3, "older files are not shown");
    }

    #[tokio::test]
    async fn half_a_line_waits_and_a_broken_one_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = path(folder.path(), 1);
        let line = serde_json::to_string(&entry(1)).unwrap();
        let (half, rest) = line.split_at(20);
        std::fs::write(&path, format!("{line}\nno entry\n{half}")).unwrap();
        let journal = Journal::open(folder.path(), 4000, 3).unwrap();
        assert_eq!(journal.overview().await.unwrap().requests, 1);
        std::fs::write(&path, format!("{line}\nno entry\n{half}{rest}\n")).unwrap();
        assert_eq!(journal.overview().await.unwrap().requests, 2);
        assert_eq!(journal.entries().await.unwrap().len(), 2);
    }
}
