//! The parsers of files on mutated texts of this repository: what `ebb` reads because a user named it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread;

use ebb_allocators::Allocator;
use ebb_deploy::check::declared::{self, Kind};
use ebb_deploy::check::dockerfile::Stages;
use ebb_deploy::fix::{Desired, compose, dockerfile, kubernetes, procfile, script, supervisor, unit};
use ebb_process::cgroup::Place;
use ebb_process::profile::{Location, Module, Profile, Stack, Sum};
use ebb_process::record::Record;
use ebb_process::snapshot::{Process, Snapshot};
use ebb_process::symbols::Line;
use ebb_process::{elf, pprof, recording};
use ebb_report::diagnosis::Form;
use ebb_report::profile::Shown;
use ebb_trial::results::Trial;
use ebb_trial::workload::Workload;
use fastrand::Rng;

use crate::harness;

/// Numbers and words at which parsers go wrong.
const WORDS: [&str; 24] = [
    "18446744073709551615", "-9223372036854775808", "1e308", "-1", "0", "NaN", "null", "\"", "'", "\\", "${", "$(",
    "`", "[", "{", "}", "]", ": ", "- ", "&a ", "*a", "\u{0}", "\u{2028}", "\t",
];
const NESTED: usize = 3000;

fn texts(folder: &str, ends: &[&str]) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let mut left = vec![root];
    let mut found = Vec::new();
    while let Some(path) = left.pop() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && name != "node_modules" && name != "target" {
            let entries = fs::read_dir(&path).expect("a folder").flatten();
            let mut entries: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
            entries.sort();
            left.extend(entries);
        } else if ends.iter().any(|end| name.ends_with(end)) {
            found.extend(fs::read_to_string(&path).ok().filter(|text| text.len() < 300_000));
        }
    }
    assert!(!found.is_empty(), "{folder}");
    found
}

fn mutated(random: &mut Rng, texts: &[String]) -> String {
    String::from_utf8_lossy(&mutated_bytes(random, texts)).into_owned()
}

/// A text with parts removed, doubled, taken from another, or replaced by words that do harm.
pub fn mutated_bytes<T: AsRef<[u8]>>(random: &mut Rng, texts: &[T]) -> Vec<u8> {
    let mut text = texts[random.usize(..texts.len())].as_ref().to_vec();
    for _ in 0..random.usize(1..8) {
        let at = random.usize(..=text.len());
        let most = 1 << random.u32(1..8);
        let to = (at + random.usize(..most)).min(text.len());
        match random.u8(..8) {
            0 => drop(text.drain(at..to)),
            1 => {
                let part = text[at..to].to_vec();
                text.splice(at..at, part);
            }
            2 => {
                let other = texts[random.usize(..texts.len())].as_ref();
                let from = random.usize(..=other.len());
                let part = &other[from..(from + random.usize(..200)).min(other.len())];
                text.splice(at..to, part.iter().copied());
            }
            3 => {
                let digits = text[at..].iter().position(u8::is_ascii_digit).map_or(text.len(), |it| at + it);
                let end = text[digits..].iter().position(|it| !it.is_ascii_digit());
                let end = end.map_or(text.len(), |it| digits + it);
                text.splice(digits..end, WORDS[random.usize(..7)].bytes());
            }
            4 if at < text.len() => text[at] ^= 1 << random.u8(..8),
            5 if random.u8(..50) == 0 => {
                let word = WORDS[random.usize(13..20)].repeat(NESTED);
                text.splice(at..at, word.bytes());
            }
            _ => drop(text.splice(at..at, WORDS[random.usize(..WORDS.len())].bytes())),
        }
    }
    text
}

fn desired() -> Desired {
    Desired {
        allocator: Allocator::Ebbmalloc,
        library: Some("/usr/lib/libebbmalloc.so".to_owned()),
        release: None,
        variables: [("EBB_CONF".to_owned(), "dirty_decay_ms:0".to_owned())].into(),
        keep_existing: false,
        why: "it is fuzzed".to_owned(),
    }
}

/// The parts of a file of cases, each one text.
fn cases(name: &str) -> Vec<String> {
    let file = format!("crates/ebb/tests/fixtures/fix/{name}.cases");
    let all = texts(&file, &[".cases"]).concat();
    // Without the headings, at which every parser would stop.
    all.split("\n-- ").filter_map(|part| Some(part.split_once(" --\n")?.1.to_owned())).collect()
}

#[test]
fn files_that_start_services() {
    let kinds = [
        ("compose", Kind::Compose),
        ("kubernetes", Kind::Kubernetes),
        ("procfile", Kind::Procfile),
        ("supervisor", Kind::Supervisor),
        ("script", Kind::Script),
        ("unit", Kind::Unit),
    ];
    let kinds = kinds.map(|(name, kind)| (cases(name), kind));
    let desired = desired();
    crate::fuzz("files that start services", |random| {
        let (texts, kind) = &kinds[random.usize(..kinds.len())];
        let text = mutated(random, texts);
        let _ = declared::kind(Path::new("f"), &text);
        let _ = declared::services(*kind, Path::new("f"), &text);
        let _ = match kind {
            Kind::Compose => compose::fix("f", &text, &|_| true, &desired),
            Kind::Kubernetes => kubernetes::fix("f", &text, &|_| true, Some("i"), &desired),
            Kind::Procfile => procfile::fix("f", &text, &|_| true, &desired),
            Kind::Supervisor => supervisor::fix("f", &text, &|_| true, &desired),
            Kind::Script => script::fix("f", &text, &desired),
            Kind::Unit => unit::fix(&unit::Files { name: "f", text: &text, drop_ins: &[] }, &desired),
        };
    });
}

#[test]
fn dockerfiles() {
    let (texts, desired) = (cases("dockerfile"), desired());
    crate::fuzz("Dockerfiles", |random| {
        let text = mutated(random, &texts);
        let _ = Stages::parse(&text);
        let _ = dockerfile::fix("f", &text, None, &|_: &str| None, &desired);
    });
}

#[test]
fn snapshots_and_recordings() {
    let process = Process { pid: 7, name: "service".into(), ..Process::default() };
    let shell = harness::Subject::python("print('ready', flush=True)\nimport sys; sys.stdin.read()");
    let real = harness::Finished::by(harness::ebb().args(["snap", &shell.pid()])).stdout;
    let made = serde_json::to_string(&ebb_process::example::snapshot(vec![process])).expect("JSON");
    let texts = [real, made];
    let folder = harness::folder();
    crate::fuzz("snapshots and recordings", |random| {
        let text = mutated(random, &texts);
        if let Ok(snapshot) = Snapshot::from_json(&text) {
            let diagnosis = [ebb_diagnosis::of(snapshot)];
            for form in [Form::Full, Form::Short(80)] {
                let _ = ebb_report::diagnosis::render(&diagnosis, form);
            }
        }
        let _ = serde_json::from_str::<Record>(&text);
        fs::write(folder.path().join("2026-11-26.jsonl.gz"), &text).expect("a file");
        let _ = recording::read(folder.path());
    });
}

#[test]
fn trials() {
    let texts = texts("crates/ebb-report/examples", &["results.json"]);
    crate::fuzz("JSON of trials", |random| {
        if let Ok(trial) = serde_json::from_str::<Trial>(&mutated(random, &texts)) {
            let _ = ebb_report::text::render(&trial, 80);
            let _ = ebb_report::markdown::render(&trial);
            let _ = ebb_report::html::render(&trial);
        }
    });
}

#[test]
fn workloads() {
    let texts = texts("workloads", &["workload.toml"]);
    crate::fuzz("workload.toml", |random| {
        let _ = Workload::from_text(&mutated(random, &texts), "/".into());
    });
}

#[test]
fn profiles_of_pprof() {
    let line = |name: &str| Line { function: name.into(), file: Some("a.c".into()), line: 7 };
    let lines = vec![line("inner"), line("outer")];
    let sum = Sum { bytes: 4096.0, objects: 2.0 };
    let profile = Profile {
        interval: 1 << 19,
        stacks: vec![Stack { locations: vec![0], allocated: sum, live: sum, ..Stack::default() }],
        locations: vec![Location { address: 0x1010, module: Some(0), lines }],
        modules: vec![Module { file: "a".into(), start: 0x1000, end: 0x2000, ..Module::default() }],
        ..Profile::default()
    };
    let packed = pprof::write(&profile, None, 1);
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut plain).expect("gzip");
    let texts = [plain.clone(), plain, packed];
    crate::fuzz("profiles of pprof", |random| {
        if let Ok(profile) = pprof::read(&mutated_bytes(random, &texts)) {
            let _ = ebb_report::profile::render(&profile, Shown::Live, 80);
            drop(pprof::write(&profile, None, 1));
        }
    });
}

#[test]
fn programs_and_libraries() {
    let folder = in_memory();
    let code = "void *malloc(unsigned long); int main(void) { return !malloc(1); }";
    let texts = [&["-g"][..], &["-g", "-m32", "-c"], &["-shared", "-fPIC", "-Wl,-soname,a.so"]]
        .map(|flags| fs::read(harness::compile(&folder, "cc", "a", code, flags)).expect("a file"));
    let file = folder.path().join("b");
    crate::fuzz("programs and libraries", |random| {
        fs::write(&file, elf_mutated(random, &texts)).expect("a file");
        if let Ok(elf) = elf::Elf::read(&file) {
            let _ = elf::libc_of(&elf);
        }
        let _ = elf::data_symbol(&file, &["environ"]);
        let _ = elf::exports(&file, &["malloc"]);
    });
}

/// A folder on no disk: each input writes files.
pub fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").expect("a temporary folder")
}

/// Most of an ELF file is code, which no reader looks at: its head, tables and names are changed.
pub fn elf_mutated(random: &mut Rng, texts: &[Vec<u8>]) -> Vec<u8> {
    let mut text = texts[random.usize(..texts.len())].clone();
    let tables = text.get(40..48).map_or(0, |it| u64::from_ne_bytes(it.try_into().expect("8")));
    for _ in 0..random.usize(1..8) {
        let (from, most) = match random.u8(..4) {
            0 => (0, 64),
            1 => (64, 1000),
            2 => (tables as usize, text.len()),
            _ => (0, text.len()),
        };
        let at = random.usize(from.min(text.len() - 8)..most.min(text.len() - 7));
        let bytes = match random.u8(..4) {
            0 => random.u64(..).to_ne_bytes(),
            1 => (1u64 << random.u8(..64)).to_ne_bytes(),
            2 => (u64::MAX - random.u64(..64)).to_ne_bytes(),
            _ => random.u64(..text.len() as u64).to_ne_bytes(),
        };
        let count = 1 << random.u8(..4);
        text[at..at + count].copy_from_slice(&bytes[..count]);
    }
    text.truncate(if random.u8(..8) == 0 { random.usize(..text.len()) } else { text.len() });
    text
}

#[test]
fn files_of_cgroups() {
    let folder = in_memory();
    let texts = [
        "18446744073709551615\n",
        "max\n",
        "anon 4096\nfile 8192\nshmem 0\nslab 12\ntotal_rss 4096\ntotal_cache 9223372036854771712\n",
        "low 0\nhigh 7\nmax 3\noom_kill 1\noom_kill_disable 0\n",
        "some avg10=0.00 avg60=12.50 avg300=1.00 total=55\nfull avg10=0 avg60=1 avg300=2 total=3\n",
        "usage_usec 5\nnr_throttled 4\nthrottled_usec 77\nthrottled_time 88\n",
        "1\n4194304\n-1\n",
    ];
    let names = "memory.current memory.max memory.high memory.peak memory.swap.current memory.stat memory.events \
                 memory.pressure memory.oom_control memory.usage_in_bytes memory.limit_in_bytes memory.failcnt \
                 memory.max_usage_in_bytes memory.memsw.usage_in_bytes memory.kmem.usage_in_bytes cpu.stat cgroup.procs";
    let names: Vec<&str> = names.split_whitespace().collect();
    crate::fuzz("files of cgroups", |random| {
        for _ in 0..4 {
            let name = names[random.usize(..names.len())];
            let text = mutated_bytes(random, &texts);
            fs::write(folder.path().join(name), text).expect("a file");
        }
        let (mount, cpu) = (folder.path().to_owned(), Some(folder.path().to_owned()));
        let place = Place { version: random.u8(1..3), folder: mount.clone(), mount, cpu };
        let _ = place.read();
        let _ = (place.oom_kills(), place.throttled_s(), place.limit_bytes());
    });
}

/// `ebb fleet` asks a server that answers with anything. Each input is a process.
#[test]
fn answers_of_prometheus() {
    let series = |values: &str| {
        format!(
            r#"{{"status":"success","data":{{"resultType":"matrix","result":[{{"metric":{{"node":"n","namespace":"d","pod":"a-7f-b","container":"c","container_id":"containerd://0a"}},{values}}}]}}}}"#
        )
    };
    let texts = [
        series(r#""values":[[1700000000,"1e9"],[1700000060.5,"NaN"],[1700000120,"+Inf"]]"#),
        series(r#""value":[1700000000,"12345678"]"#),
        r#"{"status":"success","data":[{"pod":"a","node":"n"}]}"#.to_owned(),
        r#"{"status":"error","error":"query timed out"}"#.to_owned(),
    ];
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let (send, receive) = channel::<u64>();
    thread::spawn(move || {
        let mut random = Rng::with_seed(0);
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            if let Some(seed) = receive.try_iter().last() {
                random = Rng::with_seed(seed);
            }
            let _ = stream.read(&mut [0; 8192]);
            let status = [200, 200, 200, 200, 500, 302][random.usize(..6)];
            let body = if random.u8(..4) == 0 {
                texts[random.usize(..texts.len())].clone().into_bytes()
            } else {
                mutated_bytes(&mut random, &texts)
            };
            let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let _ = stream.write_all(&[head.into_bytes(), body].concat());
        }
    });
    crate::fuzz("answers of Prometheus", |random| {
        send.send(random.u64(..)).expect("the server");
        let verb = ["rank", "watch-list"][random.usize(..2)];
        let command = format!("fleet {verb} --prometheus {address} --for 1h");
        let done = harness::Finished::by(harness::ebb().args(harness::words(&command)));
        assert!(done.code.is_some_and(|code| code < 100), "{}", done.all());
    });
}
