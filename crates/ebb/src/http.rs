//! Serves a page of figures over HTTP: for `ebb watch` and `ebb agent`.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use tiny_http::{Header, Request, Response};

use crate::exit::Failure;
use crate::terminal;

/// So many answers are written at a time; a client that does not read holds up one.
const MOST_ANSWERS: usize = 8;

/// Addresses to listen on: the first free one is used.
#[derive(Clone, Debug)]
pub struct Listen(Vec<SocketAddr>);

/// `HOST:PORT`, or `:PORT` for all interfaces, as Prometheus' own programs have it.
pub fn address(text: &str) -> Result<Listen, String> {
    let all = text.strip_prefix(':').map(|port| port.parse::<u16>());
    let addresses: Vec<SocketAddr> = match all {
        Some(port) => {
            let port = port.map_err(|error| format!("{error}: write :PORT or HOST:PORT"))?;
            // The first takes both protocols, and is not there where IPv6 is switched off.
            vec![(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()]
        }
        None => text.to_socket_addrs().map_err(|error| format!("{error}: write :PORT or HOST:PORT"))?.collect(),
    };
    Ok(Listen(addresses))
}

impl Listen {
    /// Opens the port; says where, because it may have been 0.
    pub fn bind(&self) -> Result<TcpListener, Failure> {
        let listener = TcpListener::bind(self.0.as_slice()).map_err(|error| {
            let address = self.0.first().map_or_else(String::new, SocketAddr::to_string);
            Failure::usage(format!("{address}: {error}"))
        })?;
        terminal::warn(&format!("listening on http://{}/metrics", listener.local_addr()?));
        Ok(listener)
    }
}

/// What is served.
pub struct Site {
    /// The text of /metrics.
    pub page: Arc<Mutex<String>>,
    /// Who answers /debug/pprof/.
    pub profiles: Option<Sender<Request>>,
    /// What a request has to bring, as `Authorization: Bearer TOKEN`.
    pub token: Option<String>,
}

/// Answers on threads of its own.
pub fn serve(listener: TcpListener, site: Site) -> Result<(), Failure> {
    let server = tiny_http::Server::from_listener(listener, None)
        .map_err(|error| Failure::usage(format!("no server: {error}")))?;
    let answers = Arc::new(AtomicUsize::new(0));
    std::thread::spawn(move || {
        for request in server.incoming_requests() {
            if let Some(profiles) = site.profiles.as_ref().filter(|_| request.url().starts_with("/debug/pprof/")) {
                // A thread that is gone has nothing to say.
                let _ = profiles.send(request);
                continue;
            }
            let response = site.answer(&request);
            // Relaxed: only a count.
            if answers.fetch_add(1, Ordering::Relaxed) >= MOST_ANSWERS {
                answers.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let answers = Arc::clone(&answers);
            std::thread::spawn(move || {
                // A client that went away is not ours to mend.
                let _ = request.respond(response);
                answers.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
    Ok(())
}

impl Site {
    fn answer(&self, request: &Request) -> Response<std::io::Cursor<Vec<u8>>> {
        let plain = |status, text: &str| Response::from_string(text).with_status_code(status);
        if !self.is_allowed(request) {
            return plain(401, "write the header Authorization: Bearer TOKEN\n");
        }
        if request.url() != "/metrics" {
            let text = match self.profiles {
                Some(_) => "the figures are at /metrics, heap profiles at /debug/pprof/heap\n",
                None => "the figures are at /metrics\n",
            };
            return plain(404, text);
        }
        let page = self.page.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        let header = Header::from_bytes("Content-Type", kind);
        header.into_iter().fold(plain(200, &page), Response::with_header)
    }

    fn is_allowed(&self, request: &Request) -> bool {
        let Some(token) = &self.token else { return true };
        let wanted = format!("Bearer {token}");
        let mut headers = request.headers().iter();
        let given = headers.find(|it| it.field.equiv("Authorization"));
        given.is_some_and(|it| is_same(it.value.as_str().as_bytes(), wanted.as_bytes()))
    }
}

/// Takes as long whichever byte differs.
fn is_same(left: &[u8], right: &[u8]) -> bool {
    let different = left.iter().zip(right).fold(0, |all, (left, right)| all | (left ^ right));
    left.len() == right.len() && different == 0
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
