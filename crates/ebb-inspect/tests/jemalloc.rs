//! The settings of a jemalloc inside a program are those that it runs with, whatever set them.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ebb_inspect::{Target, jemalloc};
use test_needs::needs;

/// `programs/heap.c` with jemalloc inside, resting.
struct Program(Child);

impl Program {
    fn start(name: &str, link: &[&str], settings: &str) -> Self {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/heap.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-Wno-deprecated-declarations", "-pthread"]);
        compiler.arg(source).arg("-o").arg(&program).args(link);
        assert!(compiler.status().expect("a C compiler").success());
        let mut child = Command::new(program)
            .arg("cached")
            .env("MALLOC_CONF", settings)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut answers = BufReader::new(child.stdout.as_mut().unwrap());
        answers.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(child)
    }

    fn read(&self) -> Vec<jemalloc::Settings> {
        let pid = i32::try_from(self.0.id()).unwrap();
        jemalloc::settings(&Target::open(pid).unwrap()).unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn settings_in_force_are_read_from_a_jemalloc_inside() {
    needs!("libjemalloc-dev");
    let inside = ["-l:libjemalloc.a", "-lm", "-lstdc++"];
    let settings = "dirty_decay_ms:1234,muzzy_decay_ms:-1,narenas:3,background_thread:true";
    for (name, link) in [("pie", vec![]), ("fixed", vec!["-no-pie"])] {
        let link: Vec<&str> = link.into_iter().chain(inside).collect();
        let found = Program::start(&format!("jemalloc-{name}"), &link, settings).read();
        let [jemalloc] = found.as_slice() else {
            panic!("{name}: {found:?}");
        };
        assert_eq!(jemalloc.prefix.as_deref(), Some("je_"));
        assert!(jemalloc.file.ends_with(format!("jemalloc-{name}")));
        assert_eq!(jemalloc.dirty_decay_ms, 1234);
        assert_eq!(jemalloc.muzzy_decay_ms, Some(-1));
        assert_eq!(jemalloc.background_thread, Some(true));
        assert_eq!(jemalloc.narenas, Some(3));
    }
    // Without settings: its defaults.
    let found = Program::start("jemalloc-default", &inside, "").read();
    assert_eq!(found[0].dirty_decay_ms, 10_000);
    assert_eq!(found[0].background_thread, Some(false));
}

#[test]
fn a_program_without_one_has_none() {
    assert_eq!(Program::start("jemalloc-none", &[], "").read(), []);
}
