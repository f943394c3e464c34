//! A generator of bursts over HTTP: so many requests, or for so long, from so many connections.
//!
//! `ebb burst` runs it, for services whose owner has no load tool; `ebb compare` starts that like any
//! other load. [`drive`](self::drive::drive) sends, [`tally`] counts. It has two loops, and says which one a
//! figure is from: closed (a connection sends when its last request was answered, so a slow service is
//! asked less) and paced (so many a second whatever the service does; a latency counts from the moment
//! at which its request was due, so that waiting for a free connection is part of it).
//!
//! ureq sends and hdrhistogram counts. Weighed for the whole, and left: oha (its library is its command line, which prints
//! its summary; tokio, rusqlite and ratatui), goose (a framework of scripted users on tokio and reqwest).

pub mod drive;
pub mod tally;

use std::time::Duration;

/// What is sent, and how.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Asked in turn.
    pub urls: Vec<ureq::http::Uri>,
    pub method: ureq::http::Method,
    pub headers: ureq::http::HeaderMap,
    pub body: Option<Vec<u8>>,
    /// Connections, each of a thread of its own.
    pub concurrency: u32,
    /// When to end.
    pub until: Until,
    /// Requests a second, of all connections together; without it the loop is closed.
    pub rate: Option<f64>,
    /// One request may take this long.
    pub timeout: Duration,
}

/// When a burst ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Until {
    /// After this many requests.
    Requests(u64),
    /// No request begins after this time.
    Elapsed(Duration),
}

impl Plan {
    /// What its figures have to be read as.
    pub fn loop_name(&self) -> &'static str {
        match self.rate {
            Some(_) => "paced",
            None => "closed loop",
        }
    }

    /// When a request begins, after the start; `None` once there are no more. In the closed loop that is
    /// `now`.
    fn due(&self, number: u64, now: Duration) -> Option<Duration> {
        let at = match self.rate {
            Some(rate) => Duration::from_secs_f64(number as f64 / rate),
            None => now,
        };
        match self.until {
            Until::Requests(requests) => number < requests,
            Until::Elapsed(length) => at < length,
        }
        .then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn plan(url: &str, until: Until, rate: Option<f64>) -> Plan {
        Plan {
            urls: vec![url.parse().unwrap()],
            method: ureq::http::Method::GET,
            headers: ureq::http::HeaderMap::new(),
            body: None,
            concurrency: 4,
            until,
            rate,
            timeout: Duration::from_secs(10),
        }
    }

    #[test]
    fn a_paced_request_is_due_by_its_number_and_a_closed_one_now() {
        let second = Duration::from_secs(1);
        let paced = plan("http://h/", Until::Elapsed(2 * second), Some(10.0));
        assert_eq!(paced.due(15, second), Some(Duration::from_millis(1500)));
        assert_eq!(paced.due(20, second), None, "due at the end, so not sent");
        let closed = plan("http://h/", Until::Requests(3), None);
        assert_eq!((closed.due(2, second), closed.due(3, second)), (Some(second), None));
    }
}
