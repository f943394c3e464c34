//! Runtimes of other languages: node, java, ruby, PHP, and a Go program with cgo.

use std::time::Duration;

use crate::harness::{Run, Scratch, require};
use test_needs::needs;

#[test]
fn node() {
    needs!("nodejs");
    let scratch = Scratch::new();
    let script = scratch.file(
        "script.js",
        r#"
const { Worker, isMainThread } = require("worker_threads");
const zlib = require("zlib"), crypto = require("crypto");
function work() {
  for (let turn = 0; turn < 20; turn++) {
    const data = Array.from({ length: 2000 }, (_, i) => ({ i, text: "x".repeat(i % 200) }));
    const packed = zlib.gzipSync(JSON.stringify(data));
    if (JSON.parse(zlib.gunzipSync(packed)).length !== 2000) process.exit(3);
    const buffers = Array.from({ length: 200 }, (_, i) => Buffer.alloc(i * 100));
    if (buffers.some((b) => b.some((v) => v !== 0))) process.exit(4);
    crypto.createHash("sha256").update(packed).digest("hex");
  }
}
if (isMainThread) {
  let left = 4;
  for (let n = 0; n < 4; n++)
    new Worker(__filename).on("exit", (code) => {
      if (code !== 0) process.exit(5);
      if (--left === 0) {
        crypto.pbkdf2("a", "b", 1000, 64, "sha512", () => console.log("done"));
      }
    });
}
work();
"#,
    );
    let outcome = Run::witnessed(require("node", "nodejs"))
        .arg(script)
        .run()
        .succeeded()
        .in_charge_of("node");
    assert_eq!(outcome.stdout, "done\n");
}

/// Each worker forks as it spawns, at the same time as the others.
#[test]
fn node_workers_spawn_programs() {
    needs!("nodejs");
    let scratch = Scratch::new();
    let script = scratch.file(
        "spawn.js",
        r#"
const { Worker, isMainThread } = require("worker_threads");
const { spawnSync } = require("child_process");
if (isMainThread) {
  let left = 4;
  for (let n = 0; n < 4; n++)
    new Worker(__filename).on("exit", (code) => {
      if (code !== 0) process.exit(5);
      if (--left === 0) console.log("done");
    });
} else {
  for (let turn = 0; turn < 50; turn++) {
    const kept = Array.from({ length: 20 }, (_, i) => Buffer.allocUnsafeSlow(3000 + i));
    if (spawnSync("/bin/true").status !== 0 || kept.length !== 20) process.exit(3);
  }
}
"#,
    );
    let outcome = Run::witnessed(require("node", "nodejs"))
        .arg(script)
        .limit(Duration::from_secs(120))
        .run()
        .succeeded()
        .in_charge_of("node");
    assert_eq!(outcome.stdout, "done\n");
}

#[test]
fn java() {
    needs!("default-jdk-headless");
    let scratch = Scratch::new();
    let source = scratch.file(
        "Work.java",
        r#"
import java.io.*;
import java.nio.ByteBuffer;
import java.util.*;
import java.util.concurrent.*;
import java.util.zip.*;
public class Work {
    static long work(int n) throws Exception {
        Map<Integer, String> map = new HashMap<>();
        for (int i = 0; i < 20000; i++) map.put(i, "x".repeat(i % 50) + n);
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (GZIPOutputStream zip = new GZIPOutputStream(bytes)) {
            for (String text : map.values()) zip.write(text.getBytes());
        }
        long total = 0;
        for (int i = 0; i < 50; i++) total += ByteBuffer.allocateDirect(i * 1000 + 1).capacity();
        return total + bytes.size();
    }
    public static void main(String[] arguments) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(8);
        List<Future<Long>> results = new ArrayList<>();
        for (int n = 0; n < 24; n++) { final int m = n; results.add(pool.submit(() -> work(m))); }
        for (Future<Long> result : results) if (result.get() < 1000) throw new Error("wrong");
        pool.shutdown();
        System.gc();
        System.out.println("done");
    }
}
"#,
    );
    // A JDK's launcher compiles the file in memory: the compiler runs on the preload as well.
    require("javac", "default-jdk-headless");
    let outcome = Run::witnessed(require("java", "default-jdk-headless"))
        .args(["-Xmx256m", "-XX:+UseSerialGC"])
        .arg(source)
        .run()
        .succeeded()
        .in_charge_of("java");
    assert_eq!(outcome.stdout, "done\n");
}

#[test]
fn ruby() {
    needs!("ruby");
    let scratch = Scratch::new();
    let script = scratch.file(
        "script.rb",
        r#"
require "json"
require "zlib"
# Not "digest" alone: loading SHA256 at its first use is a race of ruby's own.
require "digest/sha2"
threads = 4.times.map do |n|
  Thread.new do
    15.times do
      data = 500.times.map { |i| { "id" => i, "text" => "x" * (i % 300), "n" => [n] * (i % 9) } }
      packed = Zlib.deflate(JSON.generate(data))
      raise "wrong" unless JSON.parse(Zlib.inflate(packed)) == data
      Digest::SHA256.hexdigest(packed)
    end
  end
end
threads.each(&:join)
GC.start
children = 5.times.map { |n| fork { exit!((Array.new(5000) { |i| "y" * (i % 100) }.size == 5000) ? 0 : 1) } }
children.each { |pid| Process.wait(pid); raise "child" unless $?.success? }
GC.compact if GC.respond_to?(:compact)
puts "done"
"#,
    );
    let outcome =
        Run::witnessed(require("ruby", "ruby")).arg(script).run().succeeded().in_charge_of("ruby");
    assert_eq!(outcome.stdout, "done\n");
}

/// PHP loads its extensions with RTLD_DEEPBIND. Debian's default configuration has some twenty that are shared objects.
#[test]
fn php_with_shared_extensions() {
    needs!("php-cli");
    let scratch = Scratch::new();
    let script = scratch.file(
        "script.php",
        r#"<?php
foreach (["ctype", "iconv", "tokenizer", "fileinfo", "phar"] as $name)
    if (!extension_loaded($name)) { echo "no $name\n"; exit(2); }
for ($turn = 0; $turn < 20; $turn++) {
    $data = [];
    for ($i = 0; $i < 1000; $i++) $data[] = ["id" => $i, "text" => str_repeat("x", $i % 300)];
    $text = json_encode($data);
    if (json_decode(gzuncompress(gzcompress($text)), true) !== $data) exit(3);
    if (iconv("UTF-8", "UTF-16LE", $text) === false || !ctype_digit("0123")) exit(4);
    if (count(token_get_all("<?php " . str_repeat('$a = [1, "b"];', 200))) < 1000) exit(5);
    if (function_exists("mb_strtoupper") && mb_strtoupper("\u{e4}") !== "\u{c4}") exit(6);
}
if ((new finfo(FILEINFO_MIME_TYPE))->buffer("<?php echo 1;") !== "text/x-php") exit(7);
$archive = new Phar($argv[1]);
$archive["one.txt"] = str_repeat("y", 100000);
if (strlen(file_get_contents("phar://$argv[1]/one.txt")) !== 100000) exit(8);
echo "done\n";
"#,
    );
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
    scratch.file(
        "main.go",
        r#"package main

/*
#include <stdlib.h>
#include <string.h>
static int churn(int seed) {
    int sum = 0;
    for (int i = 1; i < 3000; i++) {
        size_t size = (size_t)(i * 37 + seed) % 9000 + 1;
        char *block = malloc(size), *other = calloc(1, size);
        if (!block || !other) return -1;
        memset(block, seed, size);
        block = realloc(block, size * 2);
        if (!block || block[size - 1] != (char)seed || other[size - 1] != 0) return -1;
        sum += block[0];
        free(block);
        free(other);
    }
    return 1;
}
*/
import "C"

import (
	"fmt"
	"os"
	"sync"
	"unsafe"
)

func main() {
	var all sync.WaitGroup
	for g := 0; g < 16; g++ {
		all.Add(1)
		go func(g int) {
			defer all.Done()
			for turn := 0; turn < 20; turn++ {
				if C.churn(C.int(g+turn)) != 1 {
					os.Exit(3)
				}
				text := C.CString(fmt.Sprint("text", g, turn))
				if C.GoString(text) != fmt.Sprint("text", g, turn) {
					os.Exit(4)
				}
				C.free(unsafe.Pointer(text))
				_ = make([]byte, 100000)
			}
		}(g)
	}
	all.Wait()
	fmt.Println("done")
}
"#,
    );
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
