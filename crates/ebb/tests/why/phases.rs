//! Marked points of a program's life: what each phase left, and what that is not.

use serde_json::Value;

use crate::harness::{self, Finished, Subject};

/// Each line of stdin starts the next phase.
const LIFE: &str = "
import sys, threading
print('ready', flush=True)

def phase():
    sys.stdin.readline()

phase()
array = bytearray(b'x') * (32 << 20)
print('done', flush=True)
phase()
small = [[number] for number in range(400_000)]
small = small[::2000]
print('done', flush=True)
phase()
sys.setrecursionlimit(20_000)
ready, end = threading.Semaphore(0), threading.Event()
def deep():
    nested = []
    for _ in range(15_000): nested = [nested]
    repr(nested)
    while nested: nested = nested.pop()
    ready.release()
    end.wait()
threads = [threading.Thread(target=deep, daemon=True) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: ready.acquire()
print('done', flush=True)
phase()
";

fn suspect<'a>(phase: &'a Value, what: &str) -> &'a Value {
    let suspects = phase["left"]["suspects"].as_array().expect("suspects");
    suspects.iter().find(|it| it["what"] == what).unwrap_or_else(|| panic!("no {what}: {phase:#}"))
}

#[test]
fn a_python_program_with_an_array_freed_objects_and_threads() {
    let folder = harness::folder();
    let life = folder.path().join("life.json");
    let mut python = Subject::python(LIFE);
    let mark = |label: &str, pid: &str| {
        let mut snap = harness::ebb();
        snap.args(["snap", pid, "--label", label, "-o"]).arg(&life);
        Finished::by(&mut snap).expect(0, &[], &[]);
    };
    mark("imported", &python.pid());
    for label in ["array", "freed", "threads"] {
        python.tell();
        assert_eq!(python.line(), "done");
        mark(label, &python.pid());
    }
    let report = Finished::by(harness::ebb().args(["diff", "--json"]).arg(&life)).json();
    let [first, array, freed, threads] = report["phases"].as_array().expect("phases").as_slice()
    else {
        panic!("{report:#}");
    };
    assert_eq!((&first["label"], &first["left"]), (&"imported".into(), &Value::Null));
    let mb = |value: &Value| value.as_i64().unwrap_or_else(|| panic!("{report:#}")) as f64 / 1e6;
    let is_out = |phase: &Value, what: &str| suspect(phase, what)["ruled_out"] == true;

    let blocks = "blocks of 1 MiB or more";
    assert!((33.0..36.0).contains(&mb(&array["left"]["live"])), "{array:#}");
    assert!(mb(&array["left"]["held"]).abs() < 2.0, "{array:#}");
    assert_eq!(suspect(array, blocks)["count"], 1, "{array:#}");
    assert!(!is_out(array, blocks), "{array:#}");
    assert!(is_out(array, "stacks") && is_out(array, "objects of the interpreter"), "{array:#}");

    assert!(mb(&freed["left"]["held"]) > 10.0, "{freed:#}");
    assert!(mb(&freed["left"]["live"]) < 3.0, "{freed:#}");
    for what in [blocks, "stacks", "mapped files", "shared memory", "objects of the interpreter"] {
        assert!(is_out(freed, what), "{what}: {freed:#}");
    }

    assert_eq!(suspect(threads, "stacks")["count"], 8, "{threads:#}");
    assert!(
        !is_out(threads, "stacks") && mb(&suspect(threads, "stacks")["bytes"]) > 4.0,
        "{threads:#}"
    );
    assert!(is_out(threads, blocks), "{threads:#}");

    let text = Finished::by(harness::ebb().arg("diff").arg(&life));
    let lines = ["imported  ", "\nfreed\n  ruled out: objects of the interpreter ("];
    text.expect(0, &lines, &[]);
    assert!(
        text.stdout.contains("has a part: blocks of 1 MiB or more (+33.6 MB, +1 block)"),
        "{}",
        text.stdout
    );
}

#[test]
fn what_is_no_file_of_points_is_refused_and_stays() {
    let folder = harness::folder();
    let own = std::process::id().to_string();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (plain, other, one) = (at("plain.json"), at("notes.txt"), at("one.json"));
    std::fs::write(&other, "mine\n").unwrap();
    Finished::by(harness::ebb().args(["snap", &own, "-o", &plain])).expect(0, &[], &[]);
    let label = ["snap", &own, "--label", "a", "-o"];
    Finished::by(harness::ebb().args(label).arg(&one)).expect(0, &[], &[]);
    for (arguments, words) in [
        (vec!["diff", &*one], "fewer than two marked points"),
        (vec!["diff", &*plain], "no marked point"),
        (vec!["diff", &*other], "name a file of `ebb snap --label`, or two files"),
        ([&label[..], &[&*plain]].concat(), "no marked point"),
        ([&label[..], &[&*other]].concat(), "no marked point"),
    ] {
        harness::assert_refused(&harness::output(harness::ebb().args(arguments)), 64, &[words]);
    }
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "mine\n");
    let snap = Finished::by(harness::ebb().args(["snap", &own, "--label", "a\nb", "-o", &one]));
    snap.expect(64, &[], &["letters on one line"]);
    let snap = Finished::by(harness::ebb().args(["snap", &own, "--label", "a"]));
    snap.expect(64, &[], &["--output <FILE>"]);
}

/// Bursts of 120 MB in blocks of 60 kB with rests of 4 s; after a line of stdin one last burst, then a word.
const BURSTS: &str = "
import select, sys, time
kept = []
print('ready', flush=True)
while True:
    last = bool(select.select([sys.stdin], [], [], 0)[0])
    end = time.process_time() + 1.5
    while time.process_time() < end:
        blocks = None
        blocks = [bytes(60_000 + number) for number in range(2000)]
    kept = blocks[::400]
    del blocks
    if last:
        print('idle', flush=True)
        time.sleep(600)
    time.sleep(4)
";

/// What the rests of a watch promise is what a trim returns in the next rest.
#[test]
fn a_watch_names_the_rests_at_which_a_trim_returns_memory() {
    if std::env::var_os("EBB_LONG").is_none() {
        return;
    }
    let mut python = Subject::python(BURSTS);
    let mut watch = harness::ebb();
    watch.args(["why", "--json", "--watch", "40s", "--every", "500ms", &python.pid()]);
    let report = Finished::by(&mut watch).json();
    let rests = &report["rests"];
    let promised = rests["median_bytes"].as_u64().unwrap_or_else(|| panic!("{rests}"));
    let count = rests["rests"].as_array().map_or(0, Vec::len);
    assert!((2..=8).contains(&count), "{rests}");
    let next = rests["next"].as_str().unwrap_or_default();
    assert!(next.starts_with(&format!("ebb trim {} --inject --every ", python.pid())), "{rests}");
    python.tell();
    assert_eq!(python.line(), "idle");
    let trim = Finished::by(harness::ebb().args(["trim", "--inject", "--json", &python.pid()]));
    let measured = &trim.json()["processes"][0]["measured"];
    let of = |name: &str| measured[name].as_u64().unwrap_or_else(|| panic!("{}", trim.all()));
    let returned = of("rss_before") - of("rss_after");
    assert!(returned.abs_diff(promised) < promised / 4, "{returned} were returned, not {promised}");
}
