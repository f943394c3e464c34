//! What an idle phase asks of the service when it begins.

use crate::MB;
use crate::bench::{Edited, results, run};

/// The fixture with a question in its rest.
fn asking(question: &str) -> Edited {
    let asked = format!("mark = \"after_rest\"\nask = {{ http = \"{question}\" }}");
    Edited::new(&[("mark = \"after_rest\"", &asked)])
}

#[test]
fn the_service_is_asked_when_the_rest_begins() {
    let output = tempfile::tempdir().unwrap();
    let folder = output.path().to_str().unwrap();
    let workload = asking("http://127.0.0.1:{port}/trim");
    let arguments = ["--variants", "glibc", "-n", "1", "-o", folder];
    run(workload.path(), &arguments).expect(0, &[], &[]);
    let trial = results(output.path());
    let reclaimable =
        trial["variants"][0]["summary"]["figures"]["reclaimable"]["median"].as_f64().unwrap();
    assert!(
        reclaimable < 5.0 * MB,
        "it was trimmed when the rest began, and {reclaimable} bytes go at the end"
    );
}

#[test]
fn a_question_without_an_answer_fails_the_run() {
    let workload = asking("http://127.0.0.1:{port}/nothing");
    let arguments = ["--variants", "glibc", "-n", "1"];
    run(workload.path(), &arguments).expect(
        20,
        &["! glibc: run 1 failed: the `ask` of phase \"rest\"", "404"],
        &[],
    );
}
