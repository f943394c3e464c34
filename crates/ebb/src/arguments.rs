//! Arguments that several commands take: times, sizes, variables.

use std::time::Duration;

use bytesize::ByteSize;

/// One target, by name or number.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Target {
    /// A pid, a process name, a unit, a container's id, or the path of a cgroup
    #[arg(value_name = "TARGET", required_unless_present = "pid", conflicts_with = "pid")]
    target: Option<String>,

    /// The target's pid
    #[arg(short, long, value_name = "PID")]
    pid: Option<u32>,

    /// Only the process itself, without its descendants
    #[arg(long)]
    pub no_children: bool,
}

impl Target {
    /// The target as text. clap has made sure that it is one of both.
    pub fn name(&self) -> String {
        let pid = || self.pid.as_ref().map(u32::to_string);
        self.target.clone().or_else(pid).unwrap_or_default()
    }
}

/// A time of an argument: `500ms`, `10s`, `5m`, `1h`, `1h 30m`. A bare number is seconds.
pub fn time(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, f64); 5] = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("", 1.0)];
    let text = text.trim();
    let seconds = UNITS.iter().find_map(|(unit, seconds)| {
        let number = text.strip_suffix(unit)?.trim_end();
        Some(number.parse::<f64>().ok()? * seconds)
    });
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .or_else(|| humantime::parse_duration(text).ok())
        .ok_or_else(|| "write a time such as 500ms, 10s, 5m or 1h; a bare number is seconds".to_owned())
}

/// Bytes of an argument, as Kubernetes has them.
pub fn size(text: &str) -> Result<u64, String> {
    match text.parse::<ByteSize>() {
        Ok(size) => Ok(size.as_u64()),
        Err(_) => Err("write a size such as 16MB (10^6 bytes) or 512Mi (2^20 bytes)".to_owned()),
    }
}

/// A variable of an argument.
pub fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("not KEY=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    #[test]
    fn a_bare_number_is_seconds_and_units_are_taken() {
        for (text, ms) in [
            ("1", 1_000),
            ("0.5", 500),
            ("1s", 1_000),
            ("250ms", 250),
            ("1.5 s", 1_500),
            ("2m", 120_000),
            ("2min", 120_000),
            ("1h", 3_600_000),
            ("1h 30m", 5_400_000),
            ("0", 0),
        ] {
            assert_eq!(super::time(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "-1", "1x", "ten", "inf", "nan", "1e300h"] {
            assert!(super::time(text).is_err(), "{text}");
        }
    }
}
