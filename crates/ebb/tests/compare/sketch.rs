//! `ebb compare` on a service without a workload file, and `ebb burst`, which drives it.
//!
//! The service is that of `fixtures/bursts`, started by its own command line. Needs python3.

use crate::bench::{self, Finished, fixture, results};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

fn ebb(arguments: &[&str]) -> Finished {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    Finished::of(&command.args(arguments).current_dir(fixture()).output().unwrap())
}

/// A service that answers every request, with 503 where the path says so, and ends with the test's process.
fn service() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serve = |stream: TcpStream| -> std::io::Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        while let Some(first) = lines.next().transpose()? {
            let mut length = 0;
            while let Some(line) = lines.next().transpose()?.filter(|line| !line.is_empty()) {
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
            }
            // Bodies of these tests are lines.
            for _ in 0..u64::from(length > 0) {
                lines.next().transpose()?;
            }
            let status = if first.contains("/busy") { "503 Busy" } else { "200 OK" };
            (&stream).write_all(
                format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok").as_bytes(),
            )?;
        }
        Ok(())
    };
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream));
        }
    });
    url
}

const SERVICE: [&str; 4] = ["--", "python3", "service.py", "{port}"];

#[test]
fn a_workload_file_may_be_named_without_its_folder() {
    ebb(&["compare", "workload.toml", "--variants", "missing"]).expect(
        20,
        &["missing: not run: /nowhere/libmissing.so is not installed"],
        &[],
    );
}

#[test]
fn a_service_of_ones_own_is_driven_by_the_generator() {
    let output = tempfile::tempdir().unwrap();
    let folder = output.path().to_str().unwrap();
    let mut arguments = vec![
        "compare",
        "--burst",
        "http://127.0.0.1:{port}/burst -n 3 -c 1",
        "--ready",
        "http://127.0.0.1:{port}/health",
        "--rest",
        "700ms",
        "--variants",
        "glibc,x=glibc+MALLOC_ARENA_MAX=1",
        "-n",
        "1",
        "-o",
        folder,
    ];
    arguments.extend(SERVICE);
    let finished = ebb(&arguments);
    finished.expect(0, &["after rest", "requests/s", "Verdict:"], &["report.html"]);
    let trial = results(output.path());
    assert_eq!(trial["workload"]["name"], "python3");
    let run = &trial["variants"][0]["runs"][0];
    let phases: Vec<_> = run["phases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|span| span["name"].as_str().unwrap())
        .collect();
    assert_eq!(phases, ["warm-up", "burst", "rest", "burst", "rest"]);
    let load = &run["phases"][1]["load"];
    assert_eq!(
        (load["requests"].as_u64(), load["tool"].as_str()),
        (Some(3), Some("ebb burst, closed loop"))
    );
    let growth = trial["variants"][0]["summary"]["figures"]["growth"]["median"].as_f64().unwrap();
    assert!(growth > 20e6, "the burst is seen: {growth}");
    let markdown = std::fs::read_to_string(output.path().join("report.md")).unwrap();
    assert!(
        markdown.contains("Throughput and latency are as reported by ebb burst, closed loop."),
        "{markdown}"
    );
}

#[test]
fn a_load_of_the_users_own_is_run_as_it_is_and_need_not_have_a_summary() {
    let mut arguments = vec![
        "compare",
        "--load",
        "sh -c 'python3 load.py http://127.0.0.1:{port}/burst 2 >/dev/null; echo \"{}\" and done'",
        "--ready",
        "127.0.0.1:{port}",
        "--rest",
        "300ms",
        "--cycles",
        "1",
        "--variants",
        "glibc",
        "-n",
        "1",
    ];
    arguments.extend(SERVICE);
    ebb(&arguments).expect(0, &["not read", "{} and done"], &[]);
}

#[test]
fn the_printed_workload_is_the_one_that_runs() {
    let mut arguments = vec![
        "compare",
        "--load",
        "python3 load.py http://127.0.0.1:{port}/burst 3",
        "--rest",
        "500ms",
        "--print-workload",
    ];
    arguments.extend(SERVICE);
    let printed = ebb(&arguments);
    printed.expect(0, &["[service]", "tcp = \"127.0.0.1:{port}\""], &[]);
    let dir = tempfile::tempdir().unwrap();
    for name in ["service.py", "load.py"] {
        std::fs::copy(fixture().join(name), dir.path().join(name)).unwrap();
    }
    std::fs::write(dir.path().join("workload.toml"), &printed.stdout).unwrap();
    bench::run(dir.path(), &["--variants", "glibc", "-n", "1"]).expect(0, &["requests/s"], &[]);
}

#[test]
fn a_port_that_somebody_has_is_told_before_a_wrong_service_is_measured() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let url = format!("http://{address}/");
    let arguments = [
        "compare",
        "--burst",
        &url,
        "--variants",
        "glibc",
        "-n",
        "1",
        "--",
        "python3",
        "service.py",
        "1",
    ];
    ebb(&arguments).expect(
        20,
        &[&format!("another program answers at {address} before the service was started")],
        &[],
    );
}

#[test]
fn a_load_that_nobody_answers_is_told() {
    let mut arguments = vec![
        "compare",
        "--load",
        "sh -c 'cat hey-0.1.4-nobody.txt'",
        "--ready",
        "127.0.0.1:{port}",
        "--variants",
        "glibc",
        "-n",
        "1",
    ];
    let service = fixture().join("service.py");
    arguments.extend(["--", "python3", service.to_str().unwrap(), "{port}"]);
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tools");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    let finished = Finished::of(&command.args(&arguments).current_dir(tools).output().unwrap());
    finished.expect(20, &["none of its 16 requests was answered"], &[]);
}

#[test]
fn flags_that_make_no_sense_are_refused_before_anything_starts() {
    let python = ["--", "python3", "service.py", "1"];
    for (arguments, expected) in [
        (vec!["--ready", "127.0.0.1:1"], "no load is given"),
        (vec!["--load", "./drive.sh"], "ebb cannot detect when the service is ready"),
        (vec!["--load", "echo 'x", "--ready", "a:1"], "a quote may be open"),
        (
            vec!["--burst", "http://127.0.0.1:1/", "--ready", "soon"],
            "write http://..., HOST:PORT or line:REGEX",
        ),
    ] {
        let all: Vec<&str> = ["compare"].into_iter().chain(arguments).chain(python).collect();
        ebb(&all).expect(64, &[], &[expected]);
    }
    // Both ways are named, with a line to type.
    ebb(&["compare"]).expect(64, &[], &["ebb compare workloads/sse", "-- ./server --port 8000"]);
    ebb(&["compare", "--load", "x"]).expect(
        64,
        &[],
        &["--load needs a service", "ebb compare --load ... -- ./server"],
    );
    ebb(&["compare", "--load", "x", "uvicorn", "main:app"]).expect(
        64,
        &[],
        &["ebb compare --load ... -- uvicorn main:app"],
    );
    ebb(&["compare", "--rest", "1s", "."]).expect(64, &[], &["--rest needs a service"]);
    ebb(&["compare", "a", "b"]).expect(64, &[], &["there are 2 workloads: a b"]);
    for help in ["compare", "fix", "check"] {
        ebb(&[help, "--help"]).expect(0, &["Examples:", &format!("ebb {help} ")], &[]);
    }
    ebb(&["compare", "--load", "x", "folder", "--", "python3"]).expect(
        64,
        &[],
        &["cannot be used with"],
    );
}

#[test]
fn a_burst_prints_words_and_then_its_summary() {
    let url = service();
    let busy = format!("{url}/busy");
    let body = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(body.path(), "{\"a\": 1}\n").unwrap();
    let body = body.path().to_str().unwrap();
    let finished = ebb(&[
        "burst",
        &url,
        &busy,
        "-n",
        "41",
        "-c",
        "3",
        "--body",
        body,
        "-H",
        "Content-Type: application/json",
    ]);
    finished.expect(
        0,
        &["21 requests answered and 20 failed", "closed loop, 3 connections", "p99"],
        &["failed 20 times: status 503"],
    );
    let last = finished.stdout.lines().last().unwrap();
    let summary: serde_json::Value = serde_json::from_str(last).unwrap();
    assert_eq!((summary["requests"].as_u64(), summary["errors"].as_u64()), (Some(21), Some(20)));
    assert!(summary["latency_ms"]["p99"].as_f64().unwrap() > 0.0);
    let paced = ebb(&["burst", &url, "-z", "1s", "--rate", "50", "--json"]);
    let summary: serde_json::Value = serde_json::from_str(&paced.stdout).unwrap();
    assert_eq!(
        (summary["requests"].as_u64(), summary["tool"].as_str()),
        (Some(50), Some("ebb burst, paced"))
    );
}

#[test]
fn a_burst_that_cannot_be_sent_is_one_line_and_a_code() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    ebb(&["burst", &nobody, "-n", "4"]).expect(
        20,
        &[],
        &["none of 4 requests was answered", "refused"],
    );
    for (arguments, expected) in [
        (vec!["https://localhost/"], "does not support TLS"),
        (vec!["localhost:80"], "not http://HOST"),
        (vec!["http://h/", "--rate", "0"], "not a number above 0"),
        (vec!["http://h/", "--body", "/nowhere/x"], "/nowhere/x"),
        (vec!["http://h/", "-H", "nothing"], "NAME: VALUE"),
        (vec!["http://h/", "-n", "1", "-z", "1s"], "cannot be used with"),
    ] {
        let all: Vec<&str> = ["burst"].into_iter().chain(arguments).collect();
        ebb(&all).expect(64, &[], &[expected]);
    }
}
