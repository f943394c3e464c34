//! `ebb compare` on a service without a workload file, and `ebb burst`, which drives it.
//!
//! The service is that of `fixtures/bursts`, started by its own command line.

use crate::harness::Finished;
use crate::workload::{Workload, ebb, fixture, list, median};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

/// `ebb` with the words of `line`, in the fixture's folder.
fn run(line: &str) -> Finished {
    Finished::by(ebb(line).current_dir(fixture()))
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
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok");
            (&stream).write_all(answer.as_bytes())?;
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

const SERVICE: &str = "-- python3 service.py {port}";

#[test]
fn a_workload_file_may_be_named_without_its_folder() {
    let missing = "missing: not run: /nowhere/libmissing.so is not installed";
    run("compare workload.toml --variants missing").expect(20, &[missing], &[]);
}

#[test]
fn a_service_of_ones_own_is_driven_by_the_generator() {
    let output = tempfile::tempdir().unwrap();
    let finished = run(&format!(
        "compare --burst 'http://127.0.0.1:{{port}}/burst -n 3 -c 1' --ready http://127.0.0.1:{{port}}/health \
         --rest 700ms --variants glibc,x=glibc+MALLOC_ARENA_MAX=1 -n 1 -o {} {SERVICE}",
        output.path().display()
    ));
    finished.expect(0, &["after rest", "requests/s", "Verdict:"], &["report.html"]);
    let read = |name: &str| std::fs::read_to_string(output.path().join(name)).unwrap();
    let trial: serde_json::Value = serde_json::from_str(&read("results.json")).unwrap();
    assert_eq!(trial["workload"]["name"], "python3");
    let phases = list(&trial["variants"][0]["runs"][0]["phases"]);
    let names: Vec<_> = phases.iter().map(|span| span["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["warm-up", "burst", "rest", "burst", "rest"]);
    let load = &phases[1]["load"];
    assert_eq!(load["requests"], 3);
    assert_eq!(load["tool"], "ebb burst, closed loop");
    let growth = median(&trial, 0, "growth");
    assert!(growth > 20e6, "the burst is seen: {growth}");
    let markdown = read("report.md");
    let source = "Throughput and latency are as reported by ebb burst, closed loop.";
    assert!(markdown.contains(source), "{markdown}");
}

#[test]
fn a_load_of_the_users_own_is_run_as_it_is_and_need_not_have_a_summary() {
    let load = r#"sh -c 'python3 load.py http://127.0.0.1:{port}/burst 2 >/dev/null; echo "{}" and done'"#;
    let rest = "--ready 127.0.0.1:{port} --rest 300ms --cycles 1 --variants glibc -n 1";
    let load = shlex::try_quote(load).unwrap();
    let finished = run(&format!("compare --load {load} {rest} {SERVICE}"));
    finished.expect(0, &["not read", "{} and done"], &[]);
}

#[test]
fn the_printed_workload_is_the_one_that_runs() {
    let load = "--load 'python3 load.py http://127.0.0.1:{port}/burst 3'";
    let printed = run(&format!("compare {load} --rest 500ms --print-workload {SERVICE}"));
    printed.expect(0, &["[service]", "tcp = \"127.0.0.1:{port}\""], &[]);
    let workload = Workload::plain();
    std::fs::write(workload.path().join("workload.toml"), &printed.stdout).unwrap();
    workload.run("--variants glibc -n 1").expect(0, &["requests/s"], &[]);
}

#[test]
fn a_port_that_somebody_has_is_told_before_a_wrong_service_is_measured() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let told = format!("another program answers at {address} before the service was started");
    let line = format!("--burst http://{address}/ --variants glibc -n 1 -- python3 service.py 1");
    run(&format!("compare {line}")).expect(20, &[&told], &[]);
}

#[test]
fn a_load_that_nobody_answers_is_told() {
    let recorded = include_str!("../../../ebb-trial/src/tools/recorded.cases");
    let summary = recorded.split("== hey-0.1.4-nobody.txt ==\n").nth(1).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("said"), summary.split("\n== ").next().unwrap()).unwrap();
    let load = "--load \"sh -c 'cat said'\" --ready 127.0.0.1:{port}";
    let service = fixture().join("service.py");
    let line = format!("{load} --variants glibc -n 1 -- python3 {} {{port}}", service.display());
    let finished = Finished::by(ebb(&format!("compare {line}")).current_dir(folder.path()));
    finished.expect(20, &["none of its 16 requests was answered"], &[]);
}

#[test]
fn flags_that_make_no_sense_are_refused_before_anything_starts() {
    let ready = "ebb cannot detect when the service is ready";
    let kinds = "write http://..., HOST:PORT or line:REGEX";
    let needs = ["--load needs a service", "ebb compare --load ... -- ./server"];
    for (line, stderr) in [
        ("--ready 127.0.0.1:1 -- python3 service.py 1", &["no load is given"][..]),
        ("--load ./drive.sh -- python3 service.py 1", &[ready]),
        ("--load \"echo 'x\" --ready a:1 -- python3 service.py 1", &["a quote may be open"]),
        ("--burst http://127.0.0.1:1/ --ready soon -- python3 service.py 1", &[kinds]),
        // Both ways are named, with a line to type.
        ("", &["ebb compare workloads/sse", "-- ./server --port 8000"]),
        ("--load x", &needs),
        ("--load x uvicorn main:app", &["ebb compare --load ... -- uvicorn main:app"]),
        ("--rest 1s .", &["--rest needs a service"]),
        ("a b", &["there are 2 workloads: a b"]),
        ("--load x folder -- python3", &["cannot be used with"]),
    ] {
        run(&format!("compare {line}")).expect(64, &[], stderr);
    }
    for verb in ["compare", "fix", "check"] {
        let line = format!("ebb {verb} ");
        run(&format!("{verb} --help")).expect(0, &["Examples:", &line], &[]);
    }
}

#[test]
fn a_burst_prints_words_and_then_its_summary() {
    let url = service();
    let body = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(body.path(), "{\"a\": 1}\n").unwrap();
    let options = format!("-n 41 -c 3 --body {}", body.path().display());
    let finished = run(&format!("burst {url} {url}/busy {options} -H 'Content-Type: application/json'"));
    finished.expect(
        0,
        &["21 requests answered and 20 failed", "closed loop, 3 connections", "p99"],
        &["failed 20 times: status 503"],
    );
    let last = finished.stdout.lines().last().unwrap();
    let summary: serde_json::Value = serde_json::from_str(last).unwrap();
    assert_eq!((summary["requests"].as_u64(), summary["errors"].as_u64()), (Some(21), Some(20)));
    assert!(summary["latency_ms"]["p99"].as_f64().unwrap() > 0.0);
    let paced = run(&format!("burst {url} -z 1s --rate 50 --json")).json();
    assert_eq!(paced["requests"], 50);
    assert_eq!(paced["tool"], "ebb burst, paced");
}

#[test]
fn a_burst_that_cannot_be_sent_is_one_line_and_a_code() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}/ -n 4", listener.local_addr().unwrap());
    drop(listener);
    for (line, code, stderr) in [
        (&*nobody, 20, &["none of 4 requests was answered", "refused"][..]),
        ("http://nowhere.invalid/ -n 1", 20, &["failed 1 times: nowhere.invalid: "]),
        ("https://localhost/", 64, &["does not support TLS"]),
        ("localhost:80", 64, &["not http://HOST"]),
        ("http://h/ --rate 0", 64, &["not a number above 0"]),
        ("http://h/ --body /nowhere/x", 64, &["/nowhere/x"]),
        ("http://h/ -H nothing", 64, &["NAME: VALUE"]),
        ("http://h/ -n 1 -z 1s", 64, &["cannot be used with"]),
    ] {
        run(&format!("burst {line}")).expect(code, &[], stderr);
    }
}
