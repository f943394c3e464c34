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
mod tests {
    use super::words::millis;
    use super::*;

    /// A recorded output: what lies between its heading, `== NAME ==`, and the next one.
    fn recorded(name: &str) -> &'static str {
        let all = include_str!("recorded.cases").split("== ");
        let found = all.filter_map(|it| it.split_once(" ==\n")).find(|(heading, _)| *heading == name);
        found.unwrap_or_else(|| panic!("{name} is not recorded")).1
    }

    /// File, tool, requests, errors, seconds, p50, p99.
    type Expected = (&'static str, &'static str, u64, u64, f64, Option<f64>, Option<f64>);

    const RECORDED: [Expected; 18] = [
        ("wrk-4.1.0-latency.txt", "wrk", 506, 0, 3.03, Some(47.18), Some(91.64)),
        ("wrk-4.1.0.txt", "wrk", 488, 26, 3.02, None, None),
        ("hey-0.1.4.txt", "hey", 504, 0, 3.0252, Some(47.6), Some(96.6)),
        ("hey-0.1.4-errors.txt", "hey", 190, 10, 1.299, Some(46.8), Some(104.0)),
        ("hey-0.1.4-nobody.txt", "hey", 0, 16, 0.003, None, None),
        ("ab-2.3.txt", "ab", 500, 0, 0.582, Some(5.0), Some(59.0)),
        ("ab-2.3-errors.txt", "ab", 475, 25, 1.053, Some(8.0), Some(73.0)),
        ("locust-2.47.0.txt", "locust", 456, 5, 461.0 / 135.73, Some(53.0), Some(130.0)),
        ("locust-2.47.0-json.txt", "locust", 424, 8, 3.2965, Some(56.0), Some(146.8)),
        ("k6-1.8.1.txt", "k6", 478, 12, 490.0 / 158.180425, Some(46.66), None),
        ("k6-1.8.1-p99.txt", "k6", 450, 12, 462.0 / 147.670841, Some(50.14), Some(97.59)),
        ("k6-1.8.1-export.json", "k6", 450, 12, 462.0 / 147.67084, Some(50.142762), Some(97.6)),
        ("oha-1.16.0.txt", "oha", 400, 0, 1.5024, Some(21.44), Some(201.3)),
        ("oha-1.16.0.json", "oha", 320, 0, 2.0022, Some(21.1), Some(200.83)),
        ("oha-1.16.0-errors.txt", "oha", 547, 23 + 15, 3.0021, Some(27.32), Some(205.25)),
        ("oha-1.16.0-errors.json", "oha", 385, 15, 1.7501, Some(21.588), Some(477.909)),
        ("oha-1.16.0-nobody.txt", "oha", 0, 20, 0.001578957, None, None),
        ("oha-1.16.0-nobody.json", "oha", 0, 20, 0.00155919, None, None),
    ];

    #[test]
    fn every_recorded_summary_is_read() {
        for (file, tool, requests, errors, seconds, p50, p99) in RECORDED {
            let load = read(recorded(file)).unwrap_or_else(|| panic!("{file} is not read"));
            assert_eq!(load.tool.as_deref(), Some(tool), "{file}");
            assert_eq!((load.requests, load.errors), (requests, errors), "{file}");
            let near = |seen: f64, expected: f64| (seen - expected).abs() <= expected * 0.02;
            assert!(near(load.seconds, seconds), "{file}: {} s", load.seconds);
            let seen = load.latency_ms;
            assert_eq!(seen.is_some(), p50.is_some(), "{file}: {seen:?}");
            for (seen, expected) in
                [(seen.map(|quantiles| quantiles.p50), p50), (seen.and_then(|quantiles| quantiles.p99), p99)]
            {
                assert_eq!(seen.is_some(), expected.is_some(), "{file}: {seen:?}");
                if let (Some(seen), Some(expected)) = (seen, expected) {
                    assert!(near(seen, expected), "{file}: {seen} ms, not {expected}");
                }
            }
        }
    }

    #[test]
    fn each_summary_is_one_readers_only() {
        for (file, tool, ..) in RECORDED {
            let text = recorded(file);
            let readers: Vec<&str> =
                READERS.iter().filter(|(_, reader)| reader(text).is_some()).map(|(name, _)| *name).collect();
            assert_eq!(readers, [tool], "{file}");
        }
    }

    #[test]
    fn a_summary_cut_off_anywhere_is_not_read_as_another_number() {
        for (file, ..) in RECORDED {
            let text = recorded(file);
            let whole = read(text).unwrap();
            for (at, _) in text.char_indices().rev().step_by(7) {
                // Never a panic; and where it is read, with all its requests or with fewer.
                if let Some(load) = read(&text[..at]) {
                    assert!(load.requests + load.errors <= whole.requests + whole.errors, "{file} at {at}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_summary_is_nobodys() {
        for text in ["", "done\n", "{\"requests\": 3}", "Requests/sec: many\n 3 requests in a row"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn lengths_of_time_are_read_in_every_unit() {
        for (text, expected) in [
            ("612.34µs", Some(0.61234)),
            ("5us", Some(0.005)),
            ("47.18ms", Some(47.18)),
            ("1m3.2s", Some(63_200.0)),
            ("3.03s", Some(3030.0)),
            ("1h", Some(3_600_000.0)),
            ("", None),
            ("12", None),
            ("5 parsecs", None),
            ("ms", None),
        ] {
            match (millis(text), expected) {
                (Some(seen), Some(expected)) => {
                    assert!((seen - expected).abs() < 1e-6, "{text}: {seen}")
                }
                (seen, expected) => assert_eq!(seen, expected, "{text}"),
            }
        }
    }

    /// Too long a run to record one: the units are those of oha's `printer.rs`.
    #[test]
    fn a_long_run_of_oha_counts_in_tens_of_minutes() {
        let text = recorded("oha-1.16.0.txt");
        let long = text.replace("1502.4302 ms", "12.5000 10 min");
        assert_ne!(long, text);
        assert_eq!(read(&long).unwrap().seconds, 7500.0);
    }
}
