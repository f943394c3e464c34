//! Servers: redis under its own benchmark, with background saves, and gunicorn with preforked
//! workers that a client asks for bursts of work; haproxy that reloads its configuration.

use std::path::PathBuf;
use std::process::Command;
use std::thread;

use super::script;
use crate::harness::server::{children_of, free_port, get, wait_until};
use crate::harness::{Run, Scratch, require};
use test_needs::needs;

#[test]
fn redis_under_its_benchmark() {
    needs!("redis-server", "redis-tools");
    let scratch = Scratch::new();
    let port = free_port().to_string();
    let server = Run::preloaded(require("redis-server", "redis-server"))
        .args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--dir"])
        .arg(scratch.path())
        .args(["--io-threads", "2", "--activedefrag", "no"])
        .spawn();
    let client =
        |arguments: &[&str]| Run::bare(require("redis-cli", "redis-tools")).args(["-p", &port]).args(arguments).run();
    wait_until("redis answers", || client(&["ping"]).stdout == "PONG\n");
    assert!(server.maps_library(server.id()), "the preload is not mapped");
    let benchmark = |arguments: &str| {
        Run::witnessed(require("redis-benchmark", "redis-tools"))
            .args(["-p", &port, "-q", "-c", "20"])
            .args(arguments.split(' '))
            .run()
            .succeeded()
            .in_charge_of("redis-benchmark");
    };
    benchmark("-n 20000 -d 700 -r 20000 -P 8 -t set,get,lpush,lrange_100,sadd,hset,zadd,mset");
    // A fork that reads the whole heap while the parent goes on.
    assert_eq!(client(&["bgsave"]).stdout, "Background saving started\n");
    benchmark("-n 20000 -d 3000 -r 2000 -P 8 -t set,get");
    wait_until("the background save ends", || {
        client(&["info", "persistence"]).stdout.contains("rdb_bgsave_in_progress:0")
    });
    let persistence = client(&["info", "persistence"]).stdout;
    assert!(persistence.contains("rdb_last_bgsave_status:ok"), "{persistence}");
    assert_eq!(client(&["flushall"]).stdout, "OK\n");
    assert_eq!(client(&["dbsize"]).stdout, "0\n");
}

#[test]
fn gunicorn_with_preforked_workers() {
    needs!("gunicorn");
    let scratch = Scratch::new();
    script(&scratch, "app.py");
    let port = free_port();
    // Debian's gunicorn belongs to Debian's Python, not to the first one in the path.
    let gunicorn = require("gunicorn", "gunicorn");
    let python = PathBuf::from("/usr/bin/python3");
    let in_path = gunicorn.starts_with("/usr/bin");
    let run = if in_path { Run::preloaded(python).arg(&gunicorn) } else { Run::preloaded(&gunicorn) };
    let server = run
        .args(["--workers", "4", "--threads", "2", "--preload", "--bind"])
        .arg(format!("127.0.0.1:{port}"))
        .args(["--max-requests", "60", "--log-level", "error", "app:application"])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONMALLOC", "malloc")
        .folder(scratch.path())
        .spawn();
    wait_until("gunicorn answers", || get(port, "/").is_some_and(|body| body.ends_with(" 3000")));
    wait_until("four workers", || children_of(server.id()).len() == 4);
    for worker in children_of(server.id()) {
        assert!(server.maps_library(worker), "worker {worker}");
    }
    // Enough that workers end after their 60 requests and are forked anew.
    let clients: Vec<_> = (0..4)
        .map(|_| {
            thread::spawn(move || {
                let mut workers = Vec::new();
                for _ in 0..100 {
                    let body = get(port, "/").expect("an answer");
                    let (worker, size) = body.split_once(' ').expect("two words");
                    assert_eq!(size, "3000");
                    workers.push(worker.to_owned());
                }
                workers
            })
        })
        .collect();
    let mut workers: Vec<String> =
        clients.into_iter().flat_map(|client| client.join().expect("a client's answers are right")).collect();
    workers.sort();
    workers.dedup();
    assert!(workers.len() > 4, "no worker was replaced: {workers:?}");
}

/// A worker's threads promise to gain no privileges as they start, all at once, and an old worker ends as its threads do.
#[test]
fn haproxy_that_reloads_leaves_no_worker_behind() {
    needs!("haproxy");
    let scratch = Scratch::new();
    let socket = scratch.path().join("front");
    let configuration = scratch.file(
        "haproxy.cfg",
        &format!(
            "global\n nbthread 4\ndefaults\n mode http\n timeout connect 1s\n timeout client 1s\n timeout server 1s\n\
             frontend front\n bind unix@{}\n http-request return status 200 content-type text/plain string ok\n",
            socket.display()
        ),
    );
    let server = Run::preloaded(require("haproxy", "haproxy")).args(["-q", "-W", "-f"]).arg(configuration).spawn();
    let workers = || children_of(server.id());
    wait_until("a worker", || workers().len() == 1 && socket.exists());
    for _ in 0..10 {
        let before = workers();
        // A master that has just started may miss the signal.
        let mut turns = 0;
        wait_until("a new worker", || {
            if turns % 20 == 0 {
                let sent = Command::new("kill").args(["-USR2", &server.id().to_string()]).status();
                assert!(sent.is_ok_and(|status| status.success()));
            }
            turns += 1;
            workers().iter().any(|worker| !before.contains(worker))
        });
    }
    wait_until("one worker is left", || workers().len() == 1);
    assert!(server.maps_library(workers()[0]));
}
