//! What `ebb run` refuses, each with one line and its exit code.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ebb::exit::Exit;
use nix::unistd::Uid;

use crate::harness::*;
use test_needs::{needs, skip};

const UNSUPPORTED: i32 = Exit::Unsupported.code() as i32;
const MISSING: i32 = Exit::Missing.code() as i32;
const USAGE: i32 = Exit::Usage.code() as i32;
const NOT_EXECUTABLE: i32 = Exit::NotExecutable.code() as i32;
const NOT_FOUND: i32 = Exit::CommandNotFound.code() as i32;

const NOBODY: u32 = 65534;

#[track_caller]
fn assert_refuses(allocator: &str, program: &Path, code: i32, words: &[&str]) {
    let output = run(&["-a", allocator, program.to_str().unwrap()]);
    assert_refused(&output, code, words);
}

#[test]
fn a_statically_linked_program() {
    needs!("musl-tools");
    let folder = folder();
    for (compiler, name, flags) in [
        ("musl-gcc", "static-musl", &["-static"][..]),
        ("cc", "static-glibc", &["-static"]),
        ("cc", "static-pie", &["-static-pie"]),
    ] {
        let program = compile(&folder, compiler, name, ALLOCATING, flags);
        assert_refuses("jemalloc", &program, UNSUPPORTED, &[name, "statically linked"]);
        // Without a preload there is nothing to refuse.
        let output = run(&["-a", "glibc", program.to_str().unwrap()]);
        assert_eq!((output.status.code(), stdout(&output)), (Some(5), "allocated".to_owned()));
    }
    let script = script(&folder, "script", &format!("#!{}\n", folder.path().join("static-musl").display()));
    assert_refuses("jemalloc", &script, UNSUPPORTED, &["static-musl", "statically linked"]);
}

#[test]
fn a_set_uid_program_of_somebody_else() {
    if !Uid::effective().is_root() {
        // The system's own example: root's, with the bit, on every Linux.
        assert_refuses("jemalloc", Path::new("/bin/su"), UNSUPPORTED, &["set-uid"]);
        return;
    }
    let folder = folder();
    let copy = folder.path().join("cat");
    copy_program(Path::new("/bin/cat"), &copy);
    for (owner, mode, word) in [((Some(NOBODY), None), 0o4755, "set-uid"), ((Some(0), Some(NOBODY)), 0o2755, "set-gid")]
    {
        chown(&copy, owner.0, owner.1).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(mode)).unwrap();
        assert_refuses("jemalloc", &copy, UNSUPPORTED, &[word, "LD_PRELOAD"]);
    }
    // Our own set-uid program gains nothing by it, and its loader does preload.
    chown(&copy, Some(0), Some(0)).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).unwrap();
    let output = run(&["-a", "jemalloc", copy.to_str().unwrap(), "/proc/self/maps"]);
    assert!(stdout(&output).contains("jemalloc"), "{}", stderr(&output));
}

#[test]
fn a_program_with_capabilities() {
    needs!("libcap2-bin");
    if !Uid::effective().is_root() {
        skip!("only root can give a file capabilities; the rule has its unit tests");
    }
    let folder = folder();
    let copy = folder.path().join("cat");
    copy_program(Path::new("/bin/cat"), &copy);
    let set = output(Command::new("setcap").arg("cap_net_bind_service+ep").arg(&copy));
    assert!(set.status.success(), "{}", stderr(&set));
    let refused = output(unprivileged_ebb(&folder).args(["run", "-a", "jemalloc"]).arg(&copy));
    assert_refused(&refused, UNSUPPORTED, &["capabilities", "LD_PRELOAD"]);
}

#[test]
fn a_library_for_another_libc() {
    needs!("musl-tools");
    let folder = folder();
    let musl = compile(&folder, "musl-gcc", "program", ALLOCATING, &[]);
    assert_refuses("jemalloc", &musl, UNSUPPORTED, &["libjemalloc", "glibc", "musl"]);
    let library = jemalloc();
    assert_refuses(library.to_str().unwrap(), &musl, UNSUPPORTED, &["glibc", "musl"]);

    let source = "#include <stddef.h>\nvoid *malloc(size_t n) { return NULL; }";
    let for_musl = compile(&folder, "musl-gcc", "allocator.so", source, &["-shared", "-fPIC"]);
    let allocator = for_musl.to_str().unwrap();
    assert_refuses(allocator, Path::new("/bin/true"), UNSUPPORTED, &["musl", "glibc"]);
}

/// A copy of `cat` that says it is for another processor.
fn foreign(folder: &tempfile::TempDir) -> PathBuf {
    const E_MACHINE_AT: usize = 18;
    const EM_RISCV: u8 = 243;
    let mut bytes = fs::read("/bin/cat").unwrap();
    bytes[E_MACHINE_AT] = EM_RISCV;
    bytes[E_MACHINE_AT + 1] = 0;
    let path = folder.path().join("foreign");
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_library_for_another_architecture_or_none_at_all() {
    let folder = folder();
    let program = foreign(&folder);
    let library = jemalloc();
    assert_refuses(library.to_str().unwrap(), &program, UNSUPPORTED, &["riscv64", "built for"]);
    // Nothing of that architecture is installed here: the package is named.
    assert_refuses("tcmalloc", &program, MISSING, &["tcmalloc is not installed", "install"]);
}

#[test]
fn a_file_that_is_no_allocator() {
    let folder = folder();
    let empty = compile(&folder, "cc", "empty.so", "int x;", &["-shared", "-fPIC"]);
    let spaced = folder.path().join("with space.so");
    fs::copy(jemalloc(), &spaced).unwrap();
    for (file, code, words) in [
        (&*empty, UNSUPPORTED, &["does not define malloc"][..]),
        (Path::new("/bin/cat"), UNSUPPORTED, &["is a program"]),
        (Path::new("/etc/passwd"), UNSUPPORTED, &["not an ELF file"]),
        (Path::new("/no/such.so"), MISSING, &["/no/such.so", "no such file"]),
        (&spaced, UNSUPPORTED, &["space"]),
    ] {
        assert_refuses(file.to_str().unwrap(), Path::new("/bin/true"), code, words);
    }
}

#[test]
fn a_command_that_cannot_be_run() {
    let folder = folder();
    let lost = script(&folder, "lost", "#!/no/such/interpreter\n");
    let loader = ["-Wl,--dynamic-linker=/no/such/ld.so"];
    let without_loader = compile(&folder, "cc", "program", ALLOCATING, &loader);
    for (command, code, word) in [
        (Path::new("no-such-command"), NOT_FOUND, "no-such-command"),
        (Path::new("/no/such/command"), NOT_FOUND, "no such file"),
        (Path::new("/etc/passwd"), NOT_EXECUTABLE, "/etc/passwd"),
        (folder.path(), NOT_EXECUTABLE, "folder"),
        (&lost, NOT_EXECUTABLE, "/no/such/interpreter"),
        (&without_loader, NOT_EXECUTABLE, "its loader /no/such/ld.so"),
    ] {
        assert_refuses("glibc", command, code, &[word]);
    }
}

#[test]
fn a_command_line_that_makes_no_sense() {
    for (line, named) in [
        ("run -a hoard true", ["hoard", "ebbmalloc, jemalloc"]),
        ("run -a glibc --conf a:b true", ["glibc takes no --conf", "--env"]),
        ("run -a tcmalloc --conf a:b true", ["tcmalloc takes no --conf", ""]),
        ("run -a jemalloc --conf narenas true", ["\"narenas\" is not KEY:VALUE", ""]),
    ] {
        assert_refused(&output(ebb().args(words(line))), USAGE, &named);
    }
    for line in ["run", "run --env x true", "run --json true", "ran"] {
        let refused = Finished::by(ebb().args(words(line)));
        assert_eq!((refused.code, &*refused.stdout), (Some(USAGE), ""), "{line}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_crash() {
    let mut help = ebb();
    help.args(["run", "--help"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = help.spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(stderr(&child.wait_with_output().unwrap()), "");
}
