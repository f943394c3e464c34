//! Services under load: each request is answered, and rightly, while malloc_trim is called again and again, without a
//! look at the process between.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::harness;
use test_needs::needs;

/// Ends with this value.
struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// No answer takes longer on a machine that has other things to do.
const LIMIT: Duration = Duration::from_secs(60);

/// Calls in all.
fn times() -> u64 {
    match std::env::var_os("EBB_LONG") {
        Some(_) => 1000,
        None => 50,
    }
}

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
        for time in 0..times() {
            let target = ebb_inspect::Target::open(pid).expect("it lives");
            let function = ebb_inject::Function::malloc_trim(&target).expect("glibc");
            let called = ebb_inject::call(&target, &function, LIMIT);
            let called = called.unwrap_or_else(|error| panic!("call {time}: {error}"));
            assert!(called.ran.is_some(), "call {time}: it did not come back");
        }
    });
    let answered = answered.into_inner();
    eprintln!("{answered} requests were answered during {} calls", times());
    assert!(answered > times(), "only {answered} requests were made");
}

fn python(kind: &str) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/trim/service.py");
    let mut child = Command::new("python3")
        .args([script, kind])
        .env_remove("LD_PRELOAD")
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    let mut port = String::new();
    let out = child.stdout.take().expect("a pipe");
    let service = Service(child);
    BufReader::new(out).read_line(&mut port).expect("a line");
    let address = format!("127.0.0.1:{}", port.trim());
    under_load(service.0.id(), 2, |client, next| {
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
fn a_python_service_of_one_thread() {
    python("single");
}

#[test]
fn a_python_service_with_a_thread_for_each_request() {
    python("threads");
}

#[test]
fn redis() {
    needs!("redis-server");
    let folder = harness::folder();
    let socket = folder.path().join("redis.sock");
    let child = Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--unixsocket"])
        .arg(&socket)
        .arg("--dir")
        .arg(folder.path())
        // Debian's is linked to jemalloc.
        .env("LD_PRELOAD", harness::peer("libc.so.6", "libc6"))
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server: apt-get install redis-server");
    let service = Service(child);
    let end = Instant::now() + LIMIT;
    while UnixStream::connect(&socket).is_err() {
        assert!(Instant::now() < end, "redis-server does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    under_load(service.0.id(), 2, |client, next| {
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
