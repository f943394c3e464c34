//! The flags that stand for a workload file: `--load`, `--ready`, `-- COMMAND` and their kin.

use super::image::Requested;
use crate::arguments;
use crate::exit::{Exit, Failure};
use crate::terminal;
use ebb_trial::sketch::Sketch;
use ebb_trial::workload::Workload;
use std::path::PathBuf;
use std::time::Duration;

/// Longer than the ten seconds after which a jemalloc without settings has returned what is dirty, so
/// that the rest shows what an allocator keeps and not what it has not come to.
const REST: Duration = Duration::from_secs(15);
/// Load, rest, load again, rest: what the second load finds tells more than the first.
const CYCLES: u32 = 2;

/// A service of the user's own.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "A service without a workload file")]
pub struct Args {
    /// Command that drives the service, in one argument: 'oha -z 20s http://localhost:8000/'. The
    /// summaries of oha, wrk, k6, locust, hey and ab are read.
    #[arg(long, value_name = "COMMAND")]
    load: Option<String>,

    /// Drive the service with bursts of requests; the arguments of ebb burst:
    /// 'http://localhost:8000/report -c 32 -n 400'.
    #[arg(long, value_name = "ARGUMENTS", conflicts_with = "load")]
    burst: Option<String>,

    /// How to detect that the service is ready: http://... (any 2xx), HOST:PORT, or line:REGEX of its
    /// output. Default: a connection to the first address of the load.
    #[arg(long, value_name = "URL")]
    ready: Option<String>,

    /// Command that runs before the first load. Default: 20 requests to the http:// address of --ready.
    #[arg(long, value_name = "COMMAND")]
    warm_up: Option<String>,

    /// Rest after each load. Default: 15s.
    #[arg(long, value_name = "TIME", value_parser = arguments::time)]
    rest: Option<Duration>,

    /// Number of cycles of load and rest. Default: 2.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    cycles: Option<u32>,

    /// Print the equivalent workload file, and run nothing.
    #[arg(long)]
    print_workload: bool,

    /// The service's command. {port} is a free port for each run and {dir} an empty folder; other braces are
    /// literal.
    #[arg(last = true, value_name = "SERVICE")]
    service: Vec<String>,
}

impl Args {
    pub fn has_service(&self) -> bool {
        !self.service.is_empty()
    }

    /// A flag, or `--`, that was given and is about a service of the user's own.
    pub fn flag(&self) -> Option<&'static str> {
        let flags = [
            ("--load", self.load.is_some()),
            ("--burst", self.burst.is_some()),
            ("--ready", self.ready.is_some()),
            ("--warm-up", self.warm_up.is_some()),
            ("--rest", self.rest.is_some()),
            ("--cycles", self.cycles.is_some()),
            ("--print-workload", self.print_workload),
            ("--", self.has_service()),
        ];
        flags.into_iter().find_map(|(name, is_given)| is_given.then_some(name))
    }

    /// The workload that the flags stand for; `None` where there are none.
    pub fn workload(&self, image: Option<&Requested>) -> Result<Option<Workload>, Failure> {
        if self.service.is_empty() && image.is_none() {
            return Ok(None);
        }
        let dir = std::env::current_dir()?;
        let workload = Workload::from_text(&self.text(image)?, dir);
        workload.map(Some).map_err(|error| Failure::usage(error.to_string()))
    }

    /// Prints the file if only that was requested.
    pub fn print(&self, image: Option<&Requested>) -> Result<Option<Exit>, Failure> {
        if !self.print_workload || !(self.has_service() || image.is_some()) {
            return Ok(None);
        }
        terminal::print(&self.text(image)?)?;
        Ok(Some(Exit::Ok))
    }

    fn text(&self, image: Option<&Requested>) -> Result<String, Failure> {
        let usage = |message: String| Failure::usage(message);
        let (load_name, load) = match (&self.load, &self.burst) {
            (Some(load), _) => ("load", words("--load", load)?),
            (None, Some(burst)) => {
                let own = ["ebb", "burst"].map(str::to_owned);
                ("burst", own.into_iter().chain(words("--burst", burst)?).collect())
            }
            (None, None) => {
                return Err(usage("no load is given".into()).remedy(
                    "give --load 'COMMAND', or --burst 'http://localhost:PORT/PATH' for the generator of ebb",
                ));
            }
        };
        let sketch = Sketch {
            service: match image {
                Some(image) if self.service.is_empty() => image.arguments.clone(),
                _ => self.service.clone(),
            },
            image: image.map(|image| image.image.clone()),
            ready: self.ready.clone(),
            load,
            load_name,
            warm_up: self.warm_up.as_ref().map(|text| words("--warm-up", text)).transpose()?,
            rest_s: self.rest.unwrap_or(REST).as_secs_f64(),
            cycles: self.cycles.unwrap_or(CYCLES),
        };
        sketch.to_toml().map_err(usage)
    }
}

/// A command in one argument, split as a shell does; nothing is expanded.
fn words(flag: &str, text: &str) -> Result<Vec<String>, Failure> {
    let words = shlex::split(text).filter(|words| !words.is_empty());
    words.ok_or_else(|| Failure::usage(format!("{flag} {text}: not a command (a quote may be open)")))
}

/// Refuses a command line that names no service, or two, with the ways there are.
pub(super) fn check(workload: &[PathBuf], sketch: &Args, has_image: bool) -> Result<(), Failure> {
    let usage = |what: String, remedy: &str| Err(Failure::usage(what).remedy(remedy));
    let words: Vec<String> = workload.iter().map(|word| word.display().to_string()).collect();
    let has_service = sketch.has_service();
    if has_image {
        return match (sketch.flag(), words.as_slice()) {
            (Some(flag), [word, ..]) => usage(
                format!("{flag} cannot be used with the workload {word}"),
                "leave out one of them; the arguments of an image come after `--`",
            ),
            (None, [_, _, ..]) => usage(
                format!("there are {} workloads: {}", words.len(), words.join(" ")),
                "give one folder; the arguments of an image come after `--`",
            ),
            _ => Ok(()),
        };
    }
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
