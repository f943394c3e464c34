//! `ebb watch`: exports the figures of `ebb why` for Prometheus, and never ends.
//!
//! A look at the kernel's figures is cheap; the heaps are read only at first and when memory has
//! grown since. Steps of the floor are counted, and told on stderr.

mod pprof;
mod steps;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::arguments;
use crate::commands::snap;
use crate::exit::{Exit, Failure};
use crate::http::{self, Listen};
use crate::signals::Ending;
use crate::terminal;
use ebb_node::look::Observer;
use ebb_process::look::Depth;
use ebb_process::snapshot::{Process, Snapshot};
use ebb_process::target::{self, NotFound, Resolved};
use steps::Steps;

/// The heaps are read again when memory has changed by this part of what it was.
const CHANGED: f64 = 0.05;
/// Looks more often than this would do nothing else.
const LEAST_EVERY: Duration = Duration::from_millis(50);

const EXAMPLES: &str = "Examples:
  ebb watch 4711 --listen :9100                      http://HOST:9100/metrics, on all interfaces
  ebb watch nginx --listen 127.0.0.1:9100            on this machine only
  ebb watch nginx --prometheus /var/lib/node_exporter/ebb.prom";

/// The arguments of `ebb watch`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group(clap::ArgGroup::new("where").required(true).multiple(true).args(["prometheus", "listen"])))]
pub struct Args {
    #[command(flatten)]
    target: arguments::Target,

    /// Write the figures to this file, for node_exporter's textfile collector
    #[arg(long, value_name = "FILE")]
    prometheus: Option<PathBuf>,

    /// Serve the figures at http://ADDR/metrics, and heap profiles of processes on ebbmalloc at /debug/pprof/heap and
    /// allocs; :PORT listens on all interfaces
    #[arg(long, value_name = "ADDR", value_parser = http::address)]
    listen: Option<Listen>,

    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = arguments::time)]
    every: Duration,
}

/// Runs the command; ends by a signal, or where it can no longer write.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    let ending = Ending::listen()?;
    let page = Arc::new(Mutex::new(String::new()));
    let target = args.target.name();
    if let Some(address) = &args.listen {
        let profiles = pprof::serve(target.clone(), !args.target.no_children);
        http::serve(address.bind()?, http::Site { page: Arc::clone(&page), profiles: Some(profiles), token: None })?;
    }
    let mut figures = Figures::default();
    loop {
        let started = Instant::now();
        // Found anew each time: a service that was restarted has another pid.
        match target::resolve_in_one_cgroup(&target) {
            Ok(resolved) => {
                let text = figures.look(&resolved, !args.target.no_children)?;
                if let Some(path) = &args.prometheus {
                    // The collector runs as another user.
                    snap::write(path, &text, Some(0o644))?;
                }
                *page.lock().unwrap_or_else(PoisonError::into_inner) = text;
            }
            // Later it may be a restart, in which the old and the new service run for a while.
            Err(error @ NotFound::Spread { .. }) if figures.read_at.is_none() => {
                return Err(error.into());
            }
            Err(error) => terminal::warn(&error.to_string()),
        }
        if !ending.sleep_until(started + args.every.max(LEAST_EVERY)) {
            return Ok(Exit::Ok);
        }
    }
}

/// What is kept between looks.
#[derive(Debug, Default)]
struct Figures {
    observer: Observer,
    /// The processes as of the last time that their heaps were read.
    heaps: Vec<Process>,
    /// Memory at that time.
    read_at: Option<(Instant, u64)>,
    steps: Steps,
}

impl Figures {
    fn look(&mut self, resolved: &Resolved, with_children: bool) -> Result<String, Failure> {
        let mut snapshot = self.observer.look(resolved, with_children, Depth::Kernel);
        let now = memory(&snapshot);
        let changed = self.read_at.is_none_or(|(_, then)| now.abs_diff(then) as f64 > CHANGED * then as f64);
        if changed {
            snapshot = self.observer.look(resolved, with_children, Depth::Heaps);
            self.heaps = snapshot.processes.clone();
            self.read_at = Some((Instant::now(), now));
        } else {
            for process in &mut snapshot.processes {
                let known = self
                    .heaps
                    .iter()
                    .find(|known| (known.pid, known.started_ticks) == (process.pid, process.started_ticks));
                process.heap = known.and_then(|known| known.heap.clone());
                process.objects = known.and_then(|known| known.objects.clone());
            }
        }
        let age = self.read_at.map_or(0.0, |(then, _)| then.elapsed().as_secs_f64());
        let diagnosis = ebb_diagnosis::of(snapshot);
        self.steps.look(&diagnosis).iter().for_each(|line| terminal::warn(line));
        ebb_report::metrics::render(&diagnosis, age, &self.steps.figures)
            .map_err(|error| Failure::new(Exit::Internal, error.to_string()))
    }
}

fn memory(snapshot: &Snapshot) -> u64 {
    snapshot.total(|process| process.status.rss).unwrap_or(0)
}
