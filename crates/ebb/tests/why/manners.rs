//! What happens around a verdict: targets, rights, processes that end, files, metrics.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use crate::harness::subjects::{self, Subject};
use crate::harness::{self, output, stderr, stdout};
use test_needs::{needs, skip};

const RETENTION: i32 = 10;
const NOT_ENOUGH: i32 = 20;
const PERMISSION: i32 = 30;
const USAGE: i32 = 64;

#[test]
fn the_first_line_is_the_verdict_and_the_exit_status_its_kind() {
    let subject = Subject::start(&mut subjects::command("c:burst-1-thread"));
    let why = output(harness::ebb().args(["why", "--verbose", &subject.pid()]));
    assert_eq!(why.status.code(), Some(RETENTION), "{}", stderr(&why));
    let text = stdout(&why);
    assert!(text.starts_with("Retention: 1"), "{text}");
    for line in ["malloc_trim would return", "remainder", "- not stacks", "Next: "] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[test]
fn a_target_that_is_not_there_is_a_usage_error() {
    for target in ["4194999", "no-such-service-anywhere"] {
        let why = output(harness::ebb().args(["why", target]));
        harness::assert_refused(&why, USAGE, &[target]);
    }
}

#[test]
fn a_command_is_started_looked_at_and_ended() {
    let program = subjects::c_program();
    let why = output(
        harness::ebb()
            .args(["why", "--json", "--after", "300ms", "--"])
            .arg("sh")
            .args(["-c", "sleep 600 & echo $! >&2; wait", "sh"])
            .arg(&program),
    );
    assert_eq!(why.status.code(), Some(0), "{}", stderr(&why));
    let value: serde_json::Value = serde_json::from_slice(&why.stdout).unwrap();
    let processes = value[0]["snapshot"]["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 2, "the shell and its child: {processes:?}");
    let child: i32 = stderr(&why).trim().parse().unwrap();
    // Killed with its group; init may take a moment to collect it.
    let end = Instant::now() + Duration::from_secs(10);
    while is_running(child) {
        assert!(Instant::now() < end, "{child} lives on");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn is_running(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
}

#[test]
fn a_command_that_ends_too_early_is_not_enough() {
    let why = output(harness::ebb().args(["why", "--after", "30s", "--", "true"]));
    harness::assert_refused(&why, NOT_ENOUGH, &["true", "--after"]);
}

#[test]
fn a_process_of_another_user_is_named_with_what_can_still_be_said() {
    let folder = harness::folder();
    let subject;
    // As root we look as nobody at a process of ours; else at init, which is root's.
    let pid = match nix::unistd::Uid::effective().is_root() {
        true => {
            subject = Subject::start(&mut subjects::command("c:live-peak"));
            subject.pid()
        }
        false => "1".to_owned(),
    };
    let why = output(harness::unprivileged_ebb(&folder).args(["why", "-v", &pid]));
    let text = stdout(&why);
    assert!(
        text.contains("another user") && text.contains("Run ebb as that user, or as root"),
        "{text}"
    );
    if nix::unistd::Uid::effective().is_root() {
        assert_eq!(why.status.code(), Some(PERMISSION), "{text}");
        assert!(text.contains("RSS"), "the kernel's sums are open to all: {text}");
    }
}

/// Two user namespaces beside each other are closed to each other, whoever made them.
#[test]
fn a_process_of_another_user_namespace_is_named() {
    let nobody = |arguments: &[&str]| {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        command.arg("unshare").args(arguments);
        command
    };
    if !output(&mut nobody(&["--user", "true"])).status.success() {
        skip!("no user namespaces are to be had here");
    }
    let subject =
        Subject::start(&mut nobody(&["--map-root-user", "sh", "-c", "echo ready; read _"]));
    let folder = harness::folder();
    // Copies the program to where that user may read it.
    harness::unprivileged_ebb(&folder);
    let program = folder.path().join("ebb");
    let program = program.to_str().unwrap();
    let why = output(&mut nobody(&["--user", program, "why", "-v", &subject.pid()]));
    let text = stdout(&why);
    let named = "it is in another user namespace. Run ebb as root outside the container, or as the process's user inside it.";
    assert!(text.contains(named), "{text}");
}

/// Workers that changed to a user are closed to that user as well.
#[test]
fn workers_of_another_user_are_read_by_root_alone() {
    needs!("gunicorn");
    if !nix::unistd::Uid::effective().is_root() {
        skip!("only root can start workers of another user");
    }
    let folder = harness::folder();
    let subject = Subject::start(&mut subjects::gunicorn("live"));
    let why = output(harness::ebb().args(["why", "--json", &subject.pid()]));
    let value: serde_json::Value = serde_json::from_slice(&why.stdout).unwrap();
    let processes = value[0]["snapshot"]["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 5, "{processes:?}");
    assert_eq!(value[0]["snapshot"]["missing"], serde_json::json!([]));
    let workers = processes.iter().filter(|it| it["parent"] == subject.0.id());
    for worker in workers {
        let live = worker["heap"]["live"].as_u64().unwrap();
        assert!(live > 20_000_000, "{worker}");
        // The tests' user without rights is the workers'.
        let pid = worker["pid"].to_string();
        let why = output(harness::unprivileged_ebb(&folder).args(["why", "-v", &pid]));
        assert_eq!(why.status.code(), Some(PERMISSION));
        assert!(stdout(&why).contains("not dumpable"), "{}", stdout(&why));
    }
}

/// Processes that end at any moment of being read: never a failure of ours.
#[test]
fn processes_that_end_while_they_are_read() {
    let mut shell = Subject::start(
        std::process::Command::new("sh")
            .args(["-c", "echo ready; while :; do sleep 0.005 & sleep 0.001; done"]),
    );
    for _ in 0..30 {
        let why = output(harness::ebb().args(["why", "--json", &shell.pid()]));
        assert!(matches!(why.status.code(), Some(0 | 20)), "{}", stderr(&why));
        let value: serde_json::Value = serde_json::from_slice(&why.stdout).unwrap();
        assert!(!value[0]["snapshot"]["processes"].as_array().unwrap().is_empty());
    }
    shell.0.kill().unwrap();
}

#[test]
fn two_snapshots_tell_what_grew() {
    let folder = harness::folder();
    let subject = Subject::start(&mut subjects::command("c:leak"));
    let snap = |name: &str| {
        let file = folder.path().join(name);
        let done = output(harness::ebb().args(["snap", &subject.pid(), "-o"]).arg(&file));
        assert!(done.status.success(), "{}", stderr(&done));
        file
    };
    let live = |file: &std::path::Path| {
        let text = std::fs::read_to_string(file).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        value["processes"][0]["heap"]["live"].as_u64().unwrap()
    };
    let before = snap("before.json");
    let end = Instant::now() + Duration::from_secs(60);
    let after = loop {
        let after = snap("after.json");
        if live(&after) > live(&before) + 24_000_000 {
            break after;
        }
        assert!(Instant::now() < end, "the program does not leak");
        std::thread::sleep(Duration::from_millis(50));
    };
    let diff = output(harness::ebb().arg("diff").args([&before, &after]));
    let text = stdout(&diff);
    assert!(diff.status.success() && text.contains(" grew from "), "{text}");
    assert!(text.contains("live blocks up to 5120 B"), "the class of 5000 bytes: {text}");
    assert!(text.contains("Next: heaptrack -p"), "{text}");
    let damaged = folder.path().join("damaged.json");
    std::fs::write(&damaged, "{").unwrap();
    let diff = output(harness::ebb().arg("diff").args([&before, &damaged]));
    harness::assert_refused(&diff, USAGE, &["damaged.json", "ebb snap"]);
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
    let mut python = std::process::Command::new("python3");
    let subject = Subject::start(python.args(["-c", PYTHON]));
    let why = output(harness::ebb().args(["why", "--json", &subject.pid()]));
    let value: serde_json::Value = serde_json::from_slice(&why.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", stderr(&why)));
    let python = &value[0]["snapshot"]["processes"][0]["python"];
    let ids: Vec<_> = python["interpreters"]
        .as_array()
        .unwrap_or_else(|| panic!("{python}"))
        .iter()
        .map(|it| (it["id"].as_i64(), it["collector"]["enabled"].as_bool()))
        .collect();
    assert_eq!(ids, [(Some(1), Some(true)), (Some(0), Some(false))]);
    let of = |list: &str, name: &str| {
        let all = python[list].as_array().expect("a list").clone();
        all.into_iter()
            .find(|it| it["name"] == name)
            .unwrap_or_else(|| panic!("{name} is not in {python}"))
    };
    assert_eq!(of("types", "Marker")["count"], 4321);
    for (name, least) in [("bytes", 3 << 20), ("bytearray", 5 << 20)] {
        let found = of("buffers", name);
        assert!(found["bytes"].as_u64().is_some_and(|bytes| bytes >= least), "{found}");
    }
    let text = stdout(&output(harness::ebb().args(["why", "-v", &subject.pid()])));
    for words in [
        "interpreter 0 of 2: the collector is off",
        "most tracked objects: ",
        "live blocks of 1 MiB and more: ",
        "bytearray 1 of 5.2 MB",
    ] {
        assert!(text.contains(words), "{words} is not in\n{text}");
    }
}

#[test]
fn ebbmalloc_under_the_name_of_jemalloc_is_read_as_what_it_is() {
    let folder = harness::folder();
    let renamed = folder.path().join("libjemalloc.so.2");
    std::fs::copy(subjects::preload("ebbmalloc"), &renamed).expect("a copy");
    let mut command = subjects::command("c:live-peak");
    let subject = Subject::start(command.env("LD_PRELOAD", &renamed));
    let why = output(harness::ebb().args(["why", "--json", &subject.pid()]));
    let value: serde_json::Value = serde_json::from_slice(&why.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", stderr(&why)));
    let process = &value[0]["snapshot"]["processes"][0];
    assert_eq!(process["allocator"]["name"], "ebbmalloc", "{process}");
    let reader = process["heap"]["reader"].as_str().unwrap_or_default();
    assert!(reader.starts_with("ebbmalloc"), "{process}");
}

/// As in a container: the library's file is found below the process's root, and called as there.
#[test]
fn a_renamed_ebbmalloc_in_a_root_of_its_own_is_known() {
    if !nix::unistd::Uid::effective().is_root() {
        skip!("only root can change the root");
    }
    let folder = harness::folder();
    let root = folder.path();
    let program = subjects::c_program();
    harness::copy_libraries(&program, root);
    std::fs::copy(program, root.join("cases")).expect("a copy");
    let library = subjects::preload("ebbmalloc");
    std::fs::copy(library, root.join("libjemalloc.so.2")).expect("a copy");
    let mut command = std::process::Command::new("chroot");
    command.arg(root).args(["/cases", "live-peak"]);
    let subject = Subject::start(command.env("LD_PRELOAD", "/libjemalloc.so.2"));
    let why = output(harness::ebb().args(["why", "--json", &subject.pid()]));
    let value: serde_json::Value = serde_json::from_slice(&why.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", stderr(&why)));
    let allocator = &value[0]["snapshot"]["processes"][0]["allocator"];
    assert_eq!(allocator["name"], "ebbmalloc", "{allocator}");
    assert_eq!(allocator["file"], "/libjemalloc.so.2", "{allocator}");
}

#[test]
fn a_snapshot_holds_no_contents_of_memory() {
    let secret = "PASSWORD-in-the-environment-and-the-arguments";
    let subject = Subject::start(
        std::process::Command::new("sh")
            .args(["-c", "echo ready; read line", secret])
            .env("SECRET", secret),
    );
    let snap = output(harness::ebb().args(["snap", &subject.pid()]));
    assert!(snap.status.success(), "{}", stderr(&snap));
    assert!(!stdout(&snap).contains("PASSWORD"), "{}", stdout(&snap));
}

#[test]
fn metrics_are_written_to_a_file_and_served() {
    let folder = harness::folder();
    let file = folder.path().join("ebb.prom");
    let subject = Subject::start(&mut subjects::command("c:live-peak"));
    let mut watch = harness::ebb()
        .args(["watch", &subject.pid(), "--every", "50ms", "--listen", "127.0.0.1:0"])
        .arg("--prometheus")
        .arg(&file)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    use std::io::BufRead;
    std::io::BufReader::new(watch.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    let end = Instant::now() + Duration::from_secs(30);
    while !file.exists() {
        assert!(Instant::now() < end, "no file");
        std::thread::sleep(Duration::from_millis(10));
    }
    let text = std::fs::read_to_string(&file).unwrap();
    let live = text
        .lines()
        .find_map(|line| line.strip_prefix("ebb_memory_bytes{line=\"live_blocks\"} "))
        .unwrap_or_else(|| panic!("no live blocks in\n{text}"));
    assert!((115e6..130e6).contains(&live.parse::<f64>().unwrap()), "{live}");
    let mut stream = std::net::TcpStream::connect(&address).unwrap();
    write!(stream, "GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("ebb_processes 1") && answer.contains("# EOF"), "{answer}");
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(watch.id() as i32),
        nix::sys::signal::Signal::SIGTERM,
    )
    .unwrap();
    assert_eq!(watch.wait().unwrap().code(), Some(0), "asked to end, it ends well");
}
