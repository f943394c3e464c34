//! Requests to a running service: readiness checks, a trim, the size of its live heap.
//!
//! Used by `run`. HTTP goes to this machine, without TLS and without a proxy.

use super::context::RunContext;
use crate::launch::{self, Process};
use crate::workload::{Ready, Request};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Between two looks at readiness.
const READY_STEP: Duration = Duration::from_millis(50);
/// One look may take this long.
const LOOK_LIMIT: Duration = Duration::from_secs(2);
/// A trim or a request for the live heap may take this long.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);

/// Waits until `process` is ready; the message says why it is not.
pub fn until_ready(context: &RunContext, ready: &Ready, process: &mut Process, limit: Duration) -> Result<(), String> {
    let pattern = match ready {
        Ready::Line(pattern) => Some(regex::Regex::new(pattern).map_err(|error| format!("ready: line: {error}"))?),
        _ => None,
    };
    let deadline = Instant::now() + limit;
    let mut last = String::new();
    while Instant::now() < deadline {
        if let Some(status) = process.ended() {
            return Err(format!("{} {} before it was ready", process.name, launch::describe(status)));
        }
        let look = match (&pattern, ready) {
            (Some(pattern), _) => {
                let matches = process.all_output().lines().any(|line| pattern.is_match(line));
                matches.then_some(()).ok_or("no line of its output matches".to_owned())
            }
            (None, Ready::Http(url)) => http(&context.fill(url)?, "GET", LOOK_LIMIT).map(|_| ()),
            (None, Ready::Tcp(address)) => connect(&context.fill(address)?),
            (None, Ready::Command(command)) => {
                context.run_to_end("the readiness check", command, LOOK_LIMIT).map(|_| ())
            }
            (None, Ready::Line(_)) => unreachable!("a line has a pattern"),
        };
        match look {
            Ok(()) => return Ok(()),
            Err(reason) => last = reason,
        }
        if context.interrupt.wait_for(READY_STEP, || None::<()>).is_none() && context.interrupt.is_set() {
            return Err("interrupted".into());
        }
    }
    Err(format!("{} was not ready after {} s: {last}", process.name, limit.as_secs_f64()))
}

/// Fails if another program answers at the address that the service is going to use.
pub fn check_address_free(context: &RunContext, ready: &Ready) -> Result<(), String> {
    let address = match ready {
        Ready::Http(url) => {
            let url = context.fill(url)?;
            match url.parse::<ureq::http::Uri>() {
                Ok(uri) => match uri.host() {
                    Some(host) => format!("{host}:{}", uri.port_u16().unwrap_or(80)),
                    None => return Ok(()),
                },
                Err(error) => return Err(format!("ready: {url}: {error}")),
            }
        }
        Ready::Tcp(address) => context.fill(address)?,
        Ready::Command(_) | Ready::Line(_) => return Ok(()),
    };
    match connect(&address) {
        Ok(()) => Err(format!(
            "another program answers at {address} before the service was started: stop it, or give the service a \
             port of its own ({{port}} is a free one)"
        )),
        Err(_) => Ok(()),
    }
}

/// A connection to any of the addresses that a name stands for (`localhost` is two).
fn connect(address: &str) -> Result<(), String> {
    let addresses = address.to_socket_addrs().map_err(|error| format!("{address}: {error}"))?;
    let mut problem = format!("{address}: not an address");
    for one in addresses {
        match TcpStream::connect_timeout(&one, LOOK_LIMIT) {
            Ok(_) => return Ok(()),
            Err(error) => problem = format!("{address}: {error}"),
        }
    }
    Err(problem)
}

/// Sends a request and returns the text of the answer.
pub fn send(context: &RunContext, request: &Request, default_method: &str) -> Result<String, String> {
    match (&request.http, &request.command) {
        (Some(url), _) => http(&context.fill(url)?, request.method.as_deref().unwrap_or(default_method), REQUEST_LIMIT),
        (None, Some(command)) => context.run_to_end("the command", command, REQUEST_LIMIT),
        (None, None) => Err("http or command is required".into()),
    }
}

/// The `live_bytes` of an answer: the last line that is a JSON object.
pub fn live_bytes(answer: &str) -> Result<u64, String> {
    #[derive(serde::Deserialize)]
    struct Answer {
        live_bytes: u64,
    }
    let line = answer.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    serde_json::from_str::<Answer>(line)
        .map(|answer| answer.live_bytes)
        .map_err(|error| format!("it did not answer {{\"live_bytes\": N}}: {error}"))
}

/// Sends an HTTP request. An answer outside 2xx is an error.
pub(super) fn http(url: &str, method: &str, limit: Duration) -> Result<String, String> {
    let agent =
        ureq::Agent::new_with_config(ureq::Agent::config_builder().timeout_global(Some(limit)).proxy(None).build());
    let request = ureq::http::Request::builder()
        .method(method)
        .uri(url)
        .body(())
        .map_err(|error| format!("{method} {url}: {error}"))?;
    let failed = |error: ureq::Error| format!("{method} {url}: {error}");
    agent.run(request).map_err(failed)?.body_mut().read_to_string().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    fn serve_once(status: &'static str, body: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/x", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let length = body.len();
            write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}").unwrap();
        });
        url
    }

    #[test]
    fn a_good_answer_is_read_and_a_bad_one_is_an_error() {
        assert_eq!(http(&serve_once("200 OK", "hello"), "POST", LOOK_LIMIT).unwrap(), "hello");
        let error = http(&serve_once("503 Busy", "no"), "GET", LOOK_LIMIT).unwrap_err();
        assert!(error.contains("503"), "{error}");
    }

    #[test]
    fn the_live_heap_is_read_from_the_last_line() {
        assert_eq!(live_bytes("log\n{\"live_bytes\": 42}\n"), Ok(42));
        assert!(live_bytes("{}").unwrap_err().contains("live_bytes"));
    }
}
