//! A disk that fills up during a trial: what was measured is shown, what could not be written is named.

use crate::bench::{Edited, Finished};
use std::process::Command;
use test_needs::skip;

/// A shell in a mount namespace of its own, with an empty disk of so many KiB at $DISK.
fn on_a_disk(kib: u32, script: &str) -> Option<Command> {
    let alone: &[&str] = match nix::unistd::Uid::effective().is_root() {
        true => &["--mount"],
        false => &["--user", "--map-root-user", "--mount"],
    };
    let mount = "DISK=$(mktemp -d) && mount -t tmpfs -o size=8k disk $DISK";
    let shell = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(alone).args(["sh", "-c", script]);
        command
    };
    let is_possible = shell(&format!("{mount} && umount $DISK && rmdir $DISK")).output();
    if !is_possible.is_ok_and(|output| output.status.success()) {
        return None;
    }
    let mount = mount.replace("8k", &format!("{kib}k"));
    // The namespace ends with the shell, and the disk with it.
    let mut command = shell(&format!(
        "{mount} || exit 99\n{script}\ncode=$?\necho left: $(ls -A $DISK) >&2\n\
         umount --lazy $DISK; rmdir $DISK; exit $code"
    ));
    command.env("EBB", env!("CARGO_BIN_EXE_ebb"));
    Some(command)
}

/// A service that fails where its log cannot be written, as Python's `print` does.
fn talkative() -> Edited {
    let edited = Edited::new(&[("rest_s = 0.6", "rest_s = 0.3"), ("bursts = 2", "bursts = 1")]);
    let service = edited.path().join("service.py");
    let text = std::fs::read_to_string(&service).unwrap();
    let silent = "        pass\n";
    assert!(text.contains(silent));
    let text = text.replace(silent, "        print(self.path, flush=True)\n");
    std::fs::write(service, text).unwrap();
    edited
}

/// Writes until the disk is full as soon as the first burst of the first run has begun.
const FILL: &str = "(while [ ! -e $DISK/out/logs/glibc-1/burst-1.out ]; do sleep 0.02; done; \
                    cat /dev/zero > $DISK/filler 2> /dev/null) &";

#[test]
fn a_disk_that_fills_up_during_a_trial_costs_its_files_and_no_figure() {
    let workload = talkative();
    let script = format!(
        "{FILL}\n$EBB compare $WORKLOAD --variants glibc,x=glibc+MALLOC_ARENA_MAX=1 -n 2 \
         -o $DISK/out --export-csv $DISK/figures.csv --export-markdown $KEPT/figures.md"
    );
    let Some(mut command) = on_a_disk(1024, &script) else {
        skip!("no disk can be mounted here");
    };
    let kept = tempfile::tempdir().unwrap();
    let command = command.env("WORKLOAD", workload.path());
    let command = command.env("KEPT", kept.path());
    let finished = Finished::of(&command.output().unwrap());
    finished.expect(
        74,
        &[
            "Memory (RSS of the process tree in MB; median, with the lowest and highest run below)",
            "! glibc: the disk was full",
            "Verdict: ",
        ],
        &[
            "no space left for logs in /",
            "/out/logs: further logs go to /",
            "/out/results.json",
            "No space left on device",
            "the results are on stdout; free some space there",
            "/figures.csv was not written",
            "left: filler out",
        ],
    );
    assert!(!finished.stdout.contains(" failed: "), "{}", finished.stdout);
    let markdown = std::fs::read_to_string(kept.path().join("figures.md")).unwrap();
    let rows: Vec<&str> = markdown.lines().skip(2).collect();
    assert!(rows[0].starts_with("| glibc | 2 | "), "{markdown}");
    assert!(rows[1].starts_with("| x | 2 | "), "{markdown}");
}

#[test]
fn a_disk_that_is_full_is_found_out_before_the_start() {
    let fill = "cat /dev/zero > $DISK/filler 2> /dev/null\n";
    let compare = "$EBB compare $WORKLOAD --variants glibc -n 1";
    for (arguments, named) in
        [("-o $DISK/out", "-o /"), ("--export-csv $DISK/f.csv", "--export-csv /")]
    {
        let Some(mut command) = on_a_disk(64, &format!("{fill}{compare} {arguments}")) else {
            skip!("no disk can be mounted here");
        };
        let command = command.env("WORKLOAD", crate::bench::fixture());
        let finished = Finished::of(&command.output().unwrap());
        let expected = [named, "No space left on device", "nothing was started"];
        finished.expect(74, &[], &expected);
        assert!(!finished.stderr.contains("run 1"), "{}", finished.stderr);
    }
}

#[test]
fn a_snapshot_on_a_full_disk_leaves_the_earlier_one_and_no_empty_file() {
    let script = "echo earlier > $DISK/old.json\ncat /dev/zero > $DISK/filler 2> /dev/null\n\
                  $EBB snap $$ -o $DISK/new.json; echo code: $?\n\
                  $EBB snap $$ -o $DISK/old.json; echo code: $?\ncat $DISK/old.json\n\
                  $EBB snap $$ > $DISK/filler2; echo code: $?; rm $DISK/filler2";
    let Some(mut command) = on_a_disk(64, script) else {
        skip!("no disk can be mounted here");
    };
    let finished = Finished::of(&command.output().unwrap());
    finished.expect(
        0,
        &["code: 74\ncode: 74\nearlier\ncode: 74\n"],
        &[
            "/new.json was not written: No space left on device",
            "/old.json was not written: No space left on device",
            "ebb: stdout was not written: No space left on device",
            "left: filler old.json\n",
        ],
    );
}
