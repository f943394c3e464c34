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
            let records = if unreadable == 1 { "1 record was" } else { &format!("{unreadable} records were") };
            recording.notes.push(format!("{}: {records} cut off by a crash and left out", path.display()));
        }
    }
    recording.records.sort_by_key(|record| record.at);
    recording
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{FORMAT, Group, Replica};

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn record(at: Timestamp, rss: u64) -> Record {
        Record {
            format: FORMAT,
            at,
            every_s: 60.0,
            target: "gunicorn".into(),
            replicas: vec![Replica {
                pid: 4711,
                started: 123_456,
                processes: 5,
                rss: Some(rss),
                anon: Some(rss / 10 * 9),
                swap: Some(0),
                allocator: Some("glibc".into()),
                cgroup: Some(Group {
                    path: "/kubepods.slice/kubepods-pod1234.slice/cri-containerd-5678.scope".into(),
                    others: 0,
                    usage: Some(rss + 40_000_000),
                    inactive_file: Some(30_000_000),
                    limit: Some(1 << 30),
                    limit_usage: Some(rss + 40_000_000),
                    oom_kills: Some(0),
                }),
            }],
        }
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    fn read_rss(folder: &Path) -> (Vec<u64>, Vec<String>) {
        let recording = read(folder).unwrap();
        let rss = recording.records.iter().map(|record| record.replicas[0].rss.unwrap());
        (rss.collect(), recording.notes)
    }

    const KEEP: Duration = Duration::from_secs(3 * 86_400);

    #[test]
    fn a_day_that_is_over_is_packed_and_an_old_one_is_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("new/recording");
        let mut writer = Writer::open(&folder, KEEP).unwrap();
        let times =
            ["2026-11-20T23:59:00Z", "2026-11-21T00:00:00Z", "2026-11-21T12:00:00.250Z", "2026-11-22T00:00:00Z"];
        for (rss, time) in times.into_iter().enumerate() {
            writer.append(&record(at(time), rss as u64)).unwrap();
        }
        assert_eq!(names(&folder), ["2026-11-20.jsonl.gz", "2026-11-21.jsonl.gz", "2026-11-22.jsonl"]);
        assert_eq!(read_rss(&folder), (vec![0, 1, 2, 3], vec![]));
        writer.append(&record(at("2026-11-24T00:00:00Z"), 4)).unwrap();
        assert_eq!(names(&folder), ["2026-11-21.jsonl.gz", "2026-11-22.jsonl.gz", "2026-11-24.jsonl"]);
        assert!(matches!(Writer::open(&folder, KEEP), Err(NotOpened::InUse)));
        drop(writer);
        assert!(Writer::open(&folder, KEEP).is_ok());
    }

    #[test]
    fn a_crash_loses_one_record_at_most() {
        let folder = tempfile::tempdir().unwrap();
        let plain = folder.path().join("2026-11-21.jsonl");
        let mut writer = Writer::open(folder.path(), KEEP).unwrap();
        for (rss, time) in ["2026-11-21T10:00:00Z", "2026-11-21T10:01:00Z"].into_iter().enumerate() {
            writer.append(&record(at(time), rss as u64)).unwrap();
        }
        drop(writer);
        let whole = fs::read(&plain).unwrap();
        let first = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        // Cut off at every place in the second record.
        for cut in first..whole.len() {
            fs::write(&plain, &whole[..cut]).unwrap();
            let (rss, notes) = read_rss(folder.path());
            let lost = usize::from(cut > first && cut < whole.len() - 1);
            assert_eq!((rss.len(), notes.len()), (if cut == whole.len() - 1 { 2 } else { 1 }, lost), "{cut}");
            // The next record begins a line of its own.
            let mut writer = Writer::open(folder.path(), KEEP).unwrap();
            writer.append(&record(at("2026-11-21T10:02:00Z"), 7)).unwrap();
            let (rss, notes) = read_rss(folder.path());
            assert_eq!((rss.last(), notes.len()), (Some(&7), lost), "{cut}");
        }
        fs::write(&plain, &whole[..first + 50]).unwrap();
        let note = read_rss(folder.path()).1.remove(0);
        assert!(note.ends_with("2026-11-21.jsonl: 1 record was cut off by a crash and left out"), "{note}");
    }

    #[test]
    fn a_crash_between_packing_and_removing_counts_nothing_twice() {
        let folder = tempfile::tempdir().unwrap();
        let (plain, day) = (folder.path().join("2026-11-21.jsonl"), "2026-11-21T10:00:00Z");
        Writer::open(folder.path(), KEEP).unwrap().append(&record(at(day), 1)).unwrap();
        let lines = fs::read(&plain).unwrap();
        let next = || {
            let mut writer = Writer::open(folder.path(), KEEP).unwrap();
            writer.append(&record(at("2026-11-22T10:00:00Z"), 2)).unwrap();
        };
        next();
        // As if the plain file had not been removed, with a record that came later, from a clock that was set back.
        let later = serde_json::to_string(&record(at("2026-11-21T10:01:00Z"), 3)).unwrap();
        fs::write(&plain, [&lines[..], later.as_bytes(), b"\n"].concat()).unwrap();
        assert_eq!(read_rss(folder.path()).0, [1, 3, 2]);
        next();
        assert_eq!(names(folder.path()), ["2026-11-21.jsonl.gz", "2026-11-22.jsonl"]);
        assert_eq!(read_rss(folder.path()).0, [1, 3, 2]);
        let packed = folder.path().join("2026-11-21.jsonl.gz");
        let bytes = fs::read(&packed).unwrap();
        fs::write(&packed, &bytes[..bytes.len() - 9]).unwrap();
        let note = read_rss(folder.path()).1.remove(0);
        assert!(note.ends_with("only a part could be read"), "{note}");
    }

    #[test]
    fn a_month_of_one_record_a_minute_is_a_few_megabytes() {
        let folder = tempfile::tempdir().unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        let begin = at("2026-11-01T00:00:00Z").as_second();
        for day in 0..30 {
            let mut lines = String::new();
            for minute in 0..1440 {
                let time = Timestamp::from_millisecond(1000 * (begin + day * 86_400 + minute * 60) + random.i64(0..20))
                    .unwrap();
                lines += &serde_json::to_string(&record(time, 4096 * random.u64(100_000..130_000))).unwrap();
                lines.push('\n');
            }
            let date = day_of(day, begin);
            fs::write(folder.path().join(format!("{date}{PLAIN}")), lines).unwrap();
        }
        let today = day_of(29, begin);
        rotate(folder.path(), today, KEEP * 10).unwrap();
        let files = days(folder.path()).unwrap();
        let size =
            |files: &mut dyn Iterator<Item = &PathBuf>| files.map(|it| fs::metadata(it).unwrap().len()).sum::<u64>();
        let all = size(&mut files.values().flatten());
        let plain = size(&mut files[&today].iter());
        println!("30 days: {all} bytes, today {plain}, a packed day {}", (all - plain) / 29);
        assert!(all < 3_000_000, "{all} bytes for 30 days");
        assert_eq!(read(folder.path()).unwrap().records.len(), 30 * 1440);
    }

    fn day_of(day: i64, begin: i64) -> Date {
        super::day(Timestamp::from_second(begin + day * 86_400).unwrap())
    }
}
