//! The verdict on a file of `ebb snap`: `ebb snap PID | cargo run -p ebb-diagnosis --example diagnose`.

use ebb_process::snapshot::Snapshot;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let snapshot = serde_json::from_reader(std::io::stdin())?;
    print!("{}", diagnose(snapshot));
    Ok(())
}

fn diagnose(snapshot: Snapshot) -> String {
    let diagnosis = ebb_diagnosis::of(snapshot);
    let lines = diagnosis.ledger.lines.iter();
    let lines = lines.map(|line| format!("{:>12} {:?}\n", line.bytes, line.cause));
    diagnosis.verdict.sentence + "\n" + &lines.collect::<String>()
}

#[test]
fn a_made_up_process_holds_what_it_has_freed() {
    use ebb_process::snapshot::{Heap, Kind, Process, Usage};
    let (live, trimmable) = (20_000_000, 80_000_000);
    let usage = Usage { rss: live + trimmable, pss: live + trimmable, ..Usage::default() };
    let text = diagnose(ebb_process::example::snapshot(vec![Process {
        memory: Some([(Kind::Brk, usage)].into()),
        heap: Some(Heap { live, trimmable, ..Heap::default() }),
        ..Process::default()
    }]));
    assert!(text.starts_with("Retention: 80.0 of 100 MB"), "{text}");
    assert!(text.ends_with("    80000000 Trimmable\n"), "{text}");
}
