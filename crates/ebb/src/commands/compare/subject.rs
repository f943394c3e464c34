//! What a command line asks to compare: a workload's folder, or a service after `--` with its load.

use std::path::PathBuf;

use super::sketch;
use crate::exit::{Exit, Failure};

/// Refuses a command line that names no service, or two, with the ways there are.
pub(super) fn check(workload: &[PathBuf], sketch: &sketch::Args) -> Result<(), Failure> {
    let usage = |what: String, remedy: &str| Err(Failure::new(Exit::Usage, what).remedy(remedy));
    let words: Vec<String> = workload.iter().map(|word| word.display().to_string()).collect();
    let has_service = sketch.has_service();
    match (sketch.flag(), words.as_slice()) {
        (Some(_), [_, ..]) if has_service => usage(
            format!("a service after `--` cannot be used with the workload {}", words[0]),
            "leave out one of them",
        ),
        (Some(flag), words) if !has_service => usage(
            match words {
                [] => format!("{flag} needs a service"),
                words => {
                    format!("{flag} needs a service, and {} is not marked as one", words.join(" "))
                }
            },
            &format!(
                "put the service's command after `--`: ebb compare {flag} ... -- {}",
                match words {
                    [] => "./server --port 8000".to_owned(),
                    words => words.join(" "),
                }
            ),
        ),
        (None, []) if !has_service => usage(
            "nothing to compare: neither a workload nor a service is given".to_owned(),
            "give the folder of a workload.toml (ebb compare workloads/sse), or a load and a service after `--` \
             (ebb compare --load 'oha -z 20s http://localhost:8000/' -- ./server --port 8000)",
        ),
        (_, [_, _, ..]) => usage(
            format!("there are {} workloads: {}", words.len(), words.join(" ")),
            "give one folder; the command of a service comes after `--`",
        ),
        _ => Ok(()),
    }
}
