//! Parsers for the output of load tools (oha, wrk, k6 and others): throughput and latency.
//!
//! Used by `load` if the last line is not a summary in the format of `ebb burst`. A tool is recognised by its output, not
//! by its program name, because tools also run in shells and containers. The tests use the output of real runs
//! (`recorded`; the file names have the tools' versions). Pure. A missing figure is `None`.

mod oha;
mod plain;
mod scripted;
mod words;

use crate::results::LoadResult;

/// Parses the output of one tool; `None` if another program wrote it.
type Reader = fn(&str) -> Option<LoadResult>;

/// All parsers, in the order in which they are tried.
const READERS: [(&str, Reader); 6] = [
    ("oha", oha::read),
    ("wrk", plain::wrk),
    ("k6", scripted::k6),
    ("locust", scripted::locust),
    ("hey", plain::hey),
    ("ab", plain::ab),
];

/// The names of the tools, for messages.
pub fn names() -> String {
    READERS.map(|(name, _)| name).join(", ")
}

/// Finds the summary of a known tool in the output of a load.
pub fn read(output: &str) -> Option<LoadResult> {
    READERS.iter().find_map(|(name, reader)| {
        let load = reader(output).filter(|load| load.seconds.is_finite() && load.seconds > 0.0)?;
        Some(LoadResult { tool: Some((*name).to_owned()), ..load })
    })
}

#[cfg(test)]
mod tests;
