//! `/debug/pprof/heap` and `/debug/pprof/allocs`: heap profiles for what scrapes them (Pyroscope, Parca, `go tool pprof`).
//!
//! The profile begins with the first request, so that nothing is asked of a process that no one profiles, and ends when
//! none has come for [`IDLE`]. One thread owns the sessions.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use tiny_http::{Header, Request, Response};

use crate::commands::profile::{DEFAULT_LG, looks, named};
use ebb_process::counters::Counters;
use ebb_process::pprof;
use ebb_process::profile::{EVERY, Session};
use ebb_process::target;

/// Scrapers come every 15 s to every minute.
const IDLE: Duration = Duration::from_secs(300);
/// A process that allocates anything answers sooner.
const PATIENCE: Duration = Duration::from_secs(2);

/// Starts the thread, which answers what it is sent.
pub(super) fn serve(target: String, with_children: bool) -> Sender<Request> {
    let (sender, requests) = channel();
    std::thread::spawn(move || answer(&target, with_children, &requests));
    sender
}

fn answer(target: &str, with_children: bool, requests: &Receiver<Request>) {
    let mut sessions: Vec<(i32, Session)> = Vec::new();
    let mut last = Instant::now();
    loop {
        match requests.recv_timeout(EVERY) {
            Ok(request) => {
                last = Instant::now();
                let is_of_all = request.url().contains("/allocs");
                let known = request.url().split('?').next().unwrap_or_default();
                let reply = match known {
                    "/debug/pprof/heap" | "/debug/pprof/allocs" => {
                        profile(target, with_children, &mut sessions, is_of_all)
                    }
                    _ => Err("there are /debug/pprof/heap and /debug/pprof/allocs\n".to_owned()),
                };
                // A client that went away is not ours to mend.
                let _ = match reply {
                    Ok(bytes) => {
                        let mut response = Response::from_data(bytes);
                        let kind = Header::from_bytes("Content-Type", "application/octet-stream");
                        kind.into_iter().for_each(|header| response.add_header(header));
                        request.respond(response)
                    }
                    Err(why) => request.respond(Response::from_string(why).with_status_code(404)),
                };
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if last.elapsed() > IDLE {
            sessions.drain(..).for_each(|(_, session)| session.end());
        }
        // One that fails has ended, and may be another process by now.
        sessions.retain_mut(|(_, session)| session.renew().is_ok());
    }
}

/// The file; or why there is none.
fn profile(
    name: &str,
    with_children: bool,
    sessions: &mut Vec<(i32, Session)>,
    is_of_all: bool,
) -> Result<Vec<u8>, String> {
    let resolved = target::resolve_in_one_cgroup(name).map_err(|error| format!("{error}\n"))?;
    let counters = Counters::default();
    let mut refused = None;
    for pid in target::processes(&resolved, with_children && resolved.cgroup.is_none()) {
        if sessions.iter().any(|(known, _)| *known == pid) {
            continue;
        }
        match Session::begin(pid, &counters, DEFAULT_LG, true) {
            Ok(session) => sessions.push((pid, session)),
            Err(why) => refused = Some(format!("{name}: process {pid}: {why}\n")),
        }
    }
    let until = Instant::now() + PATIENCE;
    while sessions.iter().all(|(_, it)| !it.is_answered().unwrap_or(false)) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    match looks(sessions) {
        Ok(looks) if !looks.is_empty() => {
            let shown = is_of_all.then_some("alloc_space");
            Ok(pprof::write(&named(looks, &[]), shown, pprof::now_ns()))
        }
        Ok(_) => Err(refused.unwrap_or_else(|| format!("{name}: no process\n"))),
        Err((pid, why)) => Err(format!("{name}: process {pid}: {why}\n")),
    }
}
