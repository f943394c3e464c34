//! Command-line tools and runtimes of languages, each at work that it is used for.

use std::fs;

use super::script;
use crate::harness::{Run, Scratch, require};
use test_needs::needs;

/// Runs a script that prints "done" in the end.
fn runs(program: &str, package: &str, options: &[&str], name: &str) {
    let scratch = Scratch::new();
    let outcome = Run::witnessed(require(program, package))
        .args(options)
        .arg(script(&scratch, name))
        .run()
        .succeeded()
        .in_charge_of(program);
    assert_eq!(outcome.stdout, "done\n");
}

#[test]
fn node() {
    needs!("nodejs");
    runs("node", "nodejs", &[], "script.js");
}

/// Each worker forks as it spawns, at the same time as the others.
#[test]
fn node_workers_spawn_programs() {
    needs!("nodejs");
    runs("node", "nodejs", &[], "spawn.js");
}

#[test]
fn java() {
    needs!("default-jdk-headless");
    // A JDK's launcher compiles the file in memory: the compiler runs on the preload as well.
    require("javac", "default-jdk-headless");
    runs("java", "default-jdk-headless", &["-Xmx256m", "-XX:+UseSerialGC"], "Work.java");
}

#[test]
fn ruby() {
    needs!("ruby");
    runs("ruby", "ruby", &[], "script.rb");
}

/// PHP loads its extensions with RTLD_DEEPBIND. Debian's default configuration has some twenty that are shared objects.
#[test]
fn php_with_shared_extensions() {
    needs!("php-cli");
    let scratch = Scratch::new();
    let script = script(&scratch, "script.php");
    let php = || Run::witnessed(require("php", "php-cli"));
    // Its own heap, and each of its blocks from malloc.
    for (turn, own_heap) in ["1", "0"].into_iter().enumerate() {
        let outcome = php()
            .args(["-d", "phar.readonly=0", "-d", "opcache.enable_cli=1"])
            .arg(&script)
            .arg(scratch.path().join(format!("{turn}.phar")))
            .env("USE_ZEND_ALLOC", own_heap)
            .run()
            .succeeded()
            .in_charge_of("php");
        assert_eq!(outcome.stdout, "done\n");
    }
    let outcome = php().arg("-v").run().succeeded();
    assert!(outcome.stdout.starts_with("PHP "), "{}", outcome.stdout);
    let outcome = php().arg("-m").run().succeeded();
    assert!(outcome.stdout.contains("json"), "{}", outcome.stdout);
}

/// Go keeps its own heap, but C code in its process allocates, on threads with Go's signal masks
/// and stacks, and Go's scheduler interrupts them with signals.
#[test]
fn go_with_cgo() {
    needs!("golang-go");
    let scratch = Scratch::new();
    scratch.file("go.mod", "module calls\n\ngo 1.19\n");
    script(&scratch, "main.go");
    let output = scratch.path().join("calls");
    Run::bare(require("go", "golang-go"))
        .args(["build", "-o"])
        .arg(&output)
        .arg(".")
        .env("CGO_ENABLED", "1")
        .env("GOFLAGS", "-mod=mod")
        .env("GOPROXY", "off")
        .env("GOTOOLCHAIN", "local")
        .env("GOCACHE", scratch.path().join("cache"))
        .folder(scratch.path())
        .run()
        .succeeded();
    let outcome = Run::witnessed(&output).run().succeeded().in_charge_of("calls");
    assert_eq!(outcome.stdout, "done\n");
}

#[test]
fn bash() {
    let scratch = Scratch::new();
    let script = script(&scratch, "bash.sh");
    let outcome =
        Run::witnessed(require("bash", "bash")).arg(script).run().succeeded().in_charge_of("bash").in_charge_of("sort");
    assert_eq!(outcome.stdout, "trapped\n");
}

#[test]
fn git() {
    needs!("git");
    let scratch = Scratch::new();
    let script = script(&scratch, "git.sh");
    require("git", "git");
    Run::witnessed(require("bash", "bash")).arg(script).folder(scratch.path()).run().succeeded().in_charge_of("git");
}

#[test]
fn c_compiler() {
    let scratch = Scratch::new();
    let mut source = String::from("#include <stdio.h>\n");
    for i in 0..600 {
        source.push_str(&format!(
            "static int step{i}(int x) {{ for (int i = 0; i < x % 7; i++) x += i * {i}; return x ^ {i}; }}\n"
        ));
    }
    source.push_str("int main(void) { int x = 1;\n");
    for i in 0..600 {
        source.push_str(&format!("x = step{i}(x);\n"));
    }
    source.push_str("printf(\"%d\\n\", x); return 0; }\n");
    let file = scratch.file("steps.c", &source);
    let output = scratch.path().join("steps");
    Run::witnessed(require("gcc", "gcc"))
        .args(["-O2", "-g", "-pipe"])
        .arg(&file)
        .arg("-o")
        .arg(&output)
        .run()
        .succeeded()
        .in_charge_of("cc1")
        .in_charge_of("collect2");
    let expected = scratch.path().join("steps-bare");
    Run::bare("gcc").args(["-O2", "-g", "-pipe"]).arg(&file).arg("-o").arg(&expected).run().succeeded();
    let compiled = Run::preloaded(&output).run().succeeded().stdout;
    assert_eq!(compiled, Run::bare(&expected).run().succeeded().stdout);
}

#[test]
fn cpp_compiler() {
    let scratch = Scratch::new();
    let file = script(&scratch, "words.cpp");
    let output = scratch.path().join("words");
    Run::witnessed(require("g++", "g++"))
        .args(["-std=c++17", "-O1", "-g"])
        .arg(&file)
        .arg("-o")
        .arg(&output)
        .run()
        .succeeded()
        .in_charge_of("cc1plus");
    let outcome = Run::witnessed(&output).run().succeeded().in_charge_of("words");
    assert!(outcome.stdout.ends_with(" a#b#\n"), "{}", outcome.describe());
}

/// cargo itself runs on the preload; rustc brings a malloc of its own; next to it the preload
/// must be harmless, and so may what rustc compiles.
#[test]
fn cargo_build() {
    let scratch = Scratch::new();
    scratch.file("Cargo.toml", "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n");
    script(&scratch, "src/main.rs");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    Run::witnessed(cargo)
        .args(["build", "--offline", "--quiet", "--target-dir"])
        .arg(scratch.path().join("target"))
        .env("RUSTC_WRAPPER", "")
        .folder(scratch.path())
        .run()
        .succeeded()
        .in_charge_of("cargo");
    let outcome = Run::witnessed(scratch.path().join("target/debug/tiny")).run().succeeded().in_charge_of("tiny");
    assert_eq!(outcome.stdout, "50000 5940000\n");
}

#[test]
fn sqlite3() {
    needs!("sqlite3");
    let scratch = Scratch::new();
    let script = scratch.file(
        "script.sql",
        "PRAGMA journal_mode=WAL;
         CREATE TABLE events(id INTEGER PRIMARY KEY, kind TEXT, body BLOB);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
         INSERT INTO events SELECT i, 'kind' || (i % 37), randomblob(i % 700) FROM n;
         CREATE INDEX by_kind ON events(kind);
         DELETE FROM events WHERE id % 3 = 0;
         VACUUM;
         SELECT count(*), count(DISTINCT kind) FROM events;
         PRAGMA integrity_check;
        ",
    );
    let outcome = Run::witnessed(require("sqlite3", "sqlite3"))
        .arg(scratch.path().join("test.db"))
        .arg(format!(".read {}", script.display()))
        .run()
        .succeeded()
        .in_charge_of("sqlite3");
    assert!(outcome.stdout.ends_with("13334|37\nok\n"), "{}", outcome.describe());
    assert!(fs::metadata(scratch.path().join("test.db")).is_ok());
}
