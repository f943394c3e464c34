//! Folders of both versions and this process's own cgroup. Those of version 2 are of a real kernel, recorded by
//! `ci/vm/record.sh` (kernel and day: `ci/vm/recorded/machine`); what it cannot be brought to show is written by hand.

use super::*;

/// The recorded cgroups, below one mount: the sections of one file.
fn mount() -> tempfile::TempDir {
    let text = include_str!("../recorded/cgroups.txt");
    let sections = text.split("-- ").skip(1);
    let files = sections.map(|it| it.split_once(" --\n").unwrap());
    folder(&files.collect::<Vec<_>>())
}

fn recorded(below: &str) -> Cgroup {
    place(mount().path(), below, 2).read()
}

/// A folder with the files given, written by hand.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn place(mount: &Path, below: &str, version: u8) -> Place {
    Place { version, mount: mount.to_owned(), folder: mount.join(below), cpu: None }
}

#[test]
fn recorded_version_2_an_app_below_the_limit_of_its_pod_and_short_of_processor_time() {
    let app = recorded("pod/app");
    assert_eq!(app.usage, Some(78_995_456));
    assert_eq!(app.peak, Some(104_169_472));
    assert_eq!((app.high, app.swap), (None, Some(0)));
    assert_eq!(app.limit, Some(256 << 20));
    assert_eq!(app.limit_of.as_deref(), Some("/pod"));
    let parts = &app.parts;
    assert!(parts.anon > Some(64 << 20), "{parts:?}");
    // What is charged is the sum of these three; the kernel brings them up to date one after the other.
    let sum = parts.anon.unwrap() + parts.file.unwrap() + parts.kernel.unwrap();
    assert!(sum.abs_diff(app.usage.unwrap()) < 1 << 20, "{parts:?}");
    assert_eq!(app.stress.throttled_periods, Some(892));
    assert_eq!(app.stress.throttled_s, Some(39.726674));
    assert_eq!(place(mount().path(), "pod/app", 2).throttled_s(), Some(39.726674));
    assert_eq!(place(mount().path(), "pod", 2).throttled_s(), None, "no quota");
}

#[test]
fn recorded_version_2_more_than_memory_high() {
    let high = recorded("high");
    assert_eq!(high.high, Some(32 << 20));
    assert!(high.usage > high.high, "{:?}", high.usage);
    assert_eq!(high.stress.limit_hits, Some(0), "of memory.max");
    assert_eq!(high.stress.memory_some_60, Some(41.82));
    assert_eq!(high.stress.memory_full_60, Some(41.82));
}

#[test]
fn recorded_version_2_somebody_was_killed() {
    let killed = recorded("killed");
    assert_eq!(killed.stress.oom_kills, Some(1));
    assert_eq!(killed.stress.limit_hits, Some(35));
    assert_eq!(killed.peak, killed.limit);
    assert_eq!(place(mount().path(), "killed", 2).oom_kills(), Some(1));
}

#[test]
fn recorded_version_2_partly_in_swap() {
    let swapped = recorded("swapped");
    assert_eq!(swapped.swap, Some(79_106_048));
    assert_eq!(swapped.parts.anon, Some(60_239_872));
    assert_eq!(swapped.stress.limit_hits, Some(278));
    assert_eq!(swapped.stress.memory_some_60, Some(2.51));
}

#[test]
fn version_2_is_read_with_the_lowest_limit_of_its_ancestors() {
    let mount = folder(&[
        ("a/memory.max", "1000000\n"),
        ("a/b/memory.max", "max\n"),
        ("a/b/memory.current", "900000\n"),
        ("a/b/memory.high", "max\n"),
        (
            "a/b/memory.stat",
            "anon 500000\nfile 300000\nkernel 100000\nshmem 20000\nfile_mapped 30000\ninactive_file 200000\nsock 4096\npagetables 8192\n",
        ),
        ("a/b/memory.events", "low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\n"),
        (
            "a/b/memory.pressure",
            "some avg10=0.00 avg60=1.50 avg300=0.00 total=9\nfull avg10=0.00 avg60=0.25 avg300=0.00 total=9\n",
        ),
        ("a/b/cpu.stat", "usage_usec 5\nnr_throttled 3\nthrottled_usec 2500000\n"),
        ("a/b/cgroup.procs", "0\n12\n"),
        ("a/b/c/cgroup.procs", "7\n12\n"),
    ]);
    let cgroup = place(mount.path(), "a/b", 2).read();
    assert_eq!((cgroup.usage, cgroup.high), (Some(900_000), None));
    assert_eq!(cgroup.limit, Some(1_000_000));
    assert_eq!(cgroup.limit_of.as_deref(), Some("/a"));
    assert_eq!(cgroup.parts.anon, Some(500_000));
    assert_eq!(cgroup.parts.inactive_file, Some(200_000));
    assert_eq!(cgroup.parts.sockets, Some(4096));
    assert_eq!(cgroup.parts.slab, None, "absent is not 0");
    assert_eq!(cgroup.stress.limit_hits, Some(7));
    assert_eq!(cgroup.stress.oom_kills, Some(1));
    assert_eq!(cgroup.stress.throttled_s, Some(2.5));
    assert_eq!(cgroup.stress.memory_full_60, Some(0.25));
    assert_eq!(cgroup.pids, [7, 12]);
}

#[test]
fn version_1_is_read_with_its_descendants() {
    let mount = folder(&[
        ("a/memory.usage_in_bytes", "900\n"),
        ("a/memory.limit_in_bytes", "9223372036854771712\n"),
        ("a/memory.stat", "rss 1\ntotal_rss 500\ncache 2\ntotal_cache 300\ntotal_shmem 5\n"),
        ("a/memory.failcnt", "4\n"),
        ("a/cgroup.procs", "1\n"),
    ]);
    let cgroup = place(mount.path(), "a", 1).read();
    assert_eq!(cgroup.limit, None);
    assert_eq!((cgroup.parts.anon, cgroup.parts.file), (Some(500), Some(300)));
    assert_eq!(cgroup.stress.limit_hits, Some(4));
    assert_eq!(cgroup.parts.page_tables, None);
}

#[test]
fn this_process_is_in_its_own_cgroup() {
    let own = std::process::id() as i32;
    let Some(place) = Place::of(own) else {
        // No memory controller is mounted: then there is none of any process.
        assert_eq!(Place::of(1), None);
        return;
    };
    let cgroup = place.read();
    assert!(cgroup.pids.contains(&own), "{}", cgroup.path);
    assert!(cgroup.usage > Some(0) || place.is_root());
}
