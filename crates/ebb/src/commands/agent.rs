//! `ebb agent`: exports figures of every container, unit and process of this machine for Prometheus, within a budget, and never ends.
//!
//! docs/metrics.md has the series. `rights` finds missing rights, and drops rights that an agent does not need.
//! `sandbox` refuses system calls that an agent never makes.

mod rights;
mod sandbox;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use procfs::process::Process;

use crate::arguments;
use crate::exit::{Exit, Failure};
use crate::http::{self, Listen, Site};
use crate::signals::Ending;
use crate::terminal::warn;
use ebb_node::{Clock, Next, Node, Options, Subject};
use ebb_report::metrics::node::{LookSeconds, Own, render};

/// Ticks more often than this would do nothing else.
const LEAST_EVERY: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "Examples:
  ebb agent --listen :9101                       http://HOST:9101/metrics, on all interfaces
  ebb agent --listen :9101 --token /etc/ebb/token   scrapes have to bring the token
  ebb agent --budget 2% --every 30s";

/// The arguments of `ebb agent`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Serve the figures at http://ADDR/metrics; :PORT listens on all interfaces
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9101", value_parser = http::address)]
    listen: Listen,

    /// Time between two readings of the cheap figures
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = arguments::time)]
    every: Duration,

    /// The most processor time, as a share of one core
    #[arg(long, value_name = "SHARE", default_value = "0.5%", value_parser = share)]
    budget: f64,

    /// Memory above which the agent gives free memory back and says so
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = arguments::size)]
    memory: u64,

    /// Answer only requests with `Authorization: Bearer` and the first line of this file
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,

    /// Where the cgroups of the machine are mounted, if this is a container that has them elsewhere
    #[arg(long, value_name = "DIR")]
    cgroups: Option<PathBuf>,
}

/// Runs the command; ends by a signal.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    let token = args.token.as_deref().map(token).transpose()?;
    let ending = Ending::listen()?;
    let missing = rights::missing(args.cgroups.as_deref());
    for right in &missing {
        warn(&format!("no {}: {}", right.name, right.costs));
    }
    let listener = args.listen.bind()?;
    // Threads take over what this one has given up.
    rights::give_up()?;
    sandbox::enter()?;
    let page = Arc::new(Mutex::new(String::new()));
    let options = Options { budget: args.budget, cgroups: args.cgroups.clone() };
    let mut agent = Agent {
        node: Node::new(options),
        look_seconds: LookSeconds::default(),
        missing: missing.iter().map(|right| right.name).collect(),
        page: Arc::clone(&page),
    };
    // The first answer has figures.
    agent.node.tick(&Clock::now());
    agent.publish()?;
    http::serve(listener, Site { page, profiles: None, token })?;
    let mut was_large = false;
    loop {
        let started = Instant::now();
        let every = args.every.max(LEAST_EVERY);
        agent.node.tick(&Clock::now());
        agent.publish()?;
        if agent.looks(started + every, &ending) {
            agent.publish()?;
        }
        let is_large = give_back(args.memory) > args.memory;
        if is_large && !was_large {
            warn("the agent has more memory than --memory: raise it, or look at fewer processes");
        }
        was_large = is_large;
        if !ending.sleep_until(started + every) {
            return Ok(Exit::Ok);
        }
    }
}

struct Agent {
    node: Node,
    look_seconds: LookSeconds,
    missing: Vec<&'static str>,
    page: Arc<Mutex<String>>,
}

impl Agent {
    /// Looks at what is due until the next tick; whether there was a look.
    fn looks(&mut self, until: Instant, ending: &Ending) -> bool {
        let mut looked = false;
        while Instant::now() < until && ending.sleep_until(Instant::now()) {
            let Next::Look(key) = self.node.next(&Clock::now()) else { break };
            let began = Instant::now();
            // The node counts what failed.
            let _ = self.node.look(&Subject::Process(key));
            self.look_seconds.observe(began.elapsed().as_secs_f64());
            looked = true;
        }
        looked
    }

    fn publish(&self) -> Result<(), Failure> {
        let now = Clock::now();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let own = Own {
            version: env!("CARGO_PKG_VERSION"),
            cpu_s: now.cpu.as_secs_f64(),
            resident_bytes: resident_bytes(),
            missing_rights: self.missing.clone(),
            epoch_s: since_1970.as_secs_f64() - now.at.as_secs_f64(),
            look_seconds: self.look_seconds.clone(),
        };
        let text = render(&self.node, &own).map_err(|error| Failure::new(Exit::Internal, error.to_string()))?;
        *self.page.lock().unwrap_or_else(PoisonError::into_inner) = text;
        Ok(())
    }
}

fn resident_bytes() -> u64 {
    let own = Process::myself().and_then(|own| own.stat());
    own.map_or(0, |stat| stat.rss * procfs::page_size())
}

/// Returns free memory above half of `limit`; its result is the memory after that.
fn give_back(limit: u64) -> u64 {
    #[cfg(target_env = "gnu")]
    if resident_bytes() > limit / 2 {
        // SAFETY: it takes any number, and only returns free memory of the process's own heap.
        unsafe { libc::malloc_trim(0) };
    }
    let _ = limit;
    resident_bytes()
}

/// The first line of a file that only the right people can read.
fn token(path: &Path) -> Result<String, Failure> {
    let text = fs::read_to_string(path).map_err(|error| Failure::at(Exit::Usage, path, error))?;
    let token = text.lines().next().unwrap_or_default().trim();
    if token.is_empty() {
        return Err(Failure::at(Exit::Usage, path, "its first line, the token, is empty"));
    }
    Ok(token.to_owned())
}

/// `0.5%`, or `0.005`.
fn share(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.strip_suffix('%') {
        Some(number) => (number, 0.01),
        None => (text, 1.0),
    };
    let share = number.trim().parse::<f64>().ok().map(|number| number * unit);
    share
        .filter(|share| (1e-5..=1.0).contains(share))
        .ok_or_else(|| "write a share of one core such as 0.5%, at most 100%".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_a_share_of_one_core() {
        assert_eq!(share("0.5%"), Ok(0.005));
        assert_eq!(share("0.02"), Ok(0.02));
        for text in ["0", "-1%", "101%", "", "%", "nan", "1 core"] {
            assert!(share(text).is_err(), "{text}");
        }
    }
}
