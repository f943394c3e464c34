//! What a terminal of 80 columns and 24 lines shows: ten lines at most, with the next step; and the lines of a watch.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use serde_json::Value;

use crate::harness::subjects::{self, Cgroup};
use crate::harness::{self, Finished, Subject, output};
use test_needs::skip;

/// The text without its line breaks.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What `ebb why` prints of a target; at most ten lines of 80 columns, the next step within them.
#[track_caller]
fn short(why: &mut Command) -> Finished {
    let why = Finished::by(why);
    let height = |line: &str| line.chars().count().div_ceil(80).max(1);
    let lines: usize = why.stdout.trim().lines().map(height).sum();
    assert!(lines <= 10, "{lines} lines: {}", why.all());
    assert!(why.stdout.contains("\nNext: "), "{}", why.all());
    why
}

fn why(target: &str) -> Command {
    let mut command = harness::ebb();
    command.args(["why", target]);
    command
}

/// A copy of the C program, under a name that nothing else on this machine has.
fn name(word: &str) -> String {
    format!("{word}{}", std::process::id())
}

#[test]
fn a_c_program_after_a_burst() {
    let subject = Subject::start(&mut subjects::command("c:burst-1-thread"));
    let text = short(&mut why(&subject.pid()));
    let next = format!("Next: ebb trim {} --inject", subject.pid());
    // The exit status is the verdict's kind, and the first line the verdict.
    text.expect(10, &["Trim: malloc_trim would return 1", &next], &[]);
    assert!(text.stdout.starts_with("Retention: 1"), "{}", text.stdout);
    // The long form has every figure.
    for option in ["-v", "--verbose"] {
        let full = Finished::by(why(&subject.pid()).arg(option));
        let lines = ["malloc_trim would return", "remainder", "- not stacks", "Next: "];
        full.expect(10, &lines, &[]);
        assert!(full.stdout.starts_with("Retention: 1"), "{}", full.stdout);
        assert!(full.stdout.lines().count() > 20, "{}", full.stdout);
    }
}

#[test]
fn the_next_step_for_pythons_arenas_contains_the_variant_that_helps() {
    let subject = Subject::start(&mut subjects::command("py:objects-freed"));
    let text = short(&mut why(&subject.pid())).stdout;
    let next = "Next: ebb compare WORKLOAD --variants glibc,ebbmalloc\n";
    assert!(text.contains(next), "{text}");
}

#[test]
fn alike_workers_share_a_line() {
    if !Uid::effective().is_root() {
        skip!("only root can start workers of another user");
    }
    let subject = Subject::start(&mut subjects::gunicorn("live"));
    let text = short(&mut why(&subject.pid())).stdout;
    assert!(text.contains("Processes: "), "{text}");
    let words = words(&text);
    assert!(words.contains("4 gunicorn of ") || words.contains("5 gunicorn of "), "{text}");
}

/// Of several processes of one name the one that is larger is named.
#[test]
fn many_processes_of_a_name_and_one_that_differs() {
    let (folder, name) = (harness::folder(), name("many"));
    let _alike = [(); 6].map(|()| subjects::named(&folder, &name, "small"));
    let large = subjects::named(&folder, &name, "live-peak");
    let text = short(&mut why(&name)).stdout;
    let differs = format!("{name} ({}) differs: 12", large.pid());
    assert!(words(&text).contains(&differs), "{text}");
    assert!(words(&text).contains(&format!("6 {name} of ")), "{text}");
}

#[test]
fn a_process_near_its_limit_has_the_headroom_in_line_two() {
    let Some(cgroup) = Cgroup::new("headroom") else {
        return;
    };
    let subject = Subject::start(&mut cgroup.with(&subjects::command("c:live-peak")));
    cgroup.limit(cgroup.usage() * 10 / 9).expect("a limit");
    let text = short(&mut why(&subject.pid())).stdout;
    let second = text.lines().nth(1).unwrap_or_default();
    let share = ["At 89 % of the limit: ", "At 90 % of the limit: "];
    assert!(share.iter().any(|start| second.starts_with(start)), "{text}");
    assert!(second.contains(" MB left"), "{text}");
}

#[test]
fn another_users_process_has_the_missing_right_in_the_first_lines() {
    if !Uid::effective().is_root() {
        skip!("only root can look as another user");
    }
    let folder = harness::folder();
    let subject = Subject::start(&mut subjects::command("c:live-peak"));
    let why = short(harness::unprivileged_ebb(&folder).args(["why", &subject.pid()]));
    let text = why.stdout.trim();
    let first: Vec<&str> = text.lines().take(4).collect();
    assert!(first.join(" ").contains("it runs as another user (uid 0)"), "{text}");
    let next = "Next: Run ebb as that user, or as root (in a container with CAP_SYS_PTRACE).";
    assert!(text.ends_with(next), "{text}");
}

/// Two programs of a name in two cgroups.
struct Apart {
    name: String,
    subjects: [Subject; 2],
    cgroups: [Cgroup; 2],
    folder: tempfile::TempDir,
}

impl Apart {
    fn start(word: &str, case: &str) -> Option<Self> {
        let cgroups = [Cgroup::new(&format!("{word}-one"))?, Cgroup::new(&format!("{word}-other"))?];
        let (folder, name) = (harness::folder(), name(word));
        let program = subjects::copy(&folder, &name);
        let subjects = cgroups.each_ref().map(|it| Subject::start(&mut it.with(Command::new(&program).arg(case))));
        Some(Self { name, subjects, cgroups, folder })
    }

    fn paths(&self) -> [String; 2] {
        self.cgroups.each_ref().map(|cgroup| {
            let folder = cgroup.0.file_name().expect("a name");
            format!("/{}", folder.to_string_lossy())
        })
    }
}

/// Each has a report, with the figures of its own cgroup.
#[test]
fn two_masters_of_a_name_in_two_cgroups_are_told_apart() {
    let Some(apart) = Apart::start("twice", "live-peak") else {
        return;
    };
    let value = Finished::by(why(&apart.name).arg("--json")).json();
    let reports = value.as_array().expect("a list");
    assert_eq!(reports.len(), 2, "{value}");
    for (subject, cgroup) in apart.subjects.iter().zip(apart.paths()) {
        let of = |report: &&Value| report["snapshot"]["processes"][0]["pid"] == subject.id;
        let report = reports.iter().find(of).expect("one of it");
        let path = report["snapshot"]["cgroup"]["path"].as_str().unwrap_or_default();
        assert!(path.ends_with(&cgroup), "{path} is not {cgroup}");
        let sentence = report["verdict"]["sentence"].as_str().unwrap_or_default();
        assert!(sentence.contains(&format!("({})", subject.pid())), "{sentence}");
    }
}

/// What reports the figures of one cgroup refuses a name that stands for two, and says what to type.
#[test]
fn verbs_for_one_cgroup_refuse_a_name_in_two() {
    let Some(apart) = Apart::start("apart", "small") else {
        return;
    };
    let [one, other] = apart.paths();
    let [first, second] = apart.subjects.each_ref().map(|it| format!("(pid {})", it.pid()));
    let (name, folder) = (&apart.name, apart.folder.path().display());
    for line in [
        format!("snap {name}"),
        format!("watch {name} --prometheus {folder}/ebb.prom"),
        format!("why --watch 1s {name}"),
    ] {
        let refused = output(harness::ebb().args(harness::words(&line)));
        harness::assert_refused(&refused, 64, &[&*one, &other, &first, &second]);
    }
    // One of the paths is enough, and so is a pid.
    for target in [one, apart.subjects[1].pid()] {
        Finished::by(harness::ebb().args(["snap", &target])).expect(0, &[], &[]);
    }
}

#[test]
fn a_pid_may_be_an_option() {
    let subject = Subject::start(&mut subjects::command("c:small"));
    for option in ["-p", "--pid"] {
        let text = short(harness::ebb().args(["why", option, &subject.pid()])).stdout;
        assert!(text.starts_with("Nothing to gain: "), "{text}");
        Finished::by(harness::ebb().args(["snap", option, &subject.pid()])).expect(0, &[], &[]);
    }
}

/// A line for each window; Ctrl-C ends it earlier, and what is known until then is concluded from.
#[test]
fn a_watch_says_a_line_for_each_window_and_concludes_when_it_is_ended() {
    let subject = Subject::start(&mut subjects::command("c:leak"));
    let mut watch = harness::ebb();
    watch.args(["why", "--watch", "12s", "--every", "50ms", &subject.pid()]);
    let mut watch = watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("ebb");
    let mut said = BufReader::new(watch.stderr.take().expect("a pipe")).lines();
    let mut line = || said.next().expect("a line").expect("text");
    let first = line();
    assert!(first.contains("for 12 s; Ctrl-C ends it"), "{first}");
    for _ in 0..3 {
        let window = line();
        assert!(window.contains(" of 12 s: ") && window.contains(" live, "), "{window}");
    }
    kill(Pid::from_raw(watch.id().cast_signed()), Signal::SIGINT).expect("a signal");
    let ended = Finished::of(&watch.wait_with_output().expect("an end"));
    let text = ended.stdout.trim();
    assert!(text.lines().count() <= 10, "{text}");
    let known = ["The live heap of ", "Too short: "];
    assert!(known.iter().any(|start| text.starts_with(start)), "{text}");
    assert!(matches!(ended.code, Some(11 | 20)), "{text}");
}

/// Refused before the watch, with the line and what to write.
#[test]
fn a_file_of_events_without_times_is_refused() {
    let folder = harness::folder();
    let file = folder.path().join("events");
    std::fs::write(&file, "# of today\n\n1764000000 deploy\nyesterday deploy\n").unwrap();
    let mut watch = harness::ebb();
    watch.args(["why", "--watch", "1h", "--events"]).arg(&file).arg("1");
    harness::assert_refused(&output(&mut watch), 64, &["events: line 4: ", "seconds since 1970"]);
}

/// A real process whose memory rises by 12 MB for good, in the middle of a watch with bursts.
#[test]
fn a_step_is_found_with_the_event_before_it() {
    const STEPS: &str = r#"
        use Time::HiRes qw(time sleep);
        my ($start, $kept) = (time);
        while (time - $start < 240) {
            if (!$kept && time - $start > 60) {
                open(my $events, ">>", $ARGV[0]);
                print $events time, " import of a catalogue\n";
                $kept = "x" x 12_000_000;
            }
            { my $burst = "x" x 30_000_000; sleep 0.2; undef $burst; }
            sleep 1;
        }"#;
    if !harness::is_long() {
        return;
    }
    let folder = harness::folder();
    let file = folder.path().join("events");
    std::fs::write(&file, "").unwrap();
    let mut service = std::process::Command::new("perl");
    let mut service = service.args(["-e", STEPS]).arg(&file).spawn().expect("perl");
    let mut watch = harness::ebb();
    watch.args(["why", "--json", "--watch", "150s", "--every", "200ms", "--events"]).arg(&file);
    let ended = Finished::by(watch.arg(service.id().to_string()));
    service.kill().unwrap();
    service.wait().unwrap();
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let steps = report["steps"].as_array().expect("steps");
    assert_eq!(steps.len(), 1, "{steps:?}");
    let (bytes, at_s) = (steps[0]["bytes"].as_i64().unwrap(), steps[0]["at_s"].as_f64().unwrap());
    assert!((11_000_000..13_000_000).contains(&bytes) && (55.0..65.0).contains(&at_s), "{steps:?}");
    assert_eq!(steps[0]["events"][0], "import of a catalogue", "{steps:?}");
}

/// A real service that holds 12 MB more after its restart, watched by its name.
#[test]
fn an_endless_watch_tells_a_step_with_the_restart_before_it() {
    const SERVICE: &str = r#"
import ctypes, sys, time
ctypes.CDLL(None).prctl(15, sys.argv[1].encode())
kept = b"x" * (int(sys.argv[2]) << 20)
print("ready", flush=True)
time.sleep(600)
"#;
    if !harness::is_long() {
        return;
    }
    let name = format!("ebbstep{}", std::process::id());
    let start = |megabytes: &str| {
        let mut command = std::process::Command::new("python3");
        Subject::start(command.args(["-c", SERVICE, &name, megabytes]))
    };
    let folder = harness::folder();
    let file = folder.path().join("figures.prom");
    let first = start("20");
    let mut watch = harness::ebb();
    watch.args(["watch", &name, "--every", "50ms", "--prometheus"]).arg(&file);
    let mut watch = watch.stderr(std::process::Stdio::piped()).spawn().expect("ebb");
    std::thread::sleep(Duration::from_secs(20));
    drop(first);
    let _second = start("32");
    let figures = || std::fs::read_to_string(&file).unwrap_or_default();
    let told = "ebb_floor_steps_total{direction=\"up\"} 1\n";
    let end = std::time::Instant::now() + Duration::from_secs(300);
    while !figures().contains(told) && std::time::Instant::now() < end {
        std::thread::sleep(Duration::from_millis(200));
    }
    watch.kill().unwrap();
    let ended = Finished::of(&watch.wait_with_output().unwrap());
    let text = figures();
    assert!(text.contains(told), "{text}{}", ended.stderr);
    let size = text.lines().find_map(|line| line.strip_prefix("ebb_last_floor_step_bytes "));
    let size: i64 = size.expect("a size").parse().unwrap();
    assert!((11_000_000..14_000_000).contains(&size), "{size}");
    assert!(text.contains("ebb_last_floor_step_timestamp_seconds "), "{text}");
    let line = ended.stderr.lines().find(|line| line.contains("step of the floor at 20"));
    let line = line.unwrap_or_else(|| panic!("no step in {}", ended.stderr));
    assert!(line.ends_with(", after restart"), "{line}");
}
