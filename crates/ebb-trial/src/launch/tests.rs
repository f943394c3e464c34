//! Real processes: how they are started, stopped and found.

use super::*;

fn launch(dir: &Path, script: &str, mark: &str) -> Process {
    let command = ["sh", "-c", script].map(str::to_owned).to_vec();
    let env = BTreeMap::from([("SEEN".to_owned(), "yes".to_owned())]);
    let launch = Launch::new("the service".into(), command, dir, &env, mark, dir.join("out"));
    Launch { stderr: dir.join("err"), ..launch }.start(&Groups::default()).unwrap()
}

fn alive(pid: i32) -> bool {
    // A zombie that its new parent has not collected is dead for our purpose.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").trim_start().starts_with('Z'))
}

fn wait_until(mut condition: impl FnMut() -> bool) -> bool {
    Interrupt::default().wait_for(Duration::from_secs(10), || condition().then_some(())).is_some()
}

fn pid_in(file: &Path) -> i32 {
    let read = || std::fs::read_to_string(file).ok()?.trim().parse().ok();
    Interrupt::default().wait_for(Duration::from_secs(10), read).expect("a number is written")
}

#[test]
fn output_status_and_last_lines_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut process = launch(dir.path(), "echo $SEEN; echo wrong >&2; exit 3", "a");
    let message = process.finish(Duration::from_secs(10), &Interrupt::default()).unwrap_err();
    assert_eq!(message, "the service ended with status 3");
    assert_eq!(process.output(), "yes\n");
    assert_eq!(process.last_lines(), ["wrong"]);
}

#[test]
fn a_signal_is_named_and_a_limit_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut process = launch(dir.path(), "kill -SEGV $$", "b");
    let message = process.finish(Duration::from_secs(10), &Interrupt::default()).unwrap_err();
    assert_eq!(message, "the service was ended by SIGSEGV");
    let mut slow = launch(dir.path(), "sleep 60", "b");
    let message = slow.finish(Duration::from_millis(50), &Interrupt::default()).unwrap_err();
    assert!(message.contains("not finished after 0.05 s"), "{message}");
}

#[test]
fn stop_takes_the_whole_group_even_one_that_ignores_sigterm() {
    let dir = tempfile::tempdir().unwrap();
    let script = "trap '' TERM; sleep 300 & echo $! > child; while :; do sleep 0.1; done";
    let mut process = launch(dir.path(), script, "c");
    let child = pid_in(&dir.path().join("child"));
    assert!(alive(child));
    process.stop(Duration::from_millis(200));
    assert!(wait_until(|| !alive(child)), "the worker of a stopped service lives on");
    assert!(process.ended().is_some());
}

#[test]
fn a_daemon_that_left_the_group_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let mark = format!("stray-{}", std::process::id());
    let mut process = launch(dir.path(), "setsid sh -c 'echo $$ > daemon; exec sleep 300' & wait", &mark);
    let daemon = pid_in(&dir.path().join("daemon"));
    process.stop(Duration::from_millis(100));
    assert!(alive(daemon), "the test shows nothing if the group's end took it along");
    kill_strays(&mark);
    assert!(wait_until(|| !alive(daemon)));
}

#[test]
fn settings_of_allocators_do_not_leak_in() {
    for key in ["MALLOC_ARENA_MAX", "MALLOC_CONF", "LD_PRELOAD", "LD_PRELOADED", "PATH"] {
        let expected = !matches!(key, "LD_PRELOADED" | "PATH");
        assert_eq!(is_allocator_setting(key), expected, "{key}");
    }
}

#[test]
fn a_missing_program_is_told_with_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let (env, log) = (BTreeMap::new(), dir.path().join("out"));
    let command = vec!["./nowhere".to_owned()];
    let launch = Launch::new("the load".into(), command, dir.path(), &env, "d", log);
    let error = launch.start(&Groups::default()).unwrap_err();
    assert!(error.contains("the load") && error.contains("nowhere"), "{error}");
}
