//! What `make install-compat` leaves: an object with jemalloc's soname that defines all that Debian's
//! package promises and that programs of other packages ask for; headers, archive, pkg-config files.

use std::collections::BTreeSet;
use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cases::{Library, installation};
use crate::harness::{Run, Scratch, require};
use test_needs::needs;

fn output(program: &str, package: &str, arguments: &[&str]) -> String {
    let output = Command::new(require(program, package))
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    String::from_utf8(output.stdout).expect("text")
}

/// The last word of each line of `nm`, without symbol versions.
fn names(arguments: &[&str], file: &Path) -> BTreeSet<String> {
    let mut arguments = arguments.to_vec();
    let file = file.display().to_string();
    arguments.push(&file);
    output("nm", "binutils", &arguments)
        .lines()
        .filter_map(|line| line.split_whitespace().next_back())
        .map(|name| name.split('@').next().expect("a first part").to_owned())
        .collect()
}

fn installed() -> PathBuf {
    Library::Ebbmalloc.folder().join("libjemalloc.so.2")
}

fn defined() -> BTreeSet<String> {
    names(&["-D", "--defined-only"], &installed())
}

#[test]
fn it_has_the_soname_that_programs_ask_for() {
    let file = installed().display().to_string();
    let dynamic = output("readelf", "binutils", &["-dW", &file]);
    assert!(dynamic.contains("soname: [libjemalloc.so.2]"), "{dynamic}");
    assert!(!dynamic.contains("(NEEDED)"), "{dynamic}");
}

#[test]
fn it_defines_what_the_package_promises() {
    let list = format!("/var/lib/dpkg/info/libjemalloc2:{}.symbols", debian_name());
    let list = fs::read_to_string(&list).unwrap_or_else(|error| panic!("{list} (package libjemalloc2): {error}"));
    let promised: BTreeSet<_> = list
        .lines()
        .filter_map(|line| line.strip_prefix(' '))
        .filter_map(|line| line.split('@').next())
        // Only jemalloc's own tests use these.
        .filter(|name| !name.starts_with("je_test_hooks_"))
        .map(str::to_owned)
        .collect();
    assert!(promised.len() > 40, "{promised:?}");
    let missing: Vec<_> = promised.difference(&defined()).cloned().collect();
    assert_eq!(missing, [""; 0]);
}

/// Debian's word for this architecture.
fn debian_name() -> &'static str {
    match ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// What each program and its libraries leave undefined of jemalloc's names must be there.
#[test]
fn it_defines_what_programs_need() {
    needs!("redis-server", "bind9", "knot-resolver", "varnish");
    let jemalloc = Library::Jemalloc.folder().join("libjemalloc.so.2");
    let of_jemalloc = names(&["-D", "--defined-only"], &jemalloc);
    let here = defined();
    let mut all_needed = BTreeSet::new();
    for (program, package) in
        [("redis-server", "redis-server"), ("named", "bind9"), ("varnishd", "varnish"), ("kresd", "knot-resolver")]
    {
        let file = super::programs::daemon(program, package);
        let mut files = vec![file.clone()];
        let linked = output("ldd", "libc-bin", &[&file.display().to_string()]);
        files.extend(
            linked
                .lines()
                .filter_map(|line| line.split("=> ").nth(1)?.split(' ').next())
                .filter(|file| file.starts_with('/') && !file.contains("libc.so"))
                .map(PathBuf::from),
        );
        let needed: BTreeSet<_> = files
            .iter()
            .flat_map(|file| names(&["-D", "--undefined-only"], file))
            .filter(|name| of_jemalloc.contains(name))
            .collect();
        let missing: Vec<_> = needed.difference(&here).collect();
        assert!(missing.is_empty(), "{program} needs {missing:?}");
        all_needed.extend(needed);
    }
    assert!(all_needed.contains("mallctl"), "{all_needed:?}");
}

const PROGRAM: &str = r#"
#include <jemalloc/jemalloc.h>
#include <stdio.h>
int main(void) {
    const char *version;
    size_t length = sizeof version;
    void *block = mallocx(1000, MALLOCX_ALIGN(256) | MALLOCX_ZERO);
    if (block == NULL || mallctl("version", &version, &length, NULL, 0) != 0) return 1;
    sdallocx(block, 1000, MALLOCX_ALIGN(256));
    puts(version);
    return 0;
}
"#;

/// As a build script does it, with pkg-config, and as a static program.
#[test]
fn programs_are_built_against_it() {
    needs!("pkg-config");
    let folder = Scratch::new();
    let source = folder.file("program.c", PROGRAM).display().to_string();
    let library = installation().join("lib");
    for (package, further, name) in
        [("jemalloc", &[][..], "dynamic"), ("ebbmalloc", &[], "own_name"), ("jemalloc", &["-static"], "static")]
    {
        let flags = Command::new(require("pkg-config", "pkg-config"))
            .args(["--cflags", "--libs", package])
            .env("PKG_CONFIG_PATH", library.join("pkgconfig"))
            .output()
            .expect("pkg-config can be run");
        let flags = String::from_utf8(flags.stdout).expect("text");
        let file = folder.path().join(name).display().to_string();
        let mut arguments = vec!["-pthread", &source, "-o", &file];
        arguments.extend(flags.split_whitespace());
        arguments.extend(further);
        output("cc", "gcc", &arguments);
        let outcome = Run::bare(&file).env("LD_LIBRARY_PATH", &library).run().succeeded();
        assert!(outcome.stdout.contains("ebbmalloc"), "{name}: {}", outcome.describe());
    }
    let dynamic = folder.path().join("dynamic").display().to_string();
    let needed = output("readelf", "binutils", &["-dW", &dynamic]);
    assert!(needed.contains("[libjemalloc.so.2]"), "{needed}");
}

/// The suite's programs mean the same with jemalloc's own header.
#[test]
fn the_programs_compile_with_either_header() {
    needs!("libjemalloc-dev");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/jemalloc");
    let mut sources: Vec<_> = fs::read_dir(folder)
        .expect("the programs' folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|end| end == "c"))
        .map(|path| path.display().to_string())
        .collect();
    sources.sort();
    assert!(sources.len() > 5);
    let ours = format!("-I{}", installation().join("include").display());
    assert!(
        Path::new("/usr/include/jemalloc/jemalloc.h").exists(),
        "no header of jemalloc's: apt-get install libjemalloc-dev"
    );
    for include in ["-I/usr/include", &ours] {
        let mut arguments = vec!["-fsyntax-only", "-Wall", "-Wextra", "-Werror", include];
        arguments.extend(sources.iter().map(String::as_str));
        output("cc", "gcc", &arguments);
    }
}
