//! Debian's programs that are linked to jemalloc, on ebbmalloc under its name: they start, serve, and
//! have no other jemalloc mapped.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::cases::Library;
use crate::harness::server::{children_of, free_port, get, wait_until};
use crate::harness::{Run, Scratch, require};
use test_needs::needs;

/// A daemon's file: those live in folders that are not on everybody's path.
pub fn daemon(program: &str, package: &str) -> PathBuf {
    let there =
        ["/usr/sbin", "/usr/bin"].iter().map(|folder| PathBuf::from(folder).join(program)).find(|file| file.is_file());
    there.unwrap_or_else(|| require(program, package))
}

/// The program on the installed libjemalloc.so.2.
fn on_ebbmalloc(program: &Path) -> Run {
    Run::bare(program).env("LD_LIBRARY_PATH", Library::Ebbmalloc.folder())
}

/// This process and its children: their maps have the installed object, and no other jemalloc.
#[track_caller]
fn is_mapped_alone(process: u32) {
    let installed = Library::Ebbmalloc.folder().join("libjemalloc.so.2");
    let installed = installed.canonicalize().expect("the installation");
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).expect("the maps");
    let found: BTreeSet<_> =
        maps.lines().filter_map(|line| line.split_whitespace().nth(5)).filter(|file| file.contains("malloc")).collect();
    assert_eq!(found.into_iter().collect::<Vec<_>>(), [installed.to_str().expect("a plain path")]);
    children_of(process).into_iter().for_each(is_mapped_alone);
}

fn resident_mib(process: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("a status");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let words: Vec<_> = line.expect("a line").split_whitespace().collect();
    words[1].parse::<f64>().expect("a number") / 1024.0
}

/// A connection to redis: commands as words, answers as text.
struct Redis(BufReader<TcpStream>);

impl Redis {
    fn connect(port: u16) -> Option<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a time limit");
        Some(Self(BufReader::new(stream)))
    }

    fn send(&mut self, command: &[&str]) {
        let mut text = format!("*{}\r\n", command.len());
        for word in command {
            text += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.0.get_mut().write_all(text.as_bytes()).expect("redis reads");
    }

    /// An answer's values, one after the other.
    fn answer(&mut self) -> Vec<String> {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("redis answers");
        let (kind, rest) = line.trim_end().split_at(1);
        match kind {
            "*" => (0..rest.parse::<usize>().expect("a count")).flat_map(|_| self.answer()).collect(),
            "$" => {
                let length = rest.parse::<usize>().expect("a length");
                let mut bytes = vec![0; length + 2];
                self.0.read_exact(&mut bytes).expect("the whole answer");
                bytes.truncate(length);
                vec![String::from_utf8(bytes).expect("text")]
            }
            "-" => panic!("redis says {rest}"),
            _ => vec![rest.to_owned()],
        }
    }

    fn ask(&mut self, command: &[&str]) -> Vec<String> {
        self.send(command);
        self.answer()
    }

    /// MEMORY STATS as pairs; the pairs of nested lists come one after the other too.
    fn memory(&mut self, name: &str) -> f64 {
        let stats = self.ask(&["MEMORY", "STATS"]);
        let place = stats.iter().position(|word| word == name);
        let place = place.unwrap_or_else(|| panic!("{name} in {stats:?}"));
        stats[place + 1].parse().expect("a number")
    }
}

const KEYS: usize = 60_000;

/// Values of 100 to 1,100 bytes under all keys: a heap of some 40 MiB.
fn fill(redis: &mut Redis) {
    for block in 0..KEYS / 500 {
        let keys = block * 500..(block + 1) * 500;
        for key in keys.clone() {
            let value = "v".repeat(100 + key * 37 % 1000);
            redis.send(&["SET", &format!("key:{key}"), &value]);
        }
        for _ in keys {
            assert_eq!(redis.answer(), ["OK"]);
        }
    }
}

#[test]
fn redis_serves_and_its_memory_commands_are_sane() {
    needs!("redis-server");
    let folder = Scratch::new();
    let port = free_port();
    let server = on_ebbmalloc(&daemon("redis-server", "redis-server"))
        .args(["--bind", "127.0.0.1", "--save", "", "--port"])
        .arg(port.to_string())
        .arg("--dir")
        .arg(folder.path())
        .spawn();
    let mut redis = None;
    wait_until("redis answers", || {
        redis = Redis::connect(port);
        redis.is_some()
    });
    let mut redis = redis.expect("a connection");
    is_mapped_alone(server.id());
    assert_eq!(redis.ask(&["PING"]), ["PONG"]);
    fill(&mut redis);

    // The figures are ordered, and agree with what redis and the kernel count by themselves.
    // Redis samples them ten times a second.
    wait_until("redis and the allocator count the same", || {
        let used = redis.memory("total.allocated");
        (used / redis.memory("allocator.allocated") - 1.0).abs() < 0.02
    });
    let allocated = redis.memory("allocator.allocated");
    let active = redis.memory("allocator.active");
    let resident = redis.memory("allocator.resident");
    assert!(30e6 < allocated && allocated <= active && active <= resident, "{allocated} {active} {resident}");
    assert!(resident / 1048576.0 < resident_mib(server.id()) + 2.0, "{resident}");
    assert!(redis.memory("allocator-fragmentation.ratio") < 1.5);
    let doctor = redis.ask(&["MEMORY", "DOCTOR"]).concat();
    assert!(doctor.contains("Hi Sam"), "{doctor}");
    assert!(!doctor.contains("fragmentation"), "{doctor}");
    let statistics = redis.ask(&["MEMORY", "MALLOC-STATS"]).concat();
    assert!(statistics.contains("Begin jemalloc statistics"), "{statistics}");

    // Nine keys of ten go; what remains is spread over all pages, and it is still all there.
    let full = resident_mib(server.id());
    for key in (0..KEYS).filter(|key| key % 10 != 0) {
        redis.send(&["DEL", &format!("key:{key}")]);
        if key % 1000 == 999 {
            for _ in 0..900 {
                assert_eq!(redis.answer(), ["1"]);
            }
        }
    }
    assert_eq!(redis.ask(&["MEMORY", "PURGE"]), ["OK"]);
    assert_eq!(redis.ask(&["DBSIZE"]), [(KEYS / 10).to_string()]);
    let sparse = resident_mib(server.id());
    assert_eq!(redis.ask(&["FLUSHALL"]), ["OK"]);
    assert_eq!(redis.ask(&["MEMORY", "PURGE"]), ["OK"]);
    let empty = resident_mib(server.id());
    println!("redis, MiB resident: full {full:.1}, a tenth {sparse:.1}, empty {empty:.1}");
    assert!(empty < full - 35.0, "full {full} MiB, empty {empty} MiB");
}

/// A question for the address of a name, and whether the answer has one.
fn resolves(port: u16, name: &str) -> bool {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a time limit");
    // Number 7, recursion wished for, one question.
    let mut question = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        question.push(u8::try_from(label.len()).expect("a short label"));
        question.extend(label.bytes());
    }
    question.extend([0, 0, 1, 0, 1]);
    socket.send_to(&question, ("127.0.0.1", port)).expect("a datagram can be sent");
    let mut answer = [0; 512];
    let Ok(length) = socket.recv(&mut answer) else {
        return false;
    };
    // The same number, no error, one answer or more.
    length > question.len() && answer[1] == 7 && answer[3] & 15 == 0 && answer[7] > 0
}

#[test]
fn named_serves_a_zone() {
    needs!("bind9");
    let folder = Scratch::new();
    let port = free_port();
    let place = folder.path().display();
    folder.file(
        "zone",
        "$TTL 60\n@ IN SOA ns host 1 60 60 60 60\n@ IN NS ns\nns IN A 127.0.0.1\n\
         $GENERATE 0-19999 h$ IN A 10.0.0.1\n",
    );
    let configuration = folder.file(
        "named.conf",
        &format!(
            "options {{ directory \"{place}\"; pid-file \"{place}/pid\"; \
             session-keyfile \"{place}/key\"; recursion no; dnssec-validation no; \
             listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; }};\n\
             controls {{ }};\n\
             zone \"example.lan\" {{ type primary; file \"{place}/zone\"; }};\n"
        ),
    );
    let server = on_ebbmalloc(&daemon("named", "bind9")).args(["-f", "-c"]).arg(&configuration).spawn();
    wait_until("named answers", || resolves(port, "h0.example.lan"));
    is_mapped_alone(server.id());
    for host in (0..20_000).step_by(20) {
        assert!(resolves(port, &format!("h{host}.example.lan")), "host {host}");
    }
    assert!(!resolves(port, "h20000.example.lan"));
}

#[test]
fn kresd_resolves() {
    needs!("knot-resolver");
    let folder = Scratch::new();
    let port = free_port();
    let hints: String = (0..500).map(|host| format!("hints['h{host}.example.lan'] = '10.1.2.3'\n")).collect();
    let configuration = folder.file(
        "config",
        &format!(
            "net.listen('127.0.0.1', {port}, {{ kind = 'dns' }})\n\
             modules = {{ 'hints > iterate' }}\n\
             cache.size = 10 * MB\n\
             trust_anchors.remove('.')\n{hints}"
        ),
    );
    let server = on_ebbmalloc(&daemon("kresd", "knot-resolver"))
        .args(["-n", "-c"])
        .arg(&configuration)
        .arg(folder.path())
        .spawn();
    wait_until("kresd answers", || resolves(port, "h0.example.lan"));
    is_mapped_alone(server.id());
    for host in 0..500 {
        assert!(resolves(port, &format!("h{host}.example.lan")), "host {host}");
    }
}

/// Serves a page of its own for each path, until the test is over.
fn backend() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("its address").port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.expect("a connection"));
            let mut path = String::new();
            // A client that has gone needs no answer.
            let _ = reader.read_line(&mut path);
            let path = path.split(' ').nth(1).unwrap_or("/").to_owned();
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                    break;
                }
            }
            let body = format!("page {path} ").repeat(2000);
            let _ = write!(
                reader.get_mut(),
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nCache-Control: max-age=60\r\n\
                 Connection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    port
}

#[test]
fn varnish_caches() {
    needs!("varnish");
    let folder = Scratch::new();
    let port = free_port();
    // Its temporary files go to the folder; no jail, which would change the user.
    let server = on_ebbmalloc(&daemon("varnishd", "varnish"))
        .args(["-F", "-j", "none", "-s", "malloc,64m", "-a"])
        .arg(format!("127.0.0.1:{port}"))
        .arg("-b")
        .arg(format!("127.0.0.1:{}", backend()))
        .arg("-n")
        .arg(folder.path())
        .spawn();
    wait_until("varnish answers", || get(port, "/ready").is_some());
    is_mapped_alone(server.id());
    for round in 0..2 {
        for page in 0..200 {
            let path = format!("/page{page}");
            let body = get(port, &path).unwrap_or_else(|| panic!("{path} in round {round}"));
            assert_eq!(body, format!("page {path} ").repeat(2000));
        }
    }
}
