//! The static program that `make tool` builds, alone in a folder: it runs in an empty root, and brings the library
//! along, whatever the user's cache is like. `EBB_TEST_PROGRAM` names another one.

#[path = "../harness/mod.rs"]
#[allow(dead_code, reason = "shared by all test programs")]
mod harness;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use harness::*;
use tempfile::TempDir;
use test_needs::skip;

const ARCH: &str = std::env::consts::ARCH;
/// What tells a program's mapping of the library: the name of its file.
const MAPPED: &str = "grep -m1 -o '[^ /]*libebbmalloc.so' /proc/self/maps";

/// The program in a folder of its own, with a home.
struct Bare {
    folder: TempDir,
}

impl Bare {
    /// None where `make tool` was not run.
    fn new() -> Option<Self> {
        let built = std::env::var_os("EBB_TEST_PROGRAM")
            .map(PathBuf::from)
            .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/ebb"));
        let version = Command::new(&built).arg("--version").output().ok()?;
        let version = String::from_utf8_lossy(&version.stdout).into_owned();
        if !version.contains(", static") || !version.contains(&format!("library {ARCH}")) {
            return None;
        }
        let folder = folder();
        copy_program(&built, &folder.path().join("ebb"));
        fs::create_dir(folder.path().join("home")).unwrap();
        Some(Self { folder })
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    fn ebb(&self) -> PathBuf {
        self.folder.path().join("ebb")
    }

    /// `command`, of a shell, with the program as `$EBB`.
    fn shell(&self, command: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).env("EBB", self.ebb()).env("HOME", self.home());
        for name in ["LD_PRELOAD", "LD_LIBRARY_PATH", "EBB_LIB", "EBB_CONF", "XDG_CACHE_HOME"] {
            shell.env_remove(name);
        }
        shell
    }

    /// The same in a mount namespace, in which `home` is a file system with these options. None where that is not allowed.
    fn with_home(&self, options: &str, command: &str) -> Option<Output> {
        let inner = format!("mount -t tmpfs -o {options} tmpfs \"$HOME\" || exit 99; {command}");
        let mut shell = self.shell("exec unshare -r -m sh -c \"$INNER\"");
        let output = output(shell.env("INNER", inner));
        let is_refused = output.status.code() == Some(99) || stderr(&output).contains("unshare");
        (!is_refused).then_some(output)
    }
}

macro_rules! bare {
    () => {
        match Bare::new() {
            Some(bare) => bare,
            None => skip!("target/release/ebb carries no library: make tool"),
        }
    };
}

#[test]
fn it_runs_in_an_empty_root() {
    let bare = bare!();
    let root = bare.folder.path().join("root");
    fs::create_dir_all(root.join("proc")).unwrap();
    copy_program(&bare.ebb(), &root.join("ebb"));
    let start = "mount -t proc proc \"$ROOT/proc\" || exit 99; exec chroot \"$ROOT\" /ebb";
    for (arguments, code, text) in [
        ("--version", 0, "static"),
        ("library --out /out --json", 0, "\"build_id\":\""),
        ("why 1", 0, "ebb"),
        ("run no-such-program", 127, ""),
    ] {
        let mut shell = bare.shell("exec unshare -r -m -p -f sh -c \"$INNER\"");
        let inner = format!("{start} {arguments}");
        let output = output(shell.env("INNER", inner).env("ROOT", &root).env("HOME", "/"));
        if output.status.code() == Some(99) || stderr(&output).contains("unshare") {
            skip!("no namespaces: {}", stderr(&output));
        }
        // A verdict is not the point; that it reads a process is.
        let is_expected = output.status.code() == Some(code) || arguments.starts_with("why");
        assert!(is_expected, "{arguments}: {:?} {}", output.status, stderr(&output));
        assert!(stdout(&output).contains(text), "{arguments}: {}", stdout(&output));
    }
    assert!(root.join("out/libebbmalloc.so").is_file());
    assert!(root.join("out/ebbmalloc.h").is_file());
}

#[test]
fn run_writes_the_library_into_the_cache_once() {
    let bare = bare!();
    for _ in 0..2 {
        let output = output(&mut bare.shell(&format!("$EBB run sh -c \"{MAPPED}\"")));
        assert_eq!(stdout(&output), "libebbmalloc.so", "{}", stderr(&output));
        let path = output_path(&bare);
        assert!(stderr(&output).contains(&path.display().to_string()), "{}", stderr(&output));
    }
}

/// The one file that the cache holds.
fn output_path(bare: &Bare) -> PathBuf {
    let versions: Vec<_> = fs::read_dir(bare.home().join(".cache/ebb")).unwrap().collect();
    assert_eq!(versions.len(), 1);
    let folder = versions[0].as_ref().unwrap().path();
    let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|it| it.unwrap().path()).collect();
    assert_eq!(files, [folder.join("libebbmalloc.so")]);
    files[0].clone()
}

#[test]
fn a_planted_library_is_not_loaded() {
    let bare = bare!();
    let path = output(&mut bare.shell("$EBB library"));
    let path = PathBuf::from(stdout(&path));
    let right = fs::read(&path).unwrap();
    let mut planted = right.clone();
    *planted.last_mut().unwrap() ^= 1;
    fs::write(&path, planted).unwrap();
    let output = output(&mut bare.shell(&format!("$EBB run sh -c \"{MAPPED}\"")));
    assert_eq!(stdout(&output), "libebbmalloc.so", "{}", stderr(&output));
    assert_eq!(fs::read(&path).unwrap(), right);
}

#[test]
fn run_holds_the_library_in_memory_where_no_cache_can_be_had() {
    let bare = bare!();
    let in_memory = "memfd:libebbmalloc.so";
    let run = format!("$EBB run sh -c \"sh -c \\\"{MAPPED}\\\"\"");
    let expect = |output: &Output, why: &str| {
        assert_eq!(stdout(output), in_memory, "{why}: {}", stderr(output));
        let text = stderr(output);
        assert!(text.lines().count() == 1 && text.contains(why), "{why}: {text}");
    };
    expect(&output(&mut bare.shell(&format!("unset HOME; {run}"))), "HOME");

    let foreign = bare.shell("mkdir -p $HOME/.cache; chmod 777 $HOME/.cache").status().unwrap();
    assert!(foreign.success());
    expect(&output(&mut bare.shell(&run)), "can be written by other users");

    for (options, why) in [
        ("ro,mode=700", "Read-only file system"),
        ("size=64k,mode=700", "No space left on device"),
        ("noexec,mode=700", "noexec"),
    ] {
        let Some(output) = bare.with_home(options, &format!("{run}; find $HOME -type f")) else {
            skip!("no mount namespaces");
        };
        expect(&output, why);
    }
}

#[test]
fn verify_sees_a_library_in_memory() {
    let bare = bare!();
    let nested = "unset HOME; $EBB run --verify --verify-for 1s --json sh -c 'sleep 1.5; :' 2>&1 >&3 | tail -1 >&2";
    let output = output(&mut bare.shell(&format!("exec 3>&1; {nested}")));
    let text = stderr(&output);
    let report: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
    assert_eq!(report["in_charge"], true, "{text}");
}

#[test]
fn an_inner_run_takes_the_library_of_the_outer_one() {
    let bare = bare!();
    let inner = "$EBB run sh -c 'grep libebbmalloc /proc/self/maps | cut -d: -f3 | sort -u | wc -l'";
    let outer = "unset HOME; export EBB; $EBB run sh -c \"$INNER\"";
    let output = output(bare.shell(outer).env("INNER", inner));
    assert_eq!(stdout(&output), "1", "one copy: {}", stderr(&output));
}

#[test]
fn library_prints_a_path_for_the_loader() {
    let bare = bare!();
    let output = output(&mut bare.shell(&format!("LD_PRELOAD=$($EBB library) {MAPPED}")));
    assert_eq!(stdout(&output), "libebbmalloc.so", "{}", stderr(&output));
    let refused = self::output(&mut bare.shell("unset HOME; $EBB library"));
    assert_refused(&refused, 74, &["HOME", "--out DIR"]);
}

#[test]
fn library_writes_both_files_or_says_why_not() {
    let bare = bare!();
    let output = output(&mut bare.shell("$EBB library --out $HOME/new/folder --json"));
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let path = bare.home().join("new/folder/libebbmalloc.so");
    assert_eq!(report["path"], path.display().to_string());
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(report["arch"], ARCH);
    assert_eq!(report["carried"], true);
    let sum = self::output(Command::new("sha256sum").arg(&path));
    assert_eq!(Some(report["sha256"].as_str().unwrap()), stdout(&sum).split(' ').next());
    let header = fs::read_to_string(report["header"].as_str().unwrap()).unwrap();
    assert!(header.contains("EBBMALLOC_H"), "{header}");

    let full = "mkdir $HOME/out; $EBB library --out $HOME/out; echo $? $(ls -A $HOME/out | wc -l)";
    let Some(full) = bare.with_home("size=64k,mode=700", full) else {
        skip!("no mount namespaces");
    };
    assert_eq!(stdout(&full), "74 0", "{}", stderr(&full));
    assert!(stderr(&full).contains("No space left"), "{}", stderr(&full));
}

#[test]
fn a_program_that_carries_none_says_so() {
    let other = if ARCH == "x86_64" { "aarch64" } else { "x86_64" };
    let refused = output(ebb().args(["library", "--arch", other]));
    assert_refused(&refused, 32, &["carries no library", other, "make static"]);
}
