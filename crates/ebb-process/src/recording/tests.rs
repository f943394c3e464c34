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
    let times = [
        "2026-11-20T23:59:00Z",
        "2026-11-21T00:00:00Z",
        "2026-11-21T12:00:00.250Z",
        "2026-11-22T00:00:00Z",
    ];
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
        assert_eq!(
            (rss.len(), notes.len()),
            (if cut == whole.len() - 1 { 2 } else { 1 }, lost),
            "{cut}"
        );
        // The next record begins a line of its own.
        let mut writer = Writer::open(folder.path(), KEEP).unwrap();
        writer.append(&record(at("2026-11-21T10:02:00Z"), 7)).unwrap();
        let (rss, notes) = read_rss(folder.path());
        assert_eq!((rss.last(), notes.len()), (Some(&7), lost), "{cut}");
    }
    fs::write(&plain, &whole[..first + 50]).unwrap();
    let note = read_rss(folder.path()).1.remove(0);
    assert!(
        note.ends_with("2026-11-21.jsonl: 1 record was cut off by a crash and left out"),
        "{note}"
    );
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
            let time = Timestamp::from_millisecond(
                1000 * (begin + day * 86_400 + minute * 60) + random.i64(0..20),
            )
            .unwrap();
            lines +=
                &serde_json::to_string(&record(time, 4096 * random.u64(100_000..130_000))).unwrap();
            lines.push('\n');
        }
        let date = day_of(day, begin);
        fs::write(folder.path().join(format!("{date}{PLAIN}")), lines).unwrap();
    }
    let today = day_of(29, begin);
    rotate(folder.path(), today, KEEP * 10).unwrap();
    let files = days(folder.path()).unwrap();
    let size = |files: &mut dyn Iterator<Item = &PathBuf>| {
        files.map(|it| fs::metadata(it).unwrap().len()).sum::<u64>()
    };
    let all = size(&mut files.values().flatten());
    let plain = size(&mut files[&today].iter());
    println!("30 days: {all} bytes, today {plain}, a packed day {}", (all - plain) / 29);
    assert!(all < 3_000_000, "{all} bytes for 30 days");
    assert_eq!(read(folder.path()).unwrap().records.len(), 30 * 1440);
}

fn day_of(day: i64, begin: i64) -> Date {
    super::day(Timestamp::from_second(begin + day * 86_400).unwrap())
}
