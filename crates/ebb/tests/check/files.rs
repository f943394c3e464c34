//! Dockerfiles and unpacked root file systems.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::harness::*;
use crate::{assert_error, assert_fine, check, for_another_machine, found};
use test_needs::needs;

fn root(files: &[(&Path, &str)]) -> TempDir {
    let folder = folder();
    for (file, to) in files {
        let to = folder.path().join(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(file, to).unwrap();
    }
    folder
}

fn place(root: &TempDir) -> &str {
    root.path().to_str().unwrap()
}

const CAT: &str = "/bin/cat";

fn with_jemalloc() -> TempDir {
    let root = root(&[(Path::new(CAT), "usr/bin/cat"), (&jemalloc(), "usr/lib/libjemalloc.so.2")]);
    // What jemalloc needs is looked for, too.
    let listed = stdout(&output(std::process::Command::new("ldd").arg(jemalloc())));
    for file in listed.split_whitespace().filter(|word| word.starts_with('/')) {
        let name = Path::new(file).file_name().unwrap();
        fs::copy(file, root.path().join("usr/lib").join(name)).unwrap();
    }
    root
}

#[test]
fn an_unpacked_image_in_order() {
    let root = with_jemalloc();
    let said = assert_fine(&[place(&root), "-a", "jemalloc"]);
    assert_eq!(said["subject"], "root");
    assert_eq!(said["programs"], 1);
    // Without a word from anybody.
    assert_error(&[place(&root)], "not-asked");
    fs::create_dir_all(root.path().join("etc")).unwrap();
    fs::write(root.path().join("etc/ld.so.preload"), "/usr/lib/libjemalloc.so.2\n").unwrap();
    let said = assert_fine(&[place(&root)]);
    assert_eq!(said["allocator"], "jemalloc");
    fs::remove_file(root.path().join("usr/lib/libjemalloc.so.2")).unwrap();
    assert_error(&[place(&root)], "library-missing");
}

/// Of a preloaded library the loader forgives everything but this: the program does not start at all.
#[test]
fn a_library_whose_own_library_is_gone() {
    let root = with_jemalloc();
    fs::remove_file(root.path().join("usr/lib/libstdc++.so.6")).unwrap();
    assert_error(&[place(&root), "-a", "jemalloc"], "missing-dependency");
}

#[test]
fn an_entrypoint_script_in_an_image() {
    let root = with_jemalloc();
    let text = "#!/bin/sh\nexport LD_PRELOAD=libjemalloc.so.2\nexec \"$@\"\n";
    script(&root, "entrypoint.sh", text);
    let said = assert_fine(&[place(&root)]);
    assert_eq!(found(&said, "note"), ["entrypoint-bypassed"], "{said:#}");
}

#[test]
fn a_musl_program_and_a_library_of_glibc() {
    needs!("musl-tools");
    let folder = folder();
    let musl = compile(&folder, "musl-gcc", "program", ALLOCATING, &[]);
    let root = root(&[
        (&musl, "app/program"),
        (&jemalloc(), "usr/lib/libjemalloc.so.2"),
        (&ebbmalloc(), "usr/lib/libebbmalloc.so"),
    ]);
    assert_error(&[place(&root), "-a", "jemalloc"], "wrong-libc");
    assert_fine(&[place(&root), "-a", "ebbmalloc"]);
}

#[test]
fn a_library_for_another_architecture() {
    let root = root(&[(Path::new(CAT), "usr/bin/cat")]);
    let library = root.path().join("usr/lib/libjemalloc.so.2");
    fs::create_dir_all(library.parent().unwrap()).unwrap();
    for_another_machine(&jemalloc(), &library);
    let said = assert_error(&[place(&root), "-a", "jemalloc"], "wrong-architecture");
    assert_eq!(found(&said, "note"), ["page-size-bound"], "{said:#}");
}

#[test]
fn a_kernel_with_larger_pages() {
    let root = with_jemalloc();
    let arguments = [place(&root), "-a", "jemalloc", "--page-size", "65536"];
    assert_error(&arguments, "page-size");
}

#[test]
fn programs_that_take_no_library_are_errors_where_they_are_named() {
    needs!("musl-tools");
    let folder = folder();
    let fixed = compile(&folder, "musl-gcc", "fixed", ALLOCATING, &["-static"]);
    let root = with_jemalloc();
    let add = |file: &Path, to: &str, mode: u32| -> PathBuf {
        let to = root.path().join(to);
        fs::copy(file, &to).unwrap();
        fs::set_permissions(&to, fs::Permissions::from_mode(mode)).unwrap();
        to
    };
    add(&fixed, "usr/bin/fixed", 0o755);
    add(Path::new(CAT), "usr/bin/other", 0o755);
    add(Path::new(CAT), "usr/bin/third", 0o755);
    add(Path::new(CAT), "usr/bin/becoming", 0o4755);
    let (said, code) = check(&[place(&root), "-a", "jemalloc"]);
    assert_eq!(code, 0, "{said:#}");
    assert_eq!(found(&said, "note"), ["secure-mode", "static-program"]);
    let named = |program: &str, id: &str| {
        assert_error(&[place(&root), "-a", "jemalloc", "--program", program], id);
    };
    named("/usr/bin/fixed", "static-program");
    named("/usr/bin/becoming", "secure-mode");
    assert_fine(&[place(&root), "-a", "jemalloc", "--program", "/usr/bin/cat"]);
    // What /etc/ld.so.preload names counts for programs that gain rights as well.
    fs::create_dir_all(root.path().join("etc")).unwrap();
    fs::write(root.path().join("etc/ld.so.preload"), "libjemalloc.so.2\n").unwrap();
    assert_fine(&[place(&root), "--program", "/usr/bin/becoming"]);
}

#[test]
fn a_dockerfile_with_its_context() {
    let folder = folder();
    let file = folder.path().join("Dockerfile");
    let name = file.to_str().unwrap();
    fs::write(
        &file,
        "FROM python:3.12-slim\nRUN apt-get update && \\\n    apt-get install -y libjemalloc2\n\
         COPY start.sh /start.sh\nCMD [\"python\", \"app.py\"]\n",
    )
    .unwrap();
    assert_error(&[name], "not-asked");
    script(&folder, "start.sh", "export LD_PRELOAD=libjemalloc.so.2\nexec \"$@\"\n");
    let said = assert_error(&[name], "entrypoint-bypassed");
    assert_eq!(said["findings"][0]["file"], format!("{name}:4"));
    assert_fine(&[name, "-a", "glibc"]);
    let preload = "ENV LD_PRELOAD=libjemalloc.so.2\n";
    fs::write(&file, format!("FROM debian:12\n{preload}")).unwrap();
    assert_error(&[name], "package-missing");
    let install = "RUN apt-get install libjemalloc2\n";
    fs::write(&file, format!("FROM debian:12\n{install}{preload}")).unwrap();
    assert_fine(&[name, "-a", "jemalloc"]);
    assert_error(&[name, "-a", "mimalloc"], "other-first");
}

#[test]
fn a_compose_file_that_mounts_a_library_from_nowhere() {
    let folder = folder();
    let file = folder.path().join("compose.yaml");
    let name = file.to_str().unwrap();
    let write = |volume: &str| {
        let text = format!(
            "services:\n  web:\n    image: debian:12\n    environment:\n      LD_PRELOAD: /opt/libebbmalloc.so\n    \
             volumes:\n      - {volume}\n"
        );
        fs::write(&file, text).unwrap();
    };
    let missing = [
        "./libebbmalloc.so:/opt/libebbmalloc.so:ro",
        "./lib:/opt",
        "{type: bind, source: ./libebbmalloc.so, target: /opt/libebbmalloc.so}",
    ];
    for volume in missing {
        write(volume);
        let said = assert_error(&[name], "mount-missing");
        assert_eq!(said["findings"][0]["file"], format!("{name}:5"), "{volume}");
    }
    for volume in [
        "/nowhere/libebbmalloc.so:/opt/libebbmalloc.so",
        "~/libebbmalloc.so:/opt/libebbmalloc.so",
        "./${ARCH}/libebbmalloc.so:/opt/libebbmalloc.so",
        "libraries:/opt",
        "{type: volume, source: libraries, target: /opt}",
    ] {
        write(volume);
        assert_fine(&[name]);
    }
    fs::create_dir(folder.path().join("lib")).unwrap();
    for place in ["libebbmalloc.so", "lib/libebbmalloc.so"] {
        fs::write(folder.path().join(place), "x").unwrap();
    }
    for volume in missing {
        write(volume);
        assert_fine(&[name]);
    }
}

#[test]
fn what_is_neither() {
    let folder = folder();
    let refused = |target: &Path, words: &str| {
        let output = output(ebb().arg("check").arg(target));
        assert_refused(&output, 64, &[words]);
    };
    refused(folder.path(), "no program");
    refused(Path::new(CAT), "ebb run --verify");
    let file = folder.path().join("Dockerfile");
    fs::write(&file, "this is a letter\n").unwrap();
    refused(&file, "Dockerfile");
    fs::write(&file, "FROM a AS b\n").unwrap();
    let output = output(ebb().args(["check", "--stage", "c"]).arg(&file));
    assert_refused(&output, 64, &["has no stage"]);
}

#[test]
fn a_file_that_is_missing_empty_or_no_text_is_named_as_what_it_is() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("empty"), "\n").unwrap();
    fs::write(path("binary"), [0xff, 0xfe, 0, 1]).unwrap();
    fs::copy(CAT, path("program")).unwrap();
    for (name, expected) in [
        ("Dockerfile.missing", "no such file"),
        ("empty", "is empty"),
        ("binary", "is not text"),
        ("program", "is a program or library"),
    ] {
        let refused = output(ebb().args(["check", &path(name)]));
        assert_refused(&refused, 64, &[name, expected]);
    }
}
