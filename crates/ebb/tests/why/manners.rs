//! What happens around a verdict: targets, rights, processes that end, files, metrics.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use serde_json::Value;

use crate::harness::{self, Finished, Subject, output, subjects, wait_until, why_json, words};
use test_needs::{needs, skip};

const NOT_ENOUGH: i32 = 20;
const PERMISSION: i32 = 30;
const USAGE: i32 = 64;
const NOT_WRITTEN: i32 = 74;

fn ebb(line: &str) -> Finished {
    Finished::by(harness::ebb().args(words(line)))
}

fn processes(report: &Value) -> &[Value] {
    report["snapshot"]["processes"].as_array().expect("processes")
}

fn started(program: &str) -> Subject {
    Subject::start(&mut subjects::command(program))
}

#[test]
fn what_cannot_be_looked_at_is_refused_with_one_line() {
    for (line, code, named) in [
        ("why 4194999", USAGE, ["4194999", ""]),
        ("why no-such-service-anywhere", USAGE, ["no-such-service-anywhere", ""]),
        ("why --after 30s -- true", NOT_ENOUGH, ["true", "--after"]),
    ] {
        harness::assert_refused(&output(harness::ebb().args(words(line))), code, &named);
    }
    let places = ["--prometheus", "--listen", "example: ebb watch 4711 --listen :9100"];
    ebb("watch 1").expect(USAGE, &[], &places);

    let mut child = Command::new("true").spawn().expect("true");
    let stat = format!("/proc/{}/stat", child.id());
    wait_until("no zombie", || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") Z ")));
    let why = output(harness::ebb().args(["why", &child.id().to_string()]));
    child.wait().expect("collected");
    harness::assert_refused(&why, USAGE, &["is a zombie", "has not reaped it"]);

    // A mistyped name leads to the nearest that runs.
    let folder = harness::folder();
    let name = format!("shopserver{}", std::process::id() % 1000);
    let _subject = subjects::named(&folder, &name, "small");
    let why = output(harness::ebb().args(["why", &name.replace("server", "sever")]));
    harness::assert_refused(&why, USAGE, &[&name]);
}

#[test]
fn a_command_is_started_looked_at_and_ended() {
    let program = subjects::c_program();
    let mut why = harness::ebb();
    why.args(words("why --json --after 300ms -- sh -c 'sleep 600 & echo $! >&2; wait' sh"));
    let why = Finished::by(why.arg(&program));
    let value = why.expect(0, &[], &[]).json();
    let found = processes(&value[0]);
    assert_eq!(found.len(), 2, "the shell and its child: {found:?}");
    // Killed with its group; init may take a moment to collect it.
    let child = format!("/proc/{}/stat", why.stderr.trim());
    wait_until("it lives on", || {
        !std::fs::read_to_string(&child).is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
    });
}

#[test]
fn a_process_of_another_user_is_named_with_what_can_still_be_said() {
    let folder = harness::folder();
    // As root we look as user `nobody` at a process of ours; else at init, which is root's.
    let is_root = Uid::effective().is_root();
    let subject = is_root.then(|| started("c:live-peak"));
    let pid = subject.as_ref().map_or("1".to_owned(), Subject::pid);
    let why = Finished::by(harness::unprivileged_ebb(&folder).args(["why", "-v", &pid]));
    for words in ["another user", "Run ebb as that user, or as root"] {
        assert!(why.stdout.contains(words), "{}", why.all());
    }
    if is_root {
        // The kernel's sums are open to all.
        why.expect(PERMISSION, &["RSS"], &[]);
    }
}

/// Two sibling user namespaces are closed to each other, no matter which user made them.
#[test]
fn a_process_of_another_user_namespace_is_named() {
    let nobody = |line: &str| {
        let mut command = Command::new("setpriv");
        command.args(words("--reuid 65534 --regid 65534 --clear-groups unshare")).args(words(line));
        command
    };
    if !output(&mut nobody("--user true")).status.success() {
        skip!("no user namespaces are to be had here");
    }
    let subject = Subject::start(&mut nobody("--map-root-user sh -c 'echo ready; read _'"));
    let folder = harness::folder();
    // Copies the program to where that user may read it.
    harness::unprivileged_ebb(&folder);
    let program = folder.path().join("ebb");
    let line = format!("--user {} why -v {}", program.display(), subject.pid());
    let why = Finished::by(&mut nobody(&line));
    let named =
        "it is in another user namespace. Run ebb as root outside the container, or as the process's user inside it.";
    assert!(why.stdout.contains(named), "{}", why.all());
}

/// Workers that changed to a user are closed to that user as well.
#[test]
fn workers_of_another_user_are_read_by_root_alone() {
    needs!("gunicorn");
    if !Uid::effective().is_root() {
        skip!("only root can start workers of another user");
    }
    let folder = harness::folder();
    let subject = Subject::start(&mut subjects::gunicorn("live"));
    let (_, value) = why_json(&subject.pid());
    let found = processes(&value);
    assert_eq!(found.len(), 5, "{found:?}");
    assert_eq!(value["snapshot"]["missing"], serde_json::json!([]));
    for worker in found.iter().filter(|it| it["parent"] == subject.id) {
        let live = worker["heap"]["live"].as_u64().unwrap();
        assert!(live > 20_000_000, "{worker}");
        // The tests' user without rights is the workers'.
        let pid = worker["pid"].to_string();
        let why = Finished::by(harness::unprivileged_ebb(&folder).args(["why", "-v", &pid]));
        why.expect(PERMISSION, &["not dumpable"], &[]);
    }
}

/// Processes that end at any moment of being read: never a failure of ours.
#[test]
fn processes_that_end_while_they_are_read() {
    let code = "echo ready; while :; do sleep 0.005 & sleep 0.001; done";
    let shell = Subject::start(Command::new("sh").args(["-c", code]));
    for _ in 0..30 {
        let (code, value) = why_json(&shell.pid());
        assert!(matches!(code, 0 | 20), "{value}");
        assert!(!processes(&value).is_empty());
    }
}

#[test]
fn two_snapshots_tell_what_grew() {
    let folder = harness::folder();
    let subject = started("c:leak");
    let [before, after, damaged] =
        ["before", "after", "damaged"].map(|name| folder.path().join(format!("{name}.json")));
    // The live bytes of a snapshot.
    let snap = |file: &std::path::Path| {
        let line = format!("snap {} -o {}", subject.pid(), file.display());
        ebb(&line).expect(0, &[], &[]);
        let text = std::fs::read_to_string(file).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        value["processes"][0]["heap"]["live"].as_u64().unwrap()
    };
    let first = snap(&before);
    wait_until("the program does not leak", || snap(&after) > first + 24_000_000);
    let diff = |file: &std::path::Path| output(harness::ebb().arg("diff").args([before.as_path(), file]));
    // The class of 5000 bytes.
    let grown = [" grew from ", "live blocks up to 5120 B", "Next: heaptrack -p"];
    Finished::of(&diff(&after)).expect(0, &grown, &[]);
    std::fs::write(&damaged, "{").unwrap();
    harness::assert_refused(&diff(&damaged), USAGE, &["damaged.json", "ebb snap"]);
}

/// Two interpreters, the collector off, objects of a type of its own, a large block of each kind.
const PYTHON: &str = "import gc, os, sys\n\
    try: import _interpreters as i\n\
    except ImportError: import _xxsubinterpreters as i\n\
    other = i.create()\n\
    class Marker: __slots__ = ('a',)\n\
    kept = [Marker() for _ in range(4321)], bytes(3 << 20), bytearray(5 << 20)\n\
    gc.disable()\n\
    print('ready', flush=True)\n\
    sys.stdin.read()";

#[test]
fn what_cpython_says_of_its_objects_is_in_the_report() {
    let subject = Subject::python(PYTHON);
    let (_, value) = why_json(&subject.pid());
    let python = &processes(&value)[0]["python"];
    let list = |name: &str| python[name].as_array().unwrap_or_else(|| panic!("{python}"));
    let state = |it: &Value| (it["id"].as_i64(), it["collector"]["enabled"].as_bool());
    let ids: Vec<_> = list("interpreters").iter().map(state).collect();
    assert_eq!(ids, [(Some(1), Some(true)), (Some(0), Some(false))]);
    let of = |all: &str, name: &str| {
        let found = list(all).iter().find(|it| it["name"] == name);
        found.unwrap_or_else(|| panic!("{name} is not in {python}")).clone()
    };
    assert_eq!(of("types", "Marker")["count"], 4321);
    for (name, least) in [("bytes", 3 << 20), ("bytearray", 5 << 20)] {
        let found = of("buffers", name);
        assert!(found["bytes"].as_u64().is_some_and(|bytes| bytes >= least), "{found}");
    }
    let why = ebb(&format!("why -v {}", subject.pid()));
    for words in [
        "interpreter 0 of 2: the collector is off",
        "most tracked objects: ",
        "live blocks of 1 MiB and more: ",
        "bytearray 1 of 5.2 MB",
    ] {
        assert!(why.stdout.contains(words), "{words} is not in {}", why.all());
    }
}

#[test]
fn a_snapshot_holds_no_contents_of_memory() {
    let secret = "PASSWORD-in-the-environment-and-the-arguments";
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo ready; read line", secret]).env("SECRET", secret);
    let subject = Subject::start(&mut shell);
    let snap = ebb(&format!("snap {}", subject.pid()));
    snap.expect(0, &[], &[]);
    assert!(!snap.stdout.contains("PASSWORD"), "{}", snap.stdout);
}

#[test]
fn a_snapshot_that_cannot_be_written_leaves_no_file_and_says_so() {
    let folder = harness::folder();
    let small = folder.path().join("small");
    std::fs::create_dir(&small).expect("a folder");
    let subject = started("c:small");
    // No file of this shell's children may be longer than that: the write fails as on a full disk.
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -f 1; trap '' XFSZ; exec \"$@\"", "sh"]);
    shell.arg(env!("CARGO_BIN_EXE_ebb")).args(["snap", &subject.pid(), "-o"]);
    let snap = output(shell.arg(small.join("snap.json")));
    harness::assert_refused(&snap, NOT_WRITTEN, &["snap.json was not written"]);
    let left = std::fs::read_dir(small).expect("a folder");
    assert_eq!(left.count(), 0, "nothing is left behind");
    ebb(&format!("snap {} -o /dev/null", subject.pid())).expect(0, &[], &[]);
    let null = std::fs::metadata("/dev/null").expect("/dev/null");
    assert!(null.file_type().is_char_device(), "a device stays one");
}

#[test]
fn metrics_are_written_to_a_file_and_served() {
    let folder = harness::folder();
    let file = folder.path().join("ebb.prom");
    let subject = started("c:live-peak");
    let line = format!("watch {} --every 50ms --listen 127.0.0.1:0 --prometheus", subject.pid());
    let mut watch = harness::ebb();
    watch.args(words(&line)).arg(&file).stderr(Stdio::piped());
    let mut watch = watch.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(watch.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap();
    wait_until("no file", || file.exists());
    let text = std::fs::read_to_string(&file).unwrap();
    let live = text
        .lines()
        .find_map(|line| line.strip_prefix("ebb_memory_bytes{line=\"live_blocks\"} "))
        .unwrap_or_else(|| panic!("no live blocks in\n{text}"));
    assert!((115e6..130e6).contains(&live.parse::<f64>().unwrap()), "{live}");
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("ebb_processes 1") && answer.contains("# EOF"), "{answer}");
    kill(Pid::from_raw(watch.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(watch.wait().unwrap().code(), Some(0), "asked to end, it ends well");
}
