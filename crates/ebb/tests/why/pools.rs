//! Workers side by side: the one of twelve that leaks, none where all are alike, and what one more costs.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::subjects::{self, Cgroup};
use crate::harness::{self, Finished, Subject};
use test_needs::{needs, skip};

/// Sends requests to gunicorn from several threads until `is_enough` of the answers; answers by what was answered.
fn load(
    port: &str,
    is_enough: impl Fn(&BTreeMap<String, u32>) -> bool + Sync,
) -> BTreeMap<String, u32> {
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

/// Twelve workers of CPython take a minute to start, to load and to look at.
fn is_long() -> bool {
    std::env::var_os("EBB_LONG").is_some()
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
    pools
        .iter()
        .find(|pool| pool["workers"].as_array().is_some_and(|it| it.len() >= 4))
        .expect("a pool")
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
    let read = |name: &str| {
        let text = std::fs::read_to_string(cgroup.0.join(name)).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let (usage, limit) = match read("memory.current") {
        Some(_) => ("memory.current", "memory.max"),
        None => ("memory.usage_in_bytes", "memory.limit_in_bytes"),
    };
    if std::fs::write(cgroup.0.join(limit), "300000000").is_err() {
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
    assert_eq!(
        bytes("fit_at_floor"),
        (bytes("limit") - bytes("besides")) / bytes("floor"),
        "{room}"
    );
    let before = read(usage).expect("a usage");
    for _ in 0..4 {
        subject.tell();
        assert_eq!(subject.line(), "more");
    }
    let charged = (read(usage).expect("a usage") - before) / 4;
    assert!(charged.abs_diff(each) < each / 5, "{charged} for one more, not {each}");
    let text = Finished::by(harness::ebb().args(["why", &target])).stdout;
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("One more python3 costs 2"), "{text}");
}
