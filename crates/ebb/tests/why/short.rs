//! What a terminal of 80 columns and 24 lines shows: ten lines at most, with the next step; and the lines of a watch.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::collection::Cgroup;
use crate::harness::subjects::{self, Subject};
use crate::harness::{self, output, stderr, stdout};

/// The text without its line breaks.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What `ebb why` prints of a target; at most ten lines of 80 columns, the next step within them.
#[track_caller]
fn short(why: &mut Command) -> String {
    let why = output(why);
    let text = stdout(&why);
    let height = |line: &str| line.chars().count().div_ceil(80).max(1);
    let lines: usize = text.lines().map(height).sum();
    assert!(lines <= 10, "{lines} lines:\n{text}");
    assert!(text.contains("\nNext: "), "{text}\n{}", stderr(&why));
    text
}

fn why(target: &str) -> Command {
    let mut command = harness::ebb();
    command.args(["why", target]);
    command
}

#[test]
fn a_c_program_after_a_burst() {
    let subject = Subject::start(&mut subjects::command("c:burst-1-thread"));
    let text = short(&mut why(&subject.pid()));
    assert!(text.starts_with("Retention: 1"), "{text}");
    assert!(text.contains("Trim: malloc_trim would return 1"), "{text}");
    let next = format!("Next: ebb trim {} --inject", subject.pid());
    assert!(text.contains(&next), "{text}");
    // The long form has every figure.
    let full = stdout(&output(why(&subject.pid()).arg("-v")));
    assert!(full.contains("- not stacks") && full.lines().count() > 20, "{full}");
}

#[test]
fn the_next_step_for_pythons_arenas_contains_the_variant_that_helps() {
    let subject = Subject::start(&mut subjects::command("py:objects-freed"));
    let text = short(&mut why(&subject.pid()));
    let next = "Next: ebb compare WORKLOAD --variants glibc,ebbmalloc\n";
    assert!(text.contains(next), "{text}");
}

#[test]
fn alike_workers_share_a_line() {
    if !nix::unistd::Uid::effective().is_root() {
        eprintln!("only root can start workers of another user: left out");
        return;
    }
    let subject = Subject::start(&mut subjects::gunicorn("live"));
    let text = short(&mut why(&subject.pid()));
    assert!(text.contains("Processes: "), "{text}");
    let words = words(&text);
    assert!(words.contains("4 gunicorn of ") || words.contains("5 gunicorn of "), "{text}");
}

/// Of several processes of one name the one that is larger is named.
#[test]
fn many_processes_of_a_name_and_one_that_differs() {
    let folder = harness::folder();
    let name = format!("many{}", std::process::id());
    let program = folder.path().join(&name);
    harness::copy_program(&subjects::c_program(), &program);
    let start = |case: &str| Subject::start(Command::new(&program).arg(case));
    let _alike: Vec<Subject> = (0..6).map(|_| start("small")).collect();
    let large = start("live-peak");
    let text = short(&mut why(&name));
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
    let read = |name: &str| {
        let text = std::fs::read_to_string(cgroup.0.join(name)).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let (usage, limit) = match read("memory.current") {
        Some(usage) => (usage, "memory.max"),
        None => (read("memory.usage_in_bytes").expect("a figure"), "memory.limit_in_bytes"),
    };
    std::fs::write(cgroup.0.join(limit), (usage * 10 / 9).to_string()).expect("a limit");
    let text = short(&mut why(&subject.pid()));
    let second = text.lines().nth(1).unwrap_or_default();
    assert!(
        second.starts_with("At 89 % of the limit: ")
            || second.starts_with("At 90 % of the limit: "),
        "{text}"
    );
    assert!(second.contains(" MB left"), "{text}");
}

#[test]
fn another_users_process_has_the_missing_right_in_the_first_lines() {
    if !nix::unistd::Uid::effective().is_root() {
        eprintln!("only root can look as another user: left out");
        return;
    }
    let folder = harness::folder();
    let subject = Subject::start(&mut subjects::command("c:live-peak"));
    let text = short(harness::unprivileged_ebb(&folder).args(["why", &subject.pid()]));
    let first: Vec<&str> = text.lines().take(4).collect();
    assert!(first.join(" ").contains("it runs as another user (uid 0)"), "{text}");
    assert!(
        text.ends_with(
            "Next: Run ebb as that user, or as root (in a container with CAP_SYS_PTRACE)."
        ),
        "{text}"
    );
}

/// Two of one name in two cgroups have a report each, with the figures of its own cgroup.
#[test]
fn two_masters_of_a_name_in_two_cgroups_are_told_apart() {
    let (Some(one), Some(other)) = (Cgroup::new("one"), Cgroup::new("other")) else {
        return;
    };
    let folder = harness::folder();
    let name = format!("twice{}", std::process::id());
    let program = folder.path().join(&name);
    harness::copy_program(&subjects::c_program(), &program);
    let start =
        |cgroup: &Cgroup| Subject::start(&mut cgroup.with(Command::new(&program).arg("live-peak")));
    let subjects = [start(&one), start(&other)];
    let why = output(harness::ebb().args(["why", "--json", &name]));
    let value: serde_json::Value = serde_json::from_slice(&why.stdout).expect("JSON");
    let reports = value.as_array().expect("a list");
    assert_eq!(reports.len(), 2, "{value}");
    for (subject, cgroup) in subjects.iter().zip([&one, &other]) {
        let of = |report: &&serde_json::Value| {
            report["snapshot"]["processes"][0]["pid"] == subject.0.id()
        };
        let report = reports.iter().find(of).expect("one of it");
        let path = report["snapshot"]["cgroup"]["path"].as_str().unwrap_or_default();
        let folder = cgroup.0.file_name().expect("a name").to_string_lossy();
        assert!(path.ends_with(&*folder), "{path} is not {folder}");
        let sentence = report["verdict"]["sentence"].as_str().unwrap_or_default();
        assert!(sentence.contains(&format!("({})", subject.pid())), "{sentence}");
    }
}

/// What reports the figures of one cgroup refuses a name that stands for two, and says what to type.
#[test]
fn verbs_for_one_cgroup_refuse_a_name_in_two() {
    let (Some(one), Some(other)) = (Cgroup::new("first"), Cgroup::new("second")) else {
        return;
    };
    let folder = harness::folder();
    let name = format!("apart{}", std::process::id());
    let program = folder.path().join(&name);
    harness::copy_program(&subjects::c_program(), &program);
    let start =
        |cgroup: &Cgroup| Subject::start(&mut cgroup.with(Command::new(&program).arg("small")));
    let subjects = [start(&one), start(&other)];
    let path = |cgroup: &Cgroup| {
        let folder = cgroup.0.file_name().expect("a name");
        format!("/{}", folder.to_string_lossy())
    };
    let file = folder.path().join("ebb.prom");
    let file = file.to_str().expect("text");
    for arguments in [
        vec!["snap", &name],
        vec!["watch", &name, "--prometheus", file],
        vec!["why", "--watch", "1s", &name],
    ] {
        let refused = output(harness::ebb().args(&arguments));
        let [first, second] = subjects.each_ref().map(|it| format!("(pid {})", it.pid()));
        let words = [&*path(&one), &path(&other), &first, &second];
        harness::assert_refused(&refused, 64, &words);
    }
    // One of the paths is enough, and so is a pid.
    for target in [path(&one), subjects[1].pid()] {
        let snap = output(harness::ebb().args(["snap", &target]));
        assert!(snap.status.success(), "{}", stderr(&snap));
    }
}

#[test]
fn a_zombie_is_named_as_what_it_is() {
    let mut child = Command::new("true").spawn().expect("true");
    let stat = format!("/proc/{}/stat", child.id());
    while !std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") Z ")) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let why = output(&mut why(&child.id().to_string()));
    child.wait().expect("collected");
    harness::assert_refused(&why, 64, &["is a zombie", "has not reaped it"]);
}

#[test]
fn a_mistyped_name_leads_to_the_nearest_that_runs() {
    let folder = harness::folder();
    let name = format!("shopserver{}", std::process::id() % 1000);
    let program = folder.path().join(&name);
    harness::copy_program(&subjects::c_program(), &program);
    let _subject = Subject::start(Command::new(&program).arg("small"));
    let why = output(&mut why(&name.replace("server", "sever")));
    harness::assert_refused(&why, 64, &[&name]);
}

#[test]
fn a_pid_may_be_an_option() {
    let subject = Subject::start(&mut subjects::command("c:small"));
    for option in ["-p", "--pid"] {
        let text = short(harness::ebb().args(["why", option, &subject.pid()]));
        assert!(text.starts_with("Nothing to gain: "), "{text}");
        let snap = output(harness::ebb().args(["snap", option, &subject.pid()]));
        assert!(snap.status.success(), "{}", stderr(&snap));
    }
}

#[test]
fn a_watch_without_a_place_for_its_figures_names_both_and_an_example() {
    let watch = output(harness::ebb().args(["watch", "1"]));
    assert_eq!(watch.status.code(), Some(64));
    let text = stderr(&watch);
    for words in ["--prometheus", "--listen", "example: ebb watch 4711 --listen :9100"] {
        assert!(text.contains(words), "{words} is not in\n{text}");
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
    let pid = nix::unistd::Pid::from_raw(watch.id().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).expect("a signal");
    let output = watch.wait_with_output().expect("an end");
    let text = stdout(&output);
    assert!(text.lines().count() <= 10, "{text}");
    let first = text.lines().next().unwrap_or_default();
    let known = ["The live heap of ", "Too short: "];
    assert!(known.iter().any(|start| first.starts_with(start)), "{text}");
    assert!(matches!(output.status.code(), Some(11 | 20)), "{text}");
}

#[test]
fn a_snapshot_that_cannot_be_written_leaves_no_file_and_says_so() {
    let folder = harness::folder();
    let file = folder.path().join("small/snap.json");
    std::fs::create_dir(folder.path().join("small")).expect("a folder");
    let subject = Subject::start(&mut subjects::command("c:small"));
    // No file of this shell's children may be longer than that: the write fails as on a full disk.
    let snap = output(
        Command::new("sh")
            .args(["-c", "ulimit -f 1; trap '' XFSZ; exec \"$@\"", "sh"])
            .arg(env!("CARGO_BIN_EXE_ebb"))
            .args(["snap", &subject.pid(), "-o"])
            .arg(&file),
    );
    harness::assert_refused(&snap, 74, &["snap.json was not written"]);
    let left = std::fs::read_dir(folder.path().join("small")).expect("a folder");
    assert_eq!(left.count(), 0, "nothing is left behind");
    let snap = output(harness::ebb().args(["snap", &subject.pid(), "-o", "/dev/null"]));
    assert!(snap.status.success(), "{}", stderr(&snap));
    use std::os::unix::fs::FileTypeExt;
    let null = std::fs::metadata("/dev/null").expect("/dev/null");
    assert!(null.file_type().is_char_device(), "a device stays one");
}
