//! `ebb run --verify` on hosts that preloads fail in elsewhere: in charge, or a clear line. The preload suite has the same
//! hosts without `ebb` (`startup.rs` of ebbmalloc-c).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ebb::exit::Exit;
use tempfile::TempDir;
use test_needs::{installed, note};

use crate::harness::*;
use crate::verify::{process, verify};

/// A program without libc, which stays for a second if asked.
const BARE: &str = include_str!("../../../ebbmalloc-c/tests/programs/startup_bare.c");
const BARE_FLAGS: [&str; 3] = ["-nostdlib", "-ffreestanding", "-fno-stack-protector"];
const UNSUPPORTED: i32 = Exit::Unsupported.code() as i32;

fn loader() -> PathBuf {
    let listed = stdout(&output(Command::new("readelf").args(["-lW", "/bin/sh"])));
    let name = listed.split_once("interpreter: ").and_then(|(_, rest)| rest.split_once(']'));
    PathBuf::from(name.expect("a loader").0)
}

fn host(folder: &TempDir, name: &str, flags: &[&str]) -> PathBuf {
    compile(folder, "cc", name, ALLOCATING, flags)
}

fn bare(folder: &TempDir, name: &str, flags: &[&str]) -> PathBuf {
    compile(folder, "cc", name, BARE, &[&BARE_FLAGS[..], flags].concat())
}

/// As other linkers leave the table of a program that exports nothing.
fn without_buckets(folder: &TempDir) -> PathBuf {
    let (program, table) = (host(folder, "exports_nothing", &["-Wl,--hash-style=gnu"]), [0; 28]);
    let (file, changed) = (folder.path().join("table"), folder.path().join("without_buckets"));
    // Buckets, first symbol, words of the filter, its shift; then the filter.
    let words = [0u32, 1, 1, 0].map(u32::to_ne_bytes).concat();
    fs::write(&file, [&words[..], &table[words.len()..]].concat()).expect("a table");
    let section = format!(".gnu.hash={}", file.display());
    let mut objcopy = Command::new("objcopy");
    let done = output(objcopy.arg("--update-section").arg(section).arg(program).arg(&changed));
    assert!(done.status.success(), "{}", stderr(&done));
    changed
}

/// Every process runs on the library, and the program ends as it does without.
fn in_charge(command: &[&str]) {
    let library = ebbmalloc();
    let (said, code) = verify(library.to_str().unwrap(), command);
    assert_eq!(said["in_charge"], true, "{said}");
    assert!(matches!(code, Some(0 | 5)), "{code:?} {said}");
}

/// The same of a program that allocates, takes a second and ends with 5.
fn serves(program: &Path) {
    in_charge(&[program.to_str().unwrap(), "1000"]);
}

/// By the program's own loader, and by that of a bundle. The root is the one that `ci/glibcs.sh` unpacks.
fn on_old_glibc(folder: &TempDir) {
    let Some(root) = std::env::var_os("EBB_TEST_OLD_GLIBC").map(PathBuf::from) else {
        note("no root with an old glibc: ci/glibcs.sh");
        return;
    };
    let libraries = root.join("lib/x86_64-linux-gnu");
    let loader = libraries.join("ld-linux-x86-64.so.2");
    let of_linker = root.join("usr/lib/x86_64-linux-gnu");
    let flags = [
        format!("--sysroot={}", root.display()),
        format!("-B{}", of_linker.display()),
        format!("-L{}", of_linker.display()),
        format!("-Wl,--dynamic-linker={}", loader.display()),
        format!("-Wl,-rpath,{}", libraries.display()),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    serves(&host(folder, "old_glibc", &flags));
    let program = host(folder, "old_glibc_bundled", &flags[..3]);
    let [loader, libraries, program] = [&loader, &libraries, &program].map(|it| it.to_str().expect("a plain path"));
    in_charge(&[loader, "--library-path", libraries, program, "1000"]);
}

#[test]
fn the_allocator_is_in_charge() {
    let folder = folder();
    type Case<'a> = (&'a str, Box<dyn Fn() + Sync + 'a>);
    let linked = |name: &'static str, flags: &'static [&'static str]| -> Case<'_> {
        let folder = &folder;
        (name, Box::new(move || serves(&host(folder, name, flags))))
    };
    let cases: Vec<Case<'_>> = vec![
        linked("empty_gnu_hash", &["-Wl,--hash-style=gnu"]),
        linked("sysv_hash", &["-Wl,--hash-style=sysv"]),
        linked("fixed_address", &["-no-pie", "-fno-pie"]),
        linked("old_pie", &["-pie", "-Wl,-z,norelro", "-Wl,-z,lazy", "-Wl,-z,noseparate-code"]),
        linked("executable_stack", &["-Wl,-z,execstack"]),
        linked("stripped", &["-s"]),
        ("without_buckets", Box::new(|| serves(&without_buckets(&folder)))),
        ("bound_at_once", Box::new(|| in_charge(&["env", "LD_BIND_NOW=1", "sleep", "1"]))),
        (
            "without_libc",
            Box::new(|| {
                let flags = ["-pie", "-fPIE", "-Wl,-z,dynamic-undefined-weak"];
                let program = bare(&folder, "without_libc", &flags);
                in_charge(&[program.to_str().unwrap(), "with", "linger"]);
            }),
        ),
        (
            "audited",
            Box::new(|| {
                let source = include_str!("../../../ebbmalloc-c/tests/programs/startup_audit.c");
                let flags = ["-shared", "-fPIC"];
                let library = compile(&folder, "cc", "audit.so", source, &flags);
                let audit = format!("LD_AUDIT={}", library.display());
                in_charge(&["env", &audit, "sleep", "1"]);
            }),
        ),
        (
            "renamed_loader",
            Box::new(|| {
                let copy = folder.path().join("start");
                copy_program(&loader(), &copy);
                let flag = format!("-Wl,--dynamic-linker={}", copy.display());
                serves(&host(&folder, "by_renamed_loader", &[&flag]));
                let program = host(&folder, "argument", &[]);
                in_charge(&[copy.to_str().unwrap(), program.to_str().unwrap(), "1000"]);
                let ours = ["run", "-a", "jemalloc", "--verify", "--"];
                let peer = output(ebb().args(ours).arg(folder.path().join("by_renamed_loader")));
                assert_eq!(peer.status.code(), Some(5), "{}", stderr(&peer));
            }),
        ),
        ("glibc_before_2_34", Box::new(|| on_old_glibc(&folder))),
        (
            "loader_of_musl",
            Box::new(|| {
                if !installed(&["musl-tools"]) {
                    return;
                }
                let program = compile(&folder, "musl-gcc", "on_musl", ALLOCATING, &[]);
                let listed = output(Command::new("readelf").arg("-lW").arg(&program));
                let listed = stdout(&listed);
                let loader = listed.split_once("interpreter: ").expect("a loader").1;
                let loader = loader.split(']').next().expect("its end");
                in_charge(&[loader, program.to_str().unwrap(), "1000"]);
            }),
        ),
    ];
    each(&cases, |case| case());
}

/// The loader would say nothing, or one line, and start the program without the library.
#[test]
fn a_preload_that_does_not_happen_is_reported() {
    let folder = folder();
    let library = ebbmalloc();
    let library = library.to_str().unwrap();

    let program = bare(&folder, "static_without_libc", &["-static"]);
    let program = program.to_str().unwrap();
    let refused = run(&["-a", library, "--verify", program, "without"]);
    assert_refused(&refused, UNSUPPORTED, &["static_without_libc", "statically linked"]);
    let wrapped = format!("{program} without linger; exit 4");
    let (said, code) = verify(library, &["sh", "-c", &wrapped]);
    assert_eq!((&said["in_charge"], code), (&false.into(), Some(4)), "{said}");

    if cfg!(target_arch = "x86_64") && installed(&["libc6-i386"]) {
        let flags = ["-m32", "-pie", "-fPIE", "-Wl,-z,dynamic-undefined-weak"];
        let program = bare(&folder, "narrow", &flags);
        let program = program.to_str().unwrap();
        let refused = run(&["-a", library, "--verify", program, "without"]);
        assert_refused(&refused, UNSUPPORTED, &["x86-64", "i386"]);
        let wrapped = format!("{program} without linger 2>/dev/null; exit 4");
        let (said, code) = verify(library, &["sh", "-c", &wrapped]);
        assert_eq!((&said["in_charge"], code), (&false.into(), Some(4)), "{said}");
        let why = process(&said, "/narrow")["why"].to_string();
        assert!(why.contains("a 32-bit program: the library has 64 bits"), "{said}");
    }

    // The library is gone when a child starts.
    let (said, code) = {
        let place = folder.path().join("later.so");
        fs::copy(library, &place).expect("a copy");
        let gone = format!("rm {}; sleep 1 2>/dev/null; exit 4", place.display());
        verify(place.to_str().unwrap(), &["sh", "-c", &gone])
    };
    assert_eq!((&said["in_charge"], code), (&false.into(), Some(4)), "{said}");
    let sleep = process(&said, "/sleep");
    assert!(sleep["malloc"].as_str().unwrap().contains("libc"), "{said}");
}
