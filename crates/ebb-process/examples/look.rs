//! What a process takes its `malloc` from, and its memory by kind: `cargo run -p ebb-process --example look PID`.

use std::fmt::Write as _;

use ebb_process::mappings::{self, Hints};
use ebb_process::{MallocSource, cgroup, malloc_source};
use procfs::process::Process;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pid = std::env::args().nth(1).ok_or("usage: look PID")?;
    print!("{}", look(pid.parse()?)?);
    Ok(())
}

fn look(pid: i32) -> Result<String, Box<dyn std::error::Error>> {
    let malloc = match malloc_source(pid)? {
        MallocSource::File(path) => path.display().to_string(),
        MallocSource::Static => "inside the program".to_owned(),
        MallocSource::Nobody => "none".to_owned(),
    };
    let mut text = format!("malloc: {malloc}\n");
    let process = Process::new(pid)?;
    for (kind, usage) in mappings::by_kind(&mappings::read(&process)?, &Hints::of(&process)) {
        writeln!(text, "{kind:?}: {} bytes, {} of them in swap", usage.pss, usage.swap)?;
    }
    if let Some(place) = cgroup::Place::of(pid) {
        writeln!(text, "cgroup {}: limit {:?}", place.path(), place.read().limit)?;
    }
    Ok(text)
}

#[test]
fn it_looks_at_itself() {
    let text = look(i32::try_from(std::process::id()).unwrap()).unwrap();
    assert!(text.contains("malloc: /") && text.contains("Stack: "), "{text}");
}
