//! What keeps an allocator out of a running process.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use nix::unistd::Uid;
use tempfile::TempDir;

use crate::harness::*;
use crate::{Running, assert_error, assert_fine, check, for_another_machine, found, parsed};
use test_needs::{needs, skip};

const NOBODY: u32 = 65534;
/// An allocator to be compiled into a program.
const ALLOCATOR: &str = "#include <stddef.h>\nstatic char m[1 << 22]; static size_t n;\n\
     void *malloc(size_t s) { void *p = m + n; n += (s + 15) & ~15ul; return p; }\n\
     void *calloc(size_t a, size_t b) { return malloc(a * b); }\n\
     void *realloc(void *p, size_t s) { (void)p; return malloc(s); }\n\
     void free(void *p) { (void)p; }\n";

fn allocating(folder: &TempDir, flags: &[&str]) -> Command {
    Command::new(compile(folder, "cc", "allocating", ALLOCATING, flags))
}

/// A program that was asked to run on `library`, and waits.
fn asked(library: &str) -> (TempDir, Running) {
    let folder = folder();
    let running = Running::start(allocating(&folder, &[]).arg("30000").env("LD_PRELOAD", library));
    (folder, running)
}

#[test]
fn an_allocator_that_the_program_brings_needs_nobody_to_ask_for_it() {
    let folder = folder();
    let library = jemalloc();
    let library = library.to_str().unwrap();
    let running = Running::start(allocating(&folder, &[library]).arg("30000"));
    let said = assert_fine(&[&running.pid()]);
    assert_eq!(said["allocator"], "jemalloc");
    assert_eq!(said["processes"][0]["allocator"], "jemalloc");
    let text = output(ebb().args(["check", &running.pid()]));
    assert!(stdout(&text).contains("malloc is jemalloc; no other allocator is configured"), "{}", stdout(&text));
}

#[test]
fn the_allocator_is_in_charge_of_a_tree() {
    let jemalloc = jemalloc();
    let tree = Running::start(
        Command::new("sh")
            .args(["-c", "sleep 30 & echo ready; read line; kill $!"])
            .env("LD_PRELOAD", &jemalloc)
            .env("MALLOC_CONF", "narenas:1"),
    );
    let said = assert_fine(&[&tree.pid()]);
    assert_eq!(said["allocator"], "jemalloc");
    let processes = said["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 2, "{said:#}");
    for process in processes {
        assert_eq!(process["allocator"], "jemalloc");
        assert_eq!(process["settings"][0], "MALLOC_CONF=narenas:1");
    }
    let only = assert_fine(&[&tree.pid(), "--no-children", "-a", "jemalloc"]);
    assert_eq!(only["processes"].as_array().unwrap().len(), 1);
    let text = output(ebb().args(["check", &tree.pid()]));
    assert!(stdout(&text).contains("jemalloc is in charge of 2 processes"), "{}", stdout(&text));
}

#[test]
fn ebbmalloc_says_itself_how_long_pages_stay() {
    // Growth makes it publish its counters.
    let code = "import sys; x = [bytearray(60000) for _ in range(1000)]; print(flush=True); sys.stdin.read()";
    let running = Running::start(
        Command::new("python3").args(["-c", code]).env("LD_PRELOAD", ebbmalloc()).env("EBB_CONF", "dirty_decay_ms:100"),
    );
    let said = assert_fine(&[&running.pid()]);
    assert_eq!(said["allocator"], "ebbmalloc");
    let process = &said["processes"][0];
    assert_eq!(process["settings"][0], "EBB_CONF=dirty_decay_ms:100");
    let idle = process["idle_time_ms"].as_u64().expect("a time");
    assert!(idle <= 100, "{said:#}");
}

#[test]
fn nobody_asked() {
    let folder = folder();
    let running = Running::start(allocating(&folder, &[]).arg("30000"));
    let said = assert_error(&[&running.pid(), "-a", "jemalloc"], "not-asked");
    assert!(said["processes"][0]["malloc"].as_str().unwrap().contains("libc.so"));
    let said = assert_error(&[&running.pid()], "not-asked");
    assert!(said["allocator"].is_null());
    assert_fine(&[&running.pid(), "-a", "glibc"]);
}

#[test]
fn the_environment_was_dropped_on_the_way() {
    let tree = Running::start(
        Command::new("sh").args(["-c", "env -i sh -c 'echo ready; sleep 30; :'; :"]).env("LD_PRELOAD", jemalloc()),
    );
    let (said, code) = check(&[&tree.pid()]);
    assert_eq!(code, 14);
    // The shell without it, and what that has started.
    assert_eq!(found(&said, "error"), ["environment-dropped", "environment-dropped"], "{said:#}");
    // Asked about the lower process alone, it is found above.
    let lower = said["findings"][0]["pid"].to_string();
    assert_error(&[&lower, "--no-children"], "environment-dropped");
}

#[test]
fn the_program_set_the_variable_itself() {
    let code = "import os, sys; os.environ['LD_PRELOAD'] = sys.argv[1]; print(flush=True); sys.stdin.read()";
    let jemalloc = jemalloc();
    let running = Running::start(Command::new("python3").args(["-c", code]).arg(&jemalloc));
    assert_error(&[&running.pid(), "-a", "jemalloc"], "preload-too-late");
}

#[test]
fn a_library_that_is_not_there() {
    let (_folder, running) = asked("/no/such/libjemalloc.so.2");
    assert_error(&[&running.pid()], "library-missing");
    let (_folder, running) = asked("libjemalloc.so.77");
    assert_error(&[&running.pid()], "library-missing");
    let (_folder, running) = asked("/usr/lib/riscv64-linux-gnu/libjemalloc.so.2");
    assert_error(&[&running.pid()], "architecture-path");
    let (_folder, running) = asked("/usr/lib/*/libjemalloc.so.2");
    assert_error(&[&running.pid()], "not-expanded");
}

#[test]
fn a_library_that_cannot_be_loaded() {
    let folder = folder();
    let library = folder.path().join("libjemalloc.so.2");
    let name = library.to_str().unwrap();
    fs::write(&library, "not a library").unwrap();
    let (_folder, running) = asked(name);
    assert_error(&[&running.pid()], "library-unusable");

    for_another_machine(&jemalloc(), &library);
    let (_folder, running) = asked(name);
    assert_error(&[&running.pid()], "wrong-architecture");
}

/// It says "object '...' cannot be preloaded: ignored", goes on, and the program ends with 0.
#[test]
fn a_library_that_was_not_there_at_the_start() {
    let folder = folder();
    let library = folder.path().join("libjemalloc.so.2");
    let (_folder, running) = asked(library.to_str().unwrap());
    fs::copy(jemalloc(), &library).unwrap();
    assert_error(&[&running.pid()], "loader-refused");
}

/// The user of the process may not read what we may.
#[test]
fn a_library_that_is_closed_to_the_process() {
    if !Uid::effective().is_root() {
        skip!("only root can start a process of another user");
    }
    let folder = folder();
    let library = folder.path().join("libjemalloc.so.2");
    fs::copy(jemalloc(), &library).unwrap();
    fs::set_permissions(&library, fs::Permissions::from_mode(0o600)).unwrap();
    let program = compile(&folder, "cc", "allocating", ALLOCATING, &[]);
    let running = Running::start(
        Command::new("setpriv")
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .arg(program)
            .arg("30000")
            .env("LD_PRELOAD", &library),
    );
    assert_error(&[&running.pid()], "loader-refused");
}

#[test]
fn a_program_that_takes_no_library() {
    needs!("musl-tools");
    let folder = folder();
    for compiler in ["musl-gcc", "cc"] {
        let program = compile(&folder, compiler, "static", ALLOCATING, &["-static"]);
        let running = Running::start(Command::new(program).arg("30000").env("LD_PRELOAD", jemalloc()));
        assert_error(&[&running.pid(), "-a", "jemalloc"], "static-program");
    }
}

#[test]
fn a_program_that_brings_its_own() {
    let folder = folder();
    let source = format!("{ALLOCATOR}{}", ALLOCATING.replace("free(block)", "(void)block"));
    let program = compile(&folder, "cc", "own", &source, &["-rdynamic", "-w"]);
    let running = Running::start(Command::new(program).arg("30000").env("LD_PRELOAD", jemalloc()));
    assert_error(&[&running.pid()], "malloc-inside");
}

#[test]
fn a_go_program() {
    needs!("golang-go");
    let folder = folder();
    let source = "package main\nimport (\"bufio\"; \"fmt\"; \"os\")\n\
                  func main() { fmt.Println(\"ready\"); bufio.NewReader(os.Stdin).ReadString('x') }\n";
    let file = folder.path().join("main.go");
    fs::write(&file, source).unwrap();
    let program = folder.path().join("waiting");
    let built = Command::new("go")
        .args(["build", "-o"])
        .args([&program, &file])
        .env("CGO_ENABLED", "0")
        .status()
        .unwrap_or_else(|error| panic!("go: {error}: apt-get install golang-go"));
    assert!(built.success());
    let running = Running::start(Command::new(program).env("LD_PRELOAD", jemalloc()));
    assert_error(&[&running.pid(), "-a", "jemalloc"], "allocator-inside");
}

#[test]
fn a_program_that_gains_rights() {
    if !Uid::effective().is_root() {
        skip!("only root can make a set-uid program of somebody else");
    }
    let folder = folder();
    let program = compile(&folder, "cc", "allocating", ALLOCATING, &[]);
    chown(&program, Some(NOBODY), None).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let running =
        Running::start(Command::new(&program).arg("30000").env("LD_PRELOAD", jemalloc()).env("MALLOC_ARENA_MAX", "2"));
    let (said, code) = check(&[&running.pid()]);
    let errors = found(&said, "error");
    assert_eq!((errors[0], code), ("secure-mode", 14), "{said:#}");
}

#[test]
fn another_allocator_stands_before() {
    needs!("libmimalloc2.0");
    let mimalloc = peer("libmimalloc.so.2.0", "libmimalloc2.0");
    let preload = format!("{}:{}", mimalloc.display(), jemalloc().display());
    let (_folder, running) = asked(&preload);
    assert_error(&[&running.pid(), "-a", "jemalloc"], "other-first");
    assert_fine(&[&running.pid()]);
}

/// Python cannot load it later: the failure is brought about, and told before somebody meets it.
#[test]
fn a_library_that_cannot_be_loaded_late() {
    let jemalloc = jemalloc();
    let code = "import ctypes, sys\n\
        try: ctypes.CDLL(sys.argv[1])\n\
        except OSError as error: print(error, flush=True)\n\
        else: print('loaded', flush=True)\n\
        sys.stdin.read()";
    let mut command = Command::new("python3");
    command.args(["-c", code]).arg(&jemalloc);
    let failed = output(Command::new("python3").args(["-c", code]).arg(&jemalloc));
    assert!(stdout(&failed).contains("static TLS block"), "{}", stdout(&failed));
    let running = Running::start(&mut command);
    let said = assert_error(&[&running.pid(), "-a", jemalloc.to_str().unwrap()], "not-asked");
    assert_eq!(found(&said, "note"), ["static-tls"], "{said:#}");
}

/// A process with a root of its own: paths are followed there, and its entrypoint is found.
#[test]
fn a_process_in_a_root_of_its_own() {
    if !Uid::effective().is_root() {
        skip!("only root can change the root");
    }
    let folder = folder();
    let root = folder.path();
    let program = compile(&folder, "cc", "allocating", ALLOCATING, &[]);
    copy_libraries(&program, root);
    fs::create_dir_all(root.join("opt")).unwrap();
    fs::copy(ebbmalloc(), root.join("opt/libebbmalloc.so")).unwrap();
    let start = |preload: Option<&str>| {
        let mut command = Command::new("chroot");
        command.arg(root).args(["/allocating", "30000"]);
        command.envs(preload.map(|path| ("LD_PRELOAD", path)));
        Running::start(&mut command)
    };
    let running = start(Some("/opt/libebbmalloc.so"));
    let said = assert_fine(&[&running.pid()]);
    assert_eq!(said["processes"][0]["malloc"], "/opt/libebbmalloc.so");

    let running = start(None);
    let pid = running.pid();
    assert_error(&[&pid, "-a", "ebbmalloc"], "not-asked");
    script(&folder, "docker-entrypoint.sh", "#!/bin/sh\nexport LD_PRELOAD=/opt/libebbmalloc.so\nexec \"$@\"\n");
    assert_error(&[&pid, "-a", "ebbmalloc"], "entrypoint-bypassed");
}

#[test]
fn a_process_that_is_closed_to_us() {
    let folder = folder();
    let source = r#"
        #include <stdio.h>
        #include <sys/prctl.h>
        #include <unistd.h>
        int main(void) { prctl(PR_SET_DUMPABLE, 0); puts("ready"); fflush(stdout); sleep(30); }
    "#;
    let program = compile(&folder, "cc", "closed", source, &[]);
    let running = Running::start(&mut Command::new(program));
    let (said, code) =
        parsed(&output(unprivileged_ebb(&folder).args(["check", "--json", "-a", "jemalloc", &running.pid()])));
    assert_eq!(found(&said, "unknown"), ["closed"], "{said:#}");
    assert_eq!(code, 30);
    assert!(said["in_charge"].is_null());
}

/// As glibc 2.43 does on aarch64 by default.
#[test]
fn huge_pages_that_glibc_asks_for() {
    let enabled = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    if !enabled.is_ok_and(|it| it.contains("[madvise]") || it.contains("[always]")) {
        skip!("the kernel has no transparent huge pages");
    }
    // Of 60 MB every other block is free.
    let code =
        "import sys; x = [bytearray(60000) for _ in range(1000)]; del x[::2]; print(flush=True); sys.stdin.read()";
    let start = |value: &str| {
        let tunables = format!("glibc.malloc.hugetlb={value}");
        let mut command = Command::new("python3");
        Running::start(command.args(["-c", code]).env("GLIBC_TUNABLES", tunables))
    };
    let running = start("1");
    let said = assert_fine(&[&running.pid(), "-a", "glibc"]);
    assert_eq!(found(&said, "note"), ["huge-pages"], "{said:#}");
    let what = said["findings"][0]["what"].as_str().unwrap();
    let free = what.split("at most ").nth(1).and_then(|it| it.split(' ').next());
    let free: f64 = free.and_then(|it| it.parse().ok()).expect(what);
    assert!((25.0..60.0).contains(&free), "{what}");
    // More than nothing asks for, which is an error of its own.
    let (said, _) = parsed(&output(ebb().args(["check", "--json", &running.pid()])));
    assert_eq!(found(&said, "note"), ["huge-pages"], "{said:#}");
    let why = output(ebb().args(["why", "-v", &running.pid()]));
    let ends = "GLIBC_TUNABLES=glibc.malloc.hugetlb=0 ends that";
    assert!(stdout(&why).contains(ends), "{}", stdout(&why));
    drop(running);

    let running = start("0");
    let said = assert_fine(&[&running.pid(), "-a", "glibc"]);
    assert_eq!(said["findings"].as_array().map(Vec::len), Some(0), "{said:#}");
}

#[test]
fn what_nobody_has() {
    let refused = |target: &str, words: &str| {
        let output = output(ebb().args(["check", target]));
        assert_eq!(output.status.code(), Some(64));
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    };
    refused("no-such-process-anywhere", "no-such-process-anywhere");
    refused("4194999", "4194999");
    let output = output(ebb().args(["check", "1", "-a", "hoard"]));
    assert!(stderr(&output).contains("hoard"), "{}", stderr(&output));
}
