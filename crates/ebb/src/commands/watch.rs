//! `ebb watch`: exports the figures of `ebb why` for Prometheus, and never ends.
//!
//! A look at the kernel's figures is cheap; the heaps are read only at first and when memory has
//! grown since. Steps of the floor are counted, and told on stderr.

mod pprof;
mod steps;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::arguments;
use crate::commands::snap;
use crate::exit::{Exit, Failure};
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
    #[arg(long, value_name = "ADDR", value_parser = address)]
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
        serve(address, Arc::clone(&page), profiles)?;
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
        let changed =
            self.read_at.is_none_or(|(_, then)| now.abs_diff(then) as f64 > CHANGED * then as f64);
        if changed {
            snapshot = self.observer.look(resolved, with_children, Depth::Heaps);
            self.heaps = snapshot.processes.clone();
            self.read_at = Some((Instant::now(), now));
        } else {
            for process in &mut snapshot.processes {
                let known = self.heaps.iter().find(|known| {
                    (known.pid, known.started_ticks) == (process.pid, process.started_ticks)
                });
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

/// Addresses to listen on: the first free one is used.
#[derive(Clone, Debug)]
struct Listen(Vec<SocketAddr>);

/// `HOST:PORT`, or `:PORT` for all interfaces, as Prometheus' own programs have it.
fn address(text: &str) -> Result<Listen, String> {
    let all = text.strip_prefix(':').map(|port| port.parse::<u16>());
    let addresses: Vec<SocketAddr> = match all {
        Some(port) => {
            let port = port.map_err(|error| format!("{error}: write :PORT or HOST:PORT"))?;
            // The first takes both protocols, and is not there where IPv6 is switched off.
            vec![(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()]
        }
        None => text
            .to_socket_addrs()
            .map_err(|error| format!("{error}: write :PORT or HOST:PORT"))?
            .collect(),
    };
    Ok(Listen(addresses))
}

/// Answers on a thread of its own; says where, because the port may have been 0.
fn serve(
    address: &Listen,
    page: Arc<Mutex<String>>,
    profiles: Sender<tiny_http::Request>,
) -> Result<(), Failure> {
    let server = tiny_http::Server::http(address.0.as_slice()).map_err(|error| {
        let address = address.0.first().map_or_else(String::new, SocketAddr::to_string);
        Failure::usage(format!("{address}: {error}"))
    })?;
    terminal::warn(&format!("listening on http://{}/metrics", server.server_addr()));
    std::thread::spawn(move || {
        for request in server.incoming_requests() {
            if request.url().starts_with("/debug/pprof/") {
                // A thread that is gone has nothing to say.
                let _ = profiles.send(request);
                continue;
            }
            let (status, text) = match request.url() {
                "/metrics" => (200, page.lock().unwrap_or_else(PoisonError::into_inner).clone()),
                _ => (
                    404,
                    "the figures are at /metrics, heap profiles at /debug/pprof/heap\n".to_owned(),
                ),
            };
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            let header = tiny_http::Header::from_bytes("Content-Type", kind);
            let mut response = tiny_http::Response::from_string(text).with_status_code(status);
            if let Ok(header) = header {
                response.add_header(header);
            }
            // A client that went away is not ours to mend.
            let _ = request.respond(response);
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_all_interfaces_and_a_host_may_have_a_name() {
        let of = |text: &str| -> Vec<String> {
            let Listen(all) = address(text).unwrap();
            all.iter().map(SocketAddr::to_string).collect()
        };
        assert_eq!(of(":9100"), ["[::]:9100", "0.0.0.0:9100"]);
        assert_eq!(of("127.0.0.1:0"), ["127.0.0.1:0"]);
        assert!(of("localhost:9100").iter().all(|it| it.ends_with(":9100")));
        for text in ["9100", ":", ":99999", "127.0.0.1"] {
            let error = address(text).unwrap_err();
            assert!(error.contains("write :PORT or HOST:PORT"), "{error}");
        }
    }
}
