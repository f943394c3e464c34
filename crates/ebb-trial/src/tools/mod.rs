//! Load tools that people have: what each prints at its end, read for throughput and latency.
//!
//! Used by `load` where the last line is no summary of ours. A summary is recognised by its text and not by
//! the program's name, since tools run in shells and containers. Each reader is tried on what real runs
//! of its tool printed (`tests/fixtures/tools`, the name has the version). Pure; what is not there is `None`.

mod oha;
mod plain;
mod scripted;
mod words;

use crate::results::LoadResult;

/// Reads what a tool wrote; `None` where it is not that tool's.
type Reader = fn(&str) -> Option<LoadResult>;

/// All of them, in the order in which they are tried.
const READERS: [(&str, Reader); 6] = [
    ("oha", oha::read),
    ("wrk", plain::wrk),
    ("k6", scripted::k6),
    ("locust", scripted::locust),
    ("hey", plain::hey),
    ("ab", plain::ab),
];

/// The names, for messages.
pub fn names() -> String {
    READERS.map(|(name, _)| name).join(", ")
}

/// Reads the summary of any known tool in what a load wrote, errors included.
pub fn read(output: &str) -> Option<LoadResult> {
    READERS.iter().find_map(|(name, reader)| {
        let load = reader(output).filter(|load| load.seconds.is_finite() && load.seconds > 0.0)?;
        Some(LoadResult { tool: Some((*name).to_owned()), ..load })
    })
}

#[cfg(test)]
mod tests;
