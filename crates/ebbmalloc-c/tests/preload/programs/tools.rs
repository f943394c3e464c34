//! Command-line tools: shell, git, compilers, cargo, sqlite3.

use std::fs;

use crate::harness::{Run, Scratch, require};
use test_needs::needs;

#[test]
fn bash() {
    let scratch = Scratch::new();
    let script = scratch.file(
        "script.sh",
        r#"set -eu
declare -A words=()
for i in $(seq 1 3000); do words["w$((i % 97))"]="${words["w$((i % 97))"]:-}x$i"; done
test "${#words[@]}" = 97
text=$(for key in "${!words[@]}"; do printf '%s %s\n' "$key" "${words[$key]}"; done | sort | sha256sum)
test -n "$text"
(for i in $(seq 1 20); do (echo "$i" | sed 's/^/n/' | tr n m); done) | sort | uniq | wc -l | grep -qx 20
trap 'echo trapped' EXIT
mapfile -t lines < <(seq 1 20000); test "${#lines[@]}" = 20000
big=$(head -c 3000000 /dev/zero | tr '\0' a); test "${#big}" = 3000000
"#,
    );
    let outcome = Run::witnessed(require("bash", "bash"))
        .arg(script)
        .run()
        .succeeded()
        .in_charge_of("bash")
        .in_charge_of("sort");
    assert_eq!(outcome.stdout, "trapped\n");
}

#[test]
fn git() {
    needs!("git");
    let scratch = Scratch::new();
    let script = scratch.file(
        "script.sh",
        r#"set -eu
export HOME=$PWD GIT_CONFIG_NOSYSTEM=1
git init -q -b main repo; cd repo
git config user.name Tester; git config user.email tester@example.invalid
for i in $(seq 1 12); do
  for j in $(seq 1 8); do seq "$i" "$((i * j * 50))" > "file$j"; done
  git add .; git commit -q -m "commit $i"
done
git checkout -q -b side HEAD~5; echo side > side; git add side; git commit -q -m side
git checkout -q main; git merge -q -m merge side
git gc -q --aggressive --prune=now
git fsck --full --strict
test "$(git log --oneline | wc -l)" = 14
git log -p --stat > /dev/null
git blame file3 > /dev/null
git clone -q . ../copy
test "$(git -C ../copy rev-parse HEAD)" = "$(git rev-parse HEAD)"
"#,
    );
    require("git", "git");
    Run::witnessed(require("bash", "bash"))
        .arg(script)
        .folder(scratch.path())
        .run()
        .succeeded()
        .in_charge_of("git");
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
    Run::bare("gcc")
        .args(["-O2", "-g", "-pipe"])
        .arg(&file)
        .arg("-o")
        .arg(&expected)
        .run()
        .succeeded();
    let compiled = Run::preloaded(&output).run().succeeded().stdout;
    assert_eq!(compiled, Run::bare(&expected).run().succeeded().stdout);
}

#[test]
fn cpp_compiler() {
    let scratch = Scratch::new();
    let file = scratch.file(
        "words.cpp",
        r##"#include <algorithm>
#include <iostream>
#include <map>
#include <regex>
#include <string>
#include <vector>
int main() {
    std::map<std::string, std::vector<int>> words;
    for (int i = 0; i < 20000; i++) words["w" + std::to_string(i % 501)].push_back(i);
    std::size_t sum = 0;
    for (auto &[word, numbers] : words) sum += word.size() * numbers.size();
    std::cout << sum << ' ' << std::regex_replace("a1b22", std::regex("[0-9]+"), "#") << '\n';
}
"##,
    );
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
    scratch.file(
        "Cargo.toml",
        "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n",
    );
    scratch.file(
        "src/main.rs",
        r#"use std::collections::BTreeMap;
fn main() {
    let mut map = BTreeMap::new();
    for i in 0..50_000u64 { map.entry(i % 997).or_insert_with(Vec::new).push(i.to_string()); }
    let threads: Vec<_> = (0..4)
        .map(|n| std::thread::spawn(move || (0..10_000).map(|i| vec![n as u8; i % 300].len()).sum::<usize>()))
        .collect();
    let sum: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    println!("{} {}", map.values().map(Vec::len).sum::<usize>(), sum);
}
"#,
    );
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    Run::witnessed(cargo)
        .args(["build", "--offline", "--quiet", "--target-dir"])
        .arg(scratch.path().join("target"))
        .env("RUSTC_WRAPPER", "")
        .folder(scratch.path())
        .run()
        .succeeded()
        .in_charge_of("cargo");
    let outcome = Run::witnessed(scratch.path().join("target/debug/tiny"))
        .run()
        .succeeded()
        .in_charge_of("tiny");
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
