//! What holds memory on this machine, or the figures of one process: `cargo run -p ebb-node --example node [PID]`.

use ebb_node::{Clock, Node, Options, Subject};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut node = Node::new(Options { budget: 1.0, cgroups: None });
    node.tick(&Clock::now());
    let Some(pid) = std::env::args().nth(1) else {
        for group in node.groups() {
            println!("{:>12} {:?}", group.rss, group.identity);
        }
        return Ok(());
    };
    let pid: i32 = pid.parse()?;
    let found = node.processes().find(|process| process.key.pid == pid);
    let key = found.ok_or("there is no such process")?.key;
    node.look(&Subject::Process(key)).map_err(|reason| format!("not read: {}", reason.word()))?;
    println!("{:#?}", node.process(key).and_then(|process| process.figures.as_ref()));
    Ok(())
}
