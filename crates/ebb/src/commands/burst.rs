//! `ebb burst URL...`: sends requests to a service on this machine and prints the results.
//!
//! For services whose owner has no load tool. `docs/workload.md` is its manual.

use std::path::PathBuf;
use std::time::Duration;

use ureq::http;

use crate::arguments;
use crate::burst::tally::Tally;
use crate::burst::{Plan, Until, drive};
use crate::exit::{Exit, Failure};
use crate::terminal;
use ebb_report::figures;

/// Length of a burst where the command line does not say.
const LENGTH: Duration = Duration::from_secs(10);
/// Reasons of failures that are named.
const MOST_REASONS: usize = 5;

const EXAMPLES: &str = "Examples:
  ebb burst http://localhost:8000/report -c 32 -n 400
  ebb burst http://localhost:8000/ -z 30s --rate 100            100 requests per second
  ebb burst http://localhost:8000/a http://localhost:8000/b     in turn";

/// Send a burst of HTTP requests to a service and print throughput and latency.
///
/// The last line on stdout is the summary that ebb compare reads. Without --rate the loop is closed: each
/// connection sends its next request when the last one was answered. With --rate requests are due at fixed times,
/// and latency counts from the due time, so that a slow service cannot hide it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Addresses, requested in turn: http://HOST[:PORT]/PATH
    #[arg(required = true, value_name = "URL")]
    urls: Vec<String>,

    /// Connections at the same time.
    #[arg(short, long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=4096))]
    concurrency: u32,

    /// Send this many requests.
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "duration", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,

    /// Send for this long, such as 20s. Default: 10s.
    #[arg(short = 'z', long, value_name = "TIME", value_parser = arguments::time)]
    duration: Option<Duration>,

    /// Requests per second, independent of the service's speed.
    #[arg(long, value_name = "N", value_parser = rate)]
    rate: Option<f64>,

    /// Method. Default: GET, or POST if there is a body.
    #[arg(short = 'X', long, value_name = "NAME")]
    method: Option<String>,

    /// File to send as the body of each request.
    #[arg(long, value_name = "FILE")]
    body: Option<PathBuf>,

    /// Header of each request; may be repeated.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,

    /// Time limit of one request.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = arguments::time)]
    timeout: Duration,

    /// Print the summary as JSON only.
    #[arg(long)]
    json: bool,
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(rate),
        _ => Err("it is not a number above 0".into()),
    }
}

/// Sends it and returns the outcome.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    let plan = plan(args)?;
    let (tally, seconds) = drive::drive(&plan);
    let mut summary = tally.summary(seconds, format!("ebb burst, {}", plan.loop_name()));
    // Paced, as many are under way as the service lets wait.
    summary.concurrency = plan.rate.is_none().then_some(f64::from(plan.concurrency));
    for (reason, count) in tally.reasons().into_iter().take(MOST_REASONS) {
        terminal::warn(&format!("failed {count} times: {reason}"));
    }
    if summary.requests == 0 {
        let what = format!("none of {} requests was answered", summary.errors);
        return Err(
            Failure::new(Exit::NotEnoughEvidence, what).remedy("the lines above show why; is the service running?")
        );
    }
    if !args.json {
        terminal::print(&words(&plan, &tally, summary.requests, summary.errors, seconds))?;
    }
    terminal::print_json(&summary, false)?;
    Ok(Exit::Ok)
}

fn words(plan: &Plan, tally: &Tally, requests: u64, errors: u64, seconds: f64) -> String {
    let quantiles = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("highest", 1.0)];
    let latencies: Vec<String> = quantiles
        .iter()
        .filter_map(|(name, quantile)| Some(format!("{name} {:.1} ms", tally.quantile_ms(*quantile)?)))
        .collect();
    format!(
        "{requests} requests answered and {errors} failed in {}: {:.1} per second ({}, {} connections)\nlatency: {}\n",
        figures::duration(seconds),
        requests as f64 / seconds,
        plan.loop_name(),
        plan.concurrency,
        latencies.join(", ")
    )
}

fn plan(args: &Args) -> Result<Plan, Failure> {
    let read = |path: &PathBuf| std::fs::read(path).map_err(|error| Failure::at(Exit::Usage, path, error));
    let body = args.body.as_ref().map(read).transpose()?;
    let method = match (&args.method, &body) {
        (Some(name), _) => http::Method::from_bytes(name.as_bytes())
            .map_err(|_| Failure::usage(format!("--method {name}: not a method")))?,
        (None, Some(_)) => http::Method::POST,
        (None, None) => http::Method::GET,
    };
    Ok(Plan {
        urls: args.urls.iter().map(|url| address(url)).collect::<Result<_, _>>()?,
        headers: args.headers.iter().map(|text| header(text)).collect::<Result<_, _>>()?,
        method,
        body,
        concurrency: args.concurrency,
        until: match (args.requests, args.duration) {
            (Some(requests), _) => Until::Requests(requests),
            (None, length) => Until::Elapsed(length.unwrap_or(LENGTH)),
        },
        rate: args.rate,
        timeout: args.timeout,
    })
}

fn address(text: &str) -> Result<http::Uri, Failure> {
    let url: Result<http::Uri, _> = text.parse();
    match url {
        Ok(url) if url.scheme_str() == Some("http") && url.host().is_some() => Ok(url),
        Ok(url) if url.scheme_str() == Some("https") => {
            Err(Failure::usage(format!("{text}: ebb burst does not support TLS"))
                .remedy("use the service's plain HTTP address on this machine, or a load tool"))
        }
        _ => Err(Failure::usage(format!("{text}: not http://HOST[:PORT]/PATH"))),
    }
}

fn header(text: &str) -> Result<(http::HeaderName, http::HeaderValue), Failure> {
    let parsed = text.split_once(':').and_then(|(name, value)| {
        let name = http::HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
        Some((name, http::HeaderValue::from_str(value.trim()).ok()?))
    });
    parsed.ok_or_else(|| Failure::usage(format!("--header {text}: not NAME: VALUE")))
}
