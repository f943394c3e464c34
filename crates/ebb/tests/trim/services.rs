//! What is foreseen, refused and measured. Services under load: each request is answered, and rightly, while malloc_trim is called
//! again and again, without a look at the process between. And `ebb` is killed at any moment: the process lives on, and nothing
//! that it waits for has gone wrong.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use test_needs::{needs, skip};

use crate::harness::subjects::{self, Cgroup};
use crate::harness::{self, Finished, Subject, each, output, wait_until, words};
use crate::{assert_fact, bytes, text, trim};

/// No answer takes longer on a machine that has other things to do.
const LIMIT: Duration = Duration::from_secs(60);

/// So often, and more often with `EBB_LONG`.
fn times((short, long): (u64, u64)) -> u64 {
    if harness::is_long() { long } else { short }
}

/// Calls of malloc_trim.
const CALLS: (u64, u64) = (50, 1000);
/// Times that `ebb` is killed, and up to so long after its start: it takes a fifth of that to come to its first call.
const KILLS: (u64, u64) = (10, 100);
const LONGEST_LIFE_MS: u64 = 400;

/// Runs `load` on some threads, over and over with their number and a counter, while `pid` is trimmed.
fn under_load(pid: u32, clients: u64, load: impl Fn(u64, &mut dyn FnMut() -> Option<u64>) + Sync) {
    let pid = i32::try_from(pid).expect("a pid");
    let done = AtomicBool::new(false);
    let answered = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for client in 0..clients {
            let (done, answered, load) = (&done, &answered, &load);
            scope.spawn(move || {
                let mut count = 0;
                load(client, &mut || {
                    count += 1;
                    // Relaxed: a flag and a sum; joining the threads orders the rest.
                    answered.fetch_add(1, Ordering::Relaxed);
                    (!done.load(Ordering::Relaxed)).then_some(count)
                });
            });
        }
        // A failure of this thread must end the others, too.
        struct Done<'a>(&'a AtomicBool);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _done = Done(&done);
        for time in 0..times(CALLS) {
            let target = ebb_inspect::Target::open(pid).expect("it lives");
            let function = ebb_inject::Function::malloc_trim(&target).expect("glibc");
            let called = ebb_inject::call(&target, &function, LIMIT);
            let called = called.unwrap_or_else(|error| panic!("call {time}: {error}"));
            assert!(called.ran.is_some(), "call {time}: it did not come back");
        }
    });
    let answered = answered.into_inner();
    eprintln!("{answered} requests were answered during {} calls", times(CALLS));
    assert!(answered > times(CALLS), "only {answered} requests were made");
}

fn python(kind: &str) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/trim/service.py");
    let mut command = Command::new("python3");
    let mut service = Subject::spawn(command.args([script, kind]).env_remove("LD_PRELOAD"));
    let address = format!("127.0.0.1:{}", service.line());
    under_load(service.id, 2, |client, next| {
        // A server of one thread serves a connection to its end.
        while let Some(count) = next() {
            let number = client * 7919 + count * 31;
            let mut stream = TcpStream::connect(&address).expect("a connection");
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            write!(stream, "GET /{number} HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("an answer");
            let blocks: u64 = (0..number % 400).map(|i| 600 + 37 * i).sum();
            let filling = "x".repeat((number % 5000) as usize);
            assert!(answer.starts_with("HTTP/1.1 200 OK"), "{number}: {answer}");
            let body = answer.split("\r\n\r\n").nth(1);
            assert_eq!(body, Some(format!("{number} {blocks} {filling}").as_str()));
        }
    });
}

#[test]
fn python_services_of_one_thread_and_with_a_thread_for_each_request() {
    let cases = ["single", "threads"].map(|kind| (kind, kind));
    each(&cases, |kind| python(kind));
}

#[test]
fn redis() {
    needs!("redis-server");
    let folder = harness::folder();
    let socket = folder.path().join("redis.sock");
    let mut command = Command::new("redis-server");
    command.args(["--port", "0", "--save", "", "--logfile", "/dev/null", "--unixsocket"]);
    command.arg(&socket).arg("--dir").arg(folder.path());
    // Debian's is linked to jemalloc.
    command.env("LD_PRELOAD", harness::peer("libc.so.6", "libc6"));
    let service = Subject::spawn(&mut command);
    wait_until("redis-server listens", || UnixStream::connect(&socket).is_ok());
    under_load(service.id, 2, |client, next| {
        let stream = UnixStream::connect(&socket).expect("a connection");
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut writer = stream.try_clone().unwrap();
        let mut reader = BufReader::new(stream);
        while let Some(count) = next() {
            let key = format!("{client}-{}", count % 100);
            let value = "v".repeat((count * 97 % 20_000) as usize + 1);
            // Both in one, as clients do: SET, GET.
            let lengths = (key.len(), value.len());
            write!(
                writer,
                "*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n{value}\r\n*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n",
                lengths.0, lengths.1, lengths.0
            )
            .unwrap();
            let mut line = || {
                let mut line = String::new();
                reader.read_line(&mut line).expect("an answer");
                line.trim_end().to_owned()
            };
            assert_eq!(line(), "+OK");
            assert_eq!(line(), format!("${}", value.len()));
            assert_eq!(line(), value);
        }
    });
}

/// The program that checks its own waits, shared with ebb-inject's tests.
fn program(folder: &tempfile::TempDir) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ebb-inject/tests/programs/waits.c");
    let source = std::fs::read_to_string(source).expect("the source");
    let flags = ["-O2", "-mavx2", "-mno-red-zone", "-pthread"];
    harness::compile(folder, "gcc", "waits", &source, &flags)
}

/// How many rounds it has made since its start. None of them may have gone wrong.
fn rounds(program: &mut Subject, life_ms: u64) -> u64 {
    program.tell();
    let answer = program.line();
    let (made, wrong) = answer.split_once(' ').expect("two numbers");
    assert!(wrong == "0" || wrong.starts_with("0 "), "killed after {life_ms} ms: {wrong}");
    made.parse().expect("a number")
}

#[test]
fn threads_go_on_when_ebb_is_killed_and_so_does_an_only_one() {
    let folder = harness::folder();
    let program = program(&folder);
    let cases: &[(&str, &[&str])] = &[
        ("threads", &[]),
        ("the only one polls", &["alone", "poll"]),
        ("the only one has values in registers", &["alone", "registers"]),
    ];
    each(cases, |arguments| {
        let mut subject = Subject::start(Command::new(&program).args(*arguments));
        // Whatever there is to return, without a pause between.
        let line = format!("trim {} --inject --min 0 --every 1ms", subject.pid());
        for time in 0..times(KILLS) {
            let mut ebb = harness::ebb();
            ebb.args(words(&line)).args(["--wait", "60s", "--no-children", "--json"]);
            let mut ebb = ebb.stdout(Stdio::null()).spawn().expect("ebb");
            // Spread over its life, with no need of chance.
            let life_ms = time * 157 % LONGEST_LIFE_MS;
            std::thread::sleep(Duration::from_millis(life_ms));
            ebb.kill().expect("to kill it");
            ebb.wait().expect("its end");
            let before = rounds(&mut subject, life_ms);
            std::thread::sleep(Duration::from_millis(60));
            let after = rounds(&mut subject, life_ms);
            assert!(after > before, "killed after {life_ms} ms: it stands still");
        }
    });
}

const OK: i32 = 0;
const RETENTION: i32 = 10;
const PERMISSION: i32 = 30;
const UNSUPPORTED: i32 = 31;
const USAGE: i32 = 64;

fn burst() -> Subject {
    Subject::start(&mut subjects::command("c:burst-1-thread"))
}

#[test]
fn what_is_foreseen_goes_back_and_then_there_is_nothing_more() {
    for case in ["c:burst-1-thread", "c:burst-4-threads", "c:first-thread-ended"] {
        let subject = Subject::start(&mut subjects::command(case));
        let pid = subject.pid();
        let looked = trim(&pid, "--wait 60s");
        assert_fact(&looked, RETENTION, "reason", "not-asked");
        let done = trim(&pid, "--wait 60s --inject --max-pause 60s");
        assert_fact(&done, OK, "outcome", "trimmed");
        let (looked, done) = (looked.1, done.1);
        let [before, foreseen] = [&looked, &done].map(|it| bytes(&it["predicted"]["returns"]));
        assert!((foreseen - before).abs() <= 0.02 * foreseen, "{case}: {looked} {done}");
        let measured = &done["measured"];
        let returned = bytes(&measured["rss_before"]) - bytes(&measured["rss_after"]);
        // The kernel counts resident pages in batches for each processor.
        assert!(
            (returned - foreseen).abs() <= 0.02 * foreseen + 1e6,
            "{case}: foreseen {foreseen}, returned {returned}: {done}"
        );
        assert!(bytes(&done["stopped_s"]) > 0.0 && bytes(&done["ran_s"]) > 0.0);
        assert_fact(&trim(&pid, "--wait 60s --inject"), OK, "reason", "below-threshold");
    }
}

#[test]
fn the_text_says_what_was_foreseen_done_and_measured() {
    let subject = burst();
    let looked = ["expected  malloc_trim returns ", "not done  nothing was changed; --inject"];
    text(&subject.pid(), "").expect(RETENTION, &looked, &[]);
    let done = ["was stopped for", "no other thread was stopped", "MB were returned"];
    text(&subject.pid(), "--inject --max-pause 60s").expect(OK, &done, &[]);
}

#[test]
fn limits_apply_before_the_call() {
    let subject = burst();
    for (options, code, reason) in [
        ("--inject --min 100GB", OK, "below-threshold"),
        ("--inject --max-pause 0s", RETENTION, "too-long"),
        // Neither has changed anything.
        ("", RETENTION, "not-asked"),
    ] {
        let left = trim(&subject.pid(), &format!("--wait 60s {options}"));
        assert_fact(&left, code, "reason", reason);
    }
}

#[test]
fn other_allocators_are_named_with_what_to_do() {
    for (allocator, code, reason, remedy) in
        [("jemalloc", UNSUPPORTED, "cannot-trim", "arena.4096.purge"), ("ebbmalloc", OK, "returns-by-itself", "")]
    {
        let mut command = subjects::command("c:burst-1-thread");
        command.env("LD_PRELOAD", subjects::preload(allocator));
        let left = trim(&Subject::start(&mut command).pid(), "--wait 60s --inject");
        assert_fact(&left, code, "reason", reason);
        assert!(left.1["remedy"].as_str().unwrap_or_default().contains(remedy), "{}", left.1);
    }
}

#[test]
fn a_right_that_is_missing_is_named() {
    if !nix::unistd::Uid::effective().is_root() {
        return;
    }
    let (subject, folder) = (burst(), harness::folder());
    let mut command = harness::unprivileged_ebb(&folder);
    let named = "Run ebb as that user, or as root";
    Finished::by(command.args(["trim", &subject.pid(), "--inject"])).expect(PERMISSION, &[named], &[]);
}

#[test]
fn a_wrong_command_line_is_a_usage_error() {
    let subject = Subject::start(&mut subjects::command("c:live-peak"));
    text(&subject.pid(), "--page-cache").expect(USAGE, &[], &["is not a cgroup"]);
    text(&subject.pid(), "--min many").expect(USAGE, &[], &["16MB"]);
    let refused = output(harness::ebb().args(words("trim 4194999")));
    harness::assert_refused(&refused, USAGE, &["4194999"]);
}

/// A file in the page cache.
const FILE_BYTES: u64 = 64 << 20;

/// Of a cgroup. Nothing anonymous goes with it.
#[test]
fn the_page_cache_goes_and_anonymous_memory_stays() {
    let Some(cgroup) = Cgroup::new("cache").filter(|it| it.0.join("memory.stat").exists()) else {
        skip!("no right to make a memory cgroup");
    };
    // Not on tmpfs, whose pages are no cache.
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let script = format!(
        "head -c {FILE_BYTES} /dev/urandom > {file}; sync {file}; cat {file} > /dev/null; echo ready; read line",
        file = file.path().display(),
    );
    let _shell = Subject::start(&mut cgroup.with(Command::new("sh").args(["-c", &script])));
    let mut command = harness::ebb();
    let trim = Finished::by(command.args(["trim", "--page-cache", "--json"]).arg(&cgroup.0)).json();
    let cache = &trim["page_cache"];
    let figure = |name: &str| cache[name].as_u64();
    if cache["refused"].is_null() {
        assert!(figure("before") > Some(FILE_BYTES / 2), "{cache}");
        assert!(figure("after") < Some(FILE_BYTES / 4), "{cache}");
        // The shell's own pages; a page or two of it may come or go meanwhile.
        let changed = figure("anon_before").unwrap().abs_diff(figure("anon_after").unwrap());
        assert!(changed < 1 << 20, "{cache}");
    } else {
        // With swap on version 1, or a kernel that is too old: said so, and nothing done.
        assert!(cache["refused"]["remedy"].is_string(), "{cache}");
    }
}
