//! Advice to programs in other languages.

use std::process::Command;

use super::process::{Process, quiet, start};
use crate::harness::subjects::{self, preload};

/// Python code, which then says that it is ready and waits.
fn python(code: &str, settings: &[(&str, &str)]) -> Command {
    let mut command = Command::new("python3");
    let rest = "\nimport sys\nprint('ready', flush=True)\nsys.stdin.read()\n";
    command.arg("-c").arg(format!("{code}{rest}"));
    quiet(command, settings)
}

fn is_long() -> bool {
    std::env::var_os("EBB_LONG").is_some()
}

#[test]
fn python_objects_on_an_allocator_that_returns_pages() {
    let code = "made = [(float(i), str(i)) for i in range(600000)]\nkept = made[::400]\ndel made";
    let process = Process::start(&mut python(code, &[]));
    let mut again = python(code, &[]);
    again.env("LD_PRELOAD", preload("ebbmalloc"));
    start(&process, "ebbmalloc returns the pages of its free objects", &mut again)
        .helps("a start on ebbmalloc");
}

#[test]
fn arrow_on_malloc() {
    let has = |module: &str| {
        let import = format!("import {module}");
        let output = Command::new("python3").args(["-c", &import]).output();
        output.is_ok_and(|output| output.status.success())
    };
    if !is_long() || !has("pyarrow") {
        return;
    }
    let code = "import pyarrow as pa\n\
                t = [pa.array(['text %d' % i * 4 for i in range(3000)]) for _ in range(400)]\n\
                kept = t[::40]\ndel t";
    let process = Process::start(&mut python(code, &[]));
    let mut again = python(code, &[("ARROW_DEFAULT_MEMORY_POOL", "system")]);
    again.env("LD_PRELOAD", preload("ebbmalloc"));
    start(&process, "ARROW_DEFAULT_MEMORY_POOL=system", &mut again).helps("Arrow on ebbmalloc");
}

#[test]
fn mimalloc_in_a_rust_program_that_purges_at_once() {
    if !is_long() {
        return;
    }
    // The program's word is the one of the tests of why.
    let mut command = subjects::command("rust:mimalloc:burst");
    let process = Process::start(&mut command);
    let mut again = subjects::command("rust:mimalloc:burst");
    again.env("MIMALLOC_PURGE_DELAY", "0");
    start(&process, "MIMALLOC_PURGE_DELAY=0", &mut again).helps("MIMALLOC_PURGE_DELAY=0");
}
