//! The file of `--events`: a time and a label on each line.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::exit::{Exit, Failure};
use ebb_diagnosis::facts::growth::Event;

/// Reads the events of a file, in seconds since `start`. Empty lines and those with `#` in front are left out.
pub fn read(path: &Path, start: SystemTime) -> Result<Vec<Event>, Failure> {
    let text = fs::read_to_string(path).map_err(|error| Failure::at(Exit::Usage, path, error))?;
    let start_s = start.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let mut events = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let event = parse(line).ok_or_else(|| {
            let what = format!(
                "line {number}: not a time and a label, such as 2026-11-25T19:00:00Z deploy, or seconds since 1970 and a label"
            );
            Failure::at(Exit::Usage, path, what)
        })?;
        events.push(Event { at_s: event.at_s - start_s, ..event });
    }
    Ok(events)
}

/// One line; the time is in seconds since 1970.
fn parse(line: &str) -> Option<Event> {
    let (time, label) = line.split_once(char::is_whitespace)?;
    let at_s = match time.parse::<f64>() {
        Ok(seconds) => Some(seconds).filter(|seconds| seconds.is_finite()),
        Err(_) => {
            let time = humantime::parse_rfc3339_weak(time).ok()?;
            Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs_f64())
        }
    };
    Some(Event { at_s: at_s?, label: label.trim().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_or_dates() {
        let of = |line: &str| parse(line).map(|event| (event.at_s, event.label));
        let label = |at_s: f64, label: &str| Some((at_s, label.to_owned()));
        assert_eq!(of("1764000000.5 deploy v2"), label(1_764_000_000.5, "deploy v2"));
        assert_eq!(of("2026-11-25T19:00:00Z\tGET /"), label(1_795_633_200.0, "GET /"));
        for line in ["deploy", "yesterday deploy", "NaN deploy", "2026-11-25 deploy", "1764000000"] {
            assert_eq!(of(line), None, "{line}");
        }
    }

    #[test]
    fn no_line_panics() {
        let parts =
            ["1e308", "-1e308", "9999-12-31T23:59:59Z", "0000-01-01", " ", "\t", "\u{85}", "Z", "-", "\u{feff}", "1"];
        fastrand::seed(7);
        for _ in 0..20_000 {
            let part = || parts[fastrand::usize(..parts.len())];
            let line: String = (0..fastrand::usize(..6)).map(|_| part()).collect();
            let _ = parse(&line);
        }
    }
}
