//! Workers side by side: the one of twelve that leaks, none where all are alike, and what one more costs. Marked points of a program's
//! life: what each phase left.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;
use test_needs::{needs, skip};

use crate::harness::subjects::{self, Cgroup};
use crate::harness::{self, Finished, Subject, is_long};

/// Sends requests to gunicorn from several threads until `is_enough` of the answers; answers by what was answered.
fn load(port: &str, is_enough: impl Fn(&BTreeMap<String, u32>) -> bool + Sync) -> BTreeMap<String, u32> {
    let end = Instant::now() + Duration::from_secs(300);
    let answers = Mutex::new(BTreeMap::new());
    let request = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(format!("127.0.0.1:{port}"))?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text.rsplit("\r\n").next().unwrap_or_default().trim().to_owned())
    };
    let client = || {
        while !is_enough(&answers.lock().expect("answers")) {
            assert!(Instant::now() < end, "{answers:?}");
            let Ok(answer) = request() else { continue };
            *answers.lock().expect("answers").entry(answer).or_default() += 1;
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(client);
        }
    });
    answers.into_inner().expect("answers")
}

/// Twelve workers after load: gunicorn, and the pid of the worker that leaks.
fn gunicorn(case: &str) -> (Subject, Option<String>) {
    let mut command = Command::new("gunicorn");
    command.arg("-c").arg(subjects::fixtures().join("pool.py"));
    command.env("EBB_CASE", case).env("PYTHONDONTWRITEBYTECODE", "1");
    let mut subject = Subject::start(&mut command);
    let port = subject.line();
    let leaks = |answer: &String| answer.ends_with("leaks");
    let answers = load(&port, |answers| match case {
        "leak" => answers.iter().any(|(answer, count)| leaks(answer) && *count >= 40),
        _ => answers.len() == 12 && answers.values().sum::<u32>() >= 360,
    });
    let leaking = answers.keys().find(|answer| leaks(answer));
    (subject, leaking.and_then(|answer| answer.split(' ').next()).map(str::to_owned))
}

fn pool(json: &Value) -> &Value {
    let pools = json[0]["workers"].as_array().expect("pools");
    pools.iter().find(|pool| pool["workers"].as_array().is_some_and(|it| it.len() >= 4)).expect("a pool")
}

#[test]
fn of_twelve_gunicorn_workers_under_load_the_one_that_leaks_is_named() {
    if !is_long() {
        return;
    }
    needs!("gunicorn");
    let (subject, leaking) = gunicorn("leak");
    let leaking = leaking.expect("a worker that leaks");
    let why = |option: &str| Finished::by(harness::ebb().args(["why", option, &subject.pid()]));
    let report = why("--json").json();
    let pool = pool(&report);
    assert_eq!(pool["outliers"], serde_json::json!([leaking.parse::<i32>().unwrap()]), "{pool:#}");
    let workers = pool["workers"].as_array().expect("workers");
    assert_eq!((workers.len(), &pool["parent"]), (12, &Value::from(subject.id)));
    for worker in workers {
        for figure in ["private", "shared", "live", "held", "interpreter", "total", "peak"] {
            assert!(worker[figure].as_u64().is_some_and(|bytes| bytes > 0), "{figure}: {worker}");
        }
        assert!(worker["age_s"].as_f64().is_some_and(|age| age < 600.0), "{worker}");
        assert_eq!(worker["requests"], Value::Null, "nothing counts them");
    }
    let text = Finished::by(harness::ebb().args(["why", &subject.pid()])).stdout;
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(&format!("gunicorn ({leaking}) differs: ")), "{text}");
    assert!(words.contains(" MB more live than the median; 11 gunicorn of "), "{text}");
    let table = why("-v").stdout;
    assert!(table.contains(&format!("* {leaking} ")), "{table}");
    assert!(table.contains(&format!("gunicorn of parent {}, MB", subject.pid())), "{table}");
}

#[test]
fn of_twelve_gunicorn_workers_that_are_alike_none_is_named() {
    if !is_long() {
        return;
    }
    needs!("gunicorn");
    let (subject, _) = gunicorn("alike");
    for _ in 0..3 {
        let report = Finished::by(harness::ebb().args(["why", "--json", &subject.pid()])).json();
        assert_eq!(pool(&report)["outliers"], serde_json::json!([]), "{:#}", pool(&report));
    }
    let text = Finished::by(harness::ebb().args(["why", &subject.pid()])).stdout;
    assert!(text.contains("12 gunicorn of ") && !text.contains("differs"), "{text}");
}

/// Four forked workers with 10 MB in common and 20 MB each; another one for each line.
const FORKED: &str = "
import os, signal, sys
common = bytearray(os.urandom(1000)) * 10_000
def worker():
    read, write = os.pipe()
    if os.fork() == 0:
        own = bytearray(os.urandom(1000)) * 20_000
        os.write(write, b'x')
        signal.pause()
    os.read(read, 1)
signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
for _ in range(4): worker()
print('ready', flush=True)
for line in sys.stdin:
    worker()
    print('more', flush=True)
os.killpg(0, signal.SIGKILL)
";

#[test]
fn what_one_more_worker_costs_is_what_the_limit_is_charged_for_it() {
    let Some(cgroup) = Cgroup::new("room") else { return };
    if cgroup.limit(300_000_000).is_err() {
        skip!("no right to set a limit");
    }
    let mut python = Command::new("setsid");
    python.args(["python3", "-c", FORKED]);
    let mut subject = Subject::start(&mut cgroup.with(&python));
    let target = subject.pid();
    let report = Finished::by(harness::ebb().args(["why", "--json", &target])).json();
    let room = &pool(&report)["room"];
    let bytes = |name: &str| room[name].as_u64().unwrap_or_else(|| panic!("{name}: {room}"));
    let each = bytes("each");
    assert!((20_000_000..23_000_000).contains(&each), "{room}");
    assert_eq!(bytes("fit_at_floor"), (bytes("limit") - bytes("besides")) / bytes("floor"), "{room}");
    let before = cgroup.usage();
    for _ in 0..4 {
        subject.tell();
        assert_eq!(subject.line(), "more");
    }
    let charged = (cgroup.usage() - before) / 4;
    assert!(charged.abs_diff(each) < each / 5, "{charged} for one more, not {each}");
    let text = Finished::by(harness::ebb().args(["why", &target])).stdout;
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("One more python3 costs 2"), "{text}");
}

/// Each line of stdin starts the next phase.
const LIFE: &str = "
import sys, threading
print('ready', flush=True)

def phase():
    sys.stdin.readline()

phase()
array = bytearray(b'x') * (32 << 20)
print('done', flush=True)
phase()
small = [[number] for number in range(400_000)]
small = small[::2000]
print('done', flush=True)
phase()
sys.setrecursionlimit(20_000)
ready, end = threading.Semaphore(0), threading.Event()
def deep():
    nested = []
    for _ in range(15_000): nested = [nested]
    repr(nested)
    while nested: nested = nested.pop()
    ready.release()
    end.wait()
threads = [threading.Thread(target=deep, daemon=True) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: ready.acquire()
print('done', flush=True)
phase()
";

fn suspect<'a>(phase: &'a Value, what: &str) -> &'a Value {
    let suspects = phase["left"]["suspects"].as_array().expect("suspects");
    suspects.iter().find(|it| it["what"] == what).unwrap_or_else(|| panic!("no {what}: {phase:#}"))
}

#[test]
fn a_python_program_with_an_array_freed_objects_and_threads() {
    let folder = harness::folder();
    let life = folder.path().join("life.json");
    let mut python = Subject::python(LIFE);
    let mark = |label: &str, pid: &str| {
        let mut snap = harness::ebb();
        snap.args(["snap", pid, "--label", label, "-o"]).arg(&life);
        Finished::by(&mut snap).expect(0, &[], &[]);
    };
    mark("imported", &python.pid());
    for label in ["array", "freed", "threads"] {
        python.tell();
        assert_eq!(python.line(), "done");
        mark(label, &python.pid());
    }
    let report = Finished::by(harness::ebb().args(["diff", "--json"]).arg(&life)).json();
    let [first, array, freed, threads] = report["phases"].as_array().expect("phases").as_slice() else {
        panic!("{report:#}");
    };
    assert_eq!((&first["label"], &first["left"]), (&"imported".into(), &Value::Null));
    let mb = |value: &Value| value.as_i64().unwrap_or_else(|| panic!("{report:#}")) as f64 / 1e6;
    let is_out = |phase: &Value, what: &str| suspect(phase, what)["ruled_out"] == true;

    let blocks = "blocks of 1 MiB or more";
    assert!((33.0..36.0).contains(&mb(&array["left"]["live"])), "{array:#}");
    assert!(mb(&array["left"]["held"]).abs() < 2.0, "{array:#}");
    assert_eq!(suspect(array, blocks)["count"], 1, "{array:#}");
    assert!(!is_out(array, blocks), "{array:#}");
    assert!(is_out(array, "stacks") && is_out(array, "objects of the interpreter"), "{array:#}");

    assert!(mb(&freed["left"]["held"]) > 10.0, "{freed:#}");
    assert!(mb(&freed["left"]["live"]) < 3.0, "{freed:#}");
    for what in [blocks, "stacks", "mapped files", "shared memory", "objects of the interpreter"] {
        assert!(is_out(freed, what), "{what}: {freed:#}");
    }

    assert_eq!(suspect(threads, "stacks")["count"], 8, "{threads:#}");
    assert!(!is_out(threads, "stacks") && mb(&suspect(threads, "stacks")["bytes"]) > 4.0, "{threads:#}");
    assert!(is_out(threads, blocks), "{threads:#}");

    let text = Finished::by(harness::ebb().arg("diff").arg(&life));
    let lines = ["imported  ", "\nfreed\n  ruled out: objects of the interpreter ("];
    text.expect(0, &lines, &[]);
    assert!(text.stdout.contains("has a part: blocks of 1 MiB or more (+33.6 MB, +1 block)"), "{}", text.stdout);
}

#[test]
fn what_is_no_file_of_points_is_refused_and_stays() {
    let folder = harness::folder();
    let own = std::process::id().to_string();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (plain, other, one) = (at("plain.json"), at("notes.txt"), at("one.json"));
    std::fs::write(&other, "mine\n").unwrap();
    Finished::by(harness::ebb().args(["snap", &own, "-o", &plain])).expect(0, &[], &[]);
    let label = ["snap", &own, "--label", "a", "-o"];
    Finished::by(harness::ebb().args(label).arg(&one)).expect(0, &[], &[]);
    for (arguments, words) in [
        (vec!["diff", &*one], "fewer than two marked points"),
        (vec!["diff", &*plain], "no marked point"),
        (vec!["diff", &*other], "name a file of `ebb snap --label`, or two files"),
        ([&label[..], &[&*plain]].concat(), "no marked point"),
        ([&label[..], &[&*other]].concat(), "no marked point"),
    ] {
        harness::assert_refused(&harness::output(harness::ebb().args(arguments)), 64, &[words]);
    }
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "mine\n");
    let snap = Finished::by(harness::ebb().args(["snap", &own, "--label", "a\nb", "-o", &one]));
    snap.expect(64, &[], &["letters on one line"]);
    let snap = Finished::by(harness::ebb().args(["snap", &own, "--label", "a"]));
    snap.expect(64, &[], &["--output <FILE>"]);
}

/// Bursts of 120 MB in blocks of 60 kB with rests of 4 s; after a line of stdin one last burst, then a word.
const BURSTS: &str = "
import select, sys, time
kept = []
print('ready', flush=True)
while True:
    last = bool(select.select([sys.stdin], [], [], 0)[0])
    end = time.process_time() + 1.5
    while time.process_time() < end:
        blocks = None
        blocks = [bytes(60_000 + number) for number in range(2000)]
    kept = blocks[::400]
    del blocks
    if last:
        print('idle', flush=True)
        time.sleep(600)
    time.sleep(4)
";

/// What the rests of a watch promise is what a trim returns in the next rest.
#[test]
fn a_watch_names_the_rests_at_which_a_trim_returns_memory() {
    if !is_long() {
        return;
    }
    let mut python = Subject::python(BURSTS);
    let mut watch = harness::ebb();
    watch.args(["why", "--json", "--watch", "40s", "--every", "500ms", &python.pid()]);
    let report = Finished::by(&mut watch).json();
    let rests = &report["rests"];
    let promised = rests["median_bytes"].as_u64().unwrap_or_else(|| panic!("{rests}"));
    let count = rests["rests"].as_array().map_or(0, Vec::len);
    assert!((2..=8).contains(&count), "{rests}");
    let next = rests["next"].as_str().unwrap_or_default();
    assert!(next.starts_with(&format!("ebb trim {} --inject --every ", python.pid())), "{rests}");
    python.tell();
    assert_eq!(python.line(), "idle");
    let trim = Finished::by(harness::ebb().args(["trim", "--inject", "--json", &python.pid()]));
    let measured = &trim.json()["processes"][0]["measured"];
    let of = |name: &str| measured[name].as_u64().unwrap_or_else(|| panic!("{}", trim.all()));
    let returned = of("rss_before") - of("rss_after");
    assert!(returned.abs_diff(promised) < promised / 4, "{returned} were returned, not {promised}");
}
