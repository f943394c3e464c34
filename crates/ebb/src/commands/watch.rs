//! `ebb watch`: exports the figures of `ebb why` for Prometheus, and never ends.
//!
//! A look at the kernel's figures is cheap; the heaps are read only at first and when memory has
//! grown since.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::cli;
use crate::commands::why::{Depth, Ending, Observer, find};
use crate::exit::{Exit, Failure};
use crate::facts::snapshot::{Process, Snapshot};
use crate::proc::target::Resolved;
use crate::report;
use crate::verdict;

/// The heaps are read again when memory has changed by this part of what it was.
const CHANGED: f64 = 0.05;

/// The arguments of `ebb watch`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A pid, a process name, a unit, a container's id, or the path of a cgroup
    #[arg(value_name = "TARGET")]
    target: String,

    /// Only the process itself, without its descendants
    #[arg(long)]
    no_children: bool,

    /// Write the figures to this file, for node_exporter's textfile collector
    #[arg(long, value_name = "FILE", required_unless_present = "listen")]
    prometheus: Option<PathBuf>,

    /// Serve them at http://ADDR/metrics
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,

    /// How often to look
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = humantime::parse_duration)]
    every: Duration,
}

/// Runs the command; ends by a signal, or where it can no longer write.
pub fn execute(args: &Args) -> Result<ExitCode, Failure> {
    let ending = Ending::listen()?;
    let page = Arc::new(Mutex::new(String::new()));
    if let Some(address) = args.listen {
        serve(address, Arc::clone(&page))?;
    }
    let mut figures = Figures::default();
    loop {
        let started = Instant::now();
        // Found anew each time: a service that was restarted has another pid.
        match find(std::slice::from_ref(&args.target)) {
            Ok(found) => {
                if let Some(resolved) = found.first() {
                    let text = figures.look(resolved, !args.no_children)?;
                    if let Some(path) = &args.prometheus {
                        replace(path, &text)?;
                    }
                    *page.lock().unwrap_or_else(PoisonError::into_inner) = text;
                }
            }
            Err(failure) => cli::warn(&failure.to_string()),
        }
        if !ending.sleep_until(started + args.every) {
            return Ok(Exit::Ok.into());
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
}

impl Figures {
    fn look(&mut self, resolved: &Resolved, with_children: bool) -> Result<String, Failure> {
        let mut snapshot = self.observer.look(resolved, with_children, Depth::Kernel);
        let now = memory(&snapshot);
        let changed = self
            .read_at
            .is_none_or(|(_, then)| now.abs_diff(then) as f64 > CHANGED * then as f64);
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
        let age = self
            .read_at
            .map_or(0.0, |(then, _)| then.elapsed().as_secs_f64());
        report::metrics::render(&verdict::of(snapshot), age)
            .map_err(|error| Failure::new(Exit::Internal, error.to_string()))
    }
}

fn memory(snapshot: &Snapshot) -> u64 {
    snapshot.total(|process| process.status.rss).unwrap_or(0)
}

/// Readers see the old file or the new one, never a part.
fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let at =
        |error: std::io::Error| Failure::new(Exit::Usage, format!("{}: {error}", path.display()));
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(at)?;
    file.write_all(text.as_bytes()).map_err(at)?;
    // The collector runs as another user.
    use std::os::unix::fs::PermissionsExt;
    file.as_file()
        .set_permissions(std::fs::Permissions::from_mode(0o644))
        .map_err(at)?;
    file.persist(path).map_err(|error| at(error.error))?;
    Ok(())
}

/// Answers on a thread of its own; says where, because the port may have been 0.
fn serve(address: SocketAddr, page: Arc<Mutex<String>>) -> Result<(), Failure> {
    let server = tiny_http::Server::http(address)
        .map_err(|error| Failure::new(Exit::Usage, format!("{address}: {error}")))?;
    cli::warn(&format!(
        "listening on http://{}/metrics",
        server.server_addr()
    ));
    std::thread::spawn(move || {
        for request in server.incoming_requests() {
            let (status, text) = match request.url() {
                "/metrics" => (
                    200,
                    page.lock().unwrap_or_else(PoisonError::into_inner).clone(),
                ),
                _ => (404, "the figures are at /metrics\n".to_owned()),
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
