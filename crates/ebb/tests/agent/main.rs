//! `ebb agent` with real processes, and a real Prometheus that scrapes it.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

#[path = "../harness/mod.rs"]
#[allow(dead_code, reason = "shared with all test programs")]
mod harness;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ebb_process::limited_cgroup::{CgroupParent, Limits};
use harness::Subject;
use test_needs::{needs, skip};

/// What a machine with other things to do takes.
const PATIENCE: Duration = Duration::from_secs(60);

struct Agent {
    child: Child,
    address: String,
    warned: Vec<String>,
}

impl Agent {
    fn start(arguments: &[&str]) -> Self {
        let mut child = harness::ebb()
            .args(["agent", "--listen", "127.0.0.1:0", "--every", "1s", "--budget", "50%"])
            .args(arguments)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut warned = Vec::new();
        let address = loop {
            let line = lines.next().expect("a line on stderr").unwrap();
            match line.split_once("http://") {
                Some((_, rest)) => break rest.trim_end_matches("/metrics").to_owned(),
                None => warned.push(line),
            }
        };
        // What it says later is not waited for.
        thread::spawn(move || lines.for_each(drop));
        Self { child, address, warned }
    }

    fn get(&self, header: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let header = format!("GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{header}\r\n");
        stream.write_all(header.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// The value of the series that begins so; waits until it is there, or, with `gone`, until it is not.
    fn wait(&self, series: &str, gone: bool) -> Option<f64> {
        let until = Instant::now() + PATIENCE;
        loop {
            let text = self.get("");
            let line = text.lines().find(|line| line.starts_with(series));
            if line.is_none() == gone {
                return line.and_then(|line| line.rsplit_once(' ')?.1.parse().ok());
            }
            assert!(Instant::now() < until, "{series} {gone}\n{text}");
            thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Python that holds 80 MB in a cgroup of its own.
fn service(group: &ebb_process::limited_cgroup::LimitedCgroup) -> Subject {
    let subject = Subject::python("x = bytearray(80 << 20); print('ready', flush=True); input()");
    group.procs_files().iter().for_each(|file| fs::write(file, subject.pid()).unwrap());
    subject
}

fn parent() -> Option<CgroupParent> {
    CgroupParent::find(Limits { memory_bytes: Some(1 << 30), cpus: None }).ok()
}

#[test]
fn series_of_a_cgroup_come_and_go_with_its_processes_and_a_new_agent_has_them_again() {
    let Some(parent) = parent() else { skip!("no cgroup can be made here") };
    let group = parent.create("agent").unwrap();
    let service = service(&group);
    let path = ebb_process::cgroup::Place::of(service.id.cast_signed()).unwrap().path();
    let series = |name: &str| format!("ebb_group_{name}{{cgroup=\"{path}\"");
    let first = Agent::start(&[]);
    let live = first.wait(&series("live_bytes"), false).unwrap();
    assert!(live > 80e6, "{live}");
    assert_eq!(first.wait(&series("limit_bytes"), false), Some((1u64 << 30) as f64));
    assert_eq!(first.wait(&series("processes"), false), Some(1.0));
    let text = first.get("");
    let info = text.lines().find(|line| line.starts_with(&series("info"))).unwrap();
    assert!(info.contains("allocator=\"glibc\"") && info.contains("in_charge=\"yes\""), "{info}");
    assert!(text.trim_end().ends_with("# EOF"), "{text}");
    drop(first);
    let second = Agent::start(&[]);
    assert!(second.wait(&series("live_bytes"), false) > Some(80e6));
    // Processes that end while they are looked for disturb nothing.
    for _ in 0..50 {
        Command::new("true").status().unwrap();
    }
    service.signal(nix::sys::signal::Signal::SIGKILL);
    drop(service);
    second.wait(&series("live_bytes"), true);
    assert!(!second.get("").contains(&path), "nothing of it is left");
}

#[test]
fn only_the_token_opens_the_page_and_missing_rights_are_said() {
    let folder = harness::folder();
    let file = folder.path().join("token");
    fs::write(&file, "open sesame\n").unwrap();
    let agent = Agent::start(&["--token", file.to_str().unwrap()]);
    assert!(agent.get("").starts_with("HTTP/1.1 401"));
    assert!(agent.get("Authorization: Bearer open\r\n").starts_with("HTTP/1.1 401"));
    assert!(agent.get("Authorization: Bearer open sesame\r\n").contains("# EOF"));
    fs::write(&file, "\n").unwrap();
    let line = ["agent", "--token", file.to_str().unwrap()];
    harness::Finished::by(harness::ebb().args(line)).expect(64, &[], &["is empty"]);
    let lacks =
        agent.get("Authorization: Bearer open sesame\r\n").contains("missing_right{right=\"CAP_SYS_PTRACE\"} 1");
    assert_eq!(lacks, agent.warned.iter().any(|line| line.contains("no CAP_SYS_PTRACE")));
    assert_eq!(lacks, !nix::unistd::Uid::effective().is_root());
}

#[test]
fn prometheus_scrapes_it_and_the_series_end_with_the_process() {
    needs!("prometheus");
    let Some(parent) = parent() else { skip!("no cgroup can be made here") };
    let group = parent.create("scraped").unwrap();
    let service = service(&group);
    let path = ebb_process::cgroup::Place::of(service.id.cast_signed()).unwrap().path();
    let agent = Agent::start(&[]);
    let folder = harness::folder();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs: [{{job_name: ebb, static_configs: [{{targets: ['{}']}}]}}]\n",
        agent.address
    );
    fs::write(folder.path().join("p.yml"), config).unwrap();
    let prometheus = Command::new("prometheus")
        .current_dir(&folder)
        .args(["--config.file=p.yml", "--storage.tsdb.path=data"])
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let prometheus = Agent { child: prometheus, address: format!("127.0.0.1:{port}"), warned: Vec::new() };
    let ask = |query: &str| {
        let url = format!("http://{}/api/v1/query", prometheus.address);
        ureq::get(&url).query("query", query).call().ok().and_then(|mut it| it.body_mut().read_to_string().ok())
    };
    let wait = |query: &str, is_there: bool| {
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = ask(query).unwrap_or_default();
            let is_success = answer.contains("\"status\":\"success\"");
            if is_success && answer.contains("\"value\":") == is_there {
                return;
            }
            assert!(Instant::now() < until, "{query}: {answer}");
            thread::sleep(Duration::from_millis(200));
        }
    };
    wait("up{job=\"ebb\"} == 1", true);
    let live = format!("ebb_group_live_bytes{{cgroup=\"{path}\"}} > 80e6");
    wait(&live, true);
    wait("ebb_agent_look_seconds_count > 0", true);
    drop(service);
    wait(&live, false);
    wait("up{job=\"ebb\"} == 1", true);
}
