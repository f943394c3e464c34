//! Prints a trial's `results.json` as `ebb compare` does: `cargo run -p ebb-report --example report results.json`. The
//! tests run it.

use std::process::ExitCode;

fn report(json: &str) -> Result<String, serde_json::Error> {
    Ok(ebb_report::text::render(&serde_json::from_str(json)?, 100))
}

fn main() -> ExitCode {
    let text = std::env::args().nth(1).and_then(|path| std::fs::read_to_string(path).ok());
    let Some(text) = text else {
        eprintln!("usage: report RESULTS.JSON");
        return ExitCode::from(64);
    };
    match report(&text) {
        Ok(text) => print!("{text}"),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

#[test]
fn a_trial_without_variants_has_a_verdict() {
    let text = report(include_str!("results.json")).unwrap();
    assert_eq!(text, "Verdict: Not enough evidence: no variant was run.\n");
}
