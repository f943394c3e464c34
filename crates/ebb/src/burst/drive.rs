//! Sends a burst: a thread a connection, each with a client of its own, so that none waits for another.

use super::Plan;
use super::tally::Tally;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Pause after a request that failed to connect, so that a stopped service does not get a million attempts per second.
const AFTER_NO_ANSWER: Duration = Duration::from_millis(10);

/// Sends all of it and waits for the answers. Second: from the first request to the last answer.
pub fn drive(plan: &Plan) -> (Tally, f64) {
    let next = AtomicU64::new(0);
    let start = Instant::now();
    let mut total = Tally::default();
    std::thread::scope(|scope| {
        let connections: Vec<_> =
            (0..plan.concurrency).map(|_| scope.spawn(|| connection(plan, &next, start))).collect();
        for connection in connections {
            match connection.join() {
                Ok(tally) => total.add(&tally),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    (total, start.elapsed().as_secs_f64())
}

/// What one connection does until there are no more requests.
fn connection(plan: &Plan, next: &AtomicU64, start: Instant) -> Tally {
    let agent = ureq::Agent::new_with_config(
        ureq::Agent::config_builder()
            .timeout_global(Some(plan.timeout))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .build(),
    );
    let mut tally = Tally::default();
    loop {
        // Only the number counts, nothing is published with it.
        let number = next.fetch_add(1, Ordering::Relaxed);
        let Some(due) = plan.due(number, start.elapsed()) else {
            return tally;
        };
        std::thread::sleep(due.saturating_sub(start.elapsed()));
        let url = &plan.urls[(number % plan.urls.len() as u64) as usize];
        match send(&agent, plan, url) {
            Ok(status) if status < 400 => tally.answered(start.elapsed().saturating_sub(due)),
            Ok(status) => tally.failed(format!("status {status}")),
            Err(error) => {
                let host = url.authority().map_or("", |host| host.as_str());
                tally.failed(format!("{host}: {error}"));
                std::thread::sleep(AFTER_NO_ANSWER);
            }
        }
    }
}

/// One request to its last byte; gives the status.
fn send(agent: &ureq::Agent, plan: &Plan, url: &ureq::http::Uri) -> Result<u16, ureq::Error> {
    let mut request = ureq::http::Request::builder().method(&plan.method).uri(url);
    if let Some(headers) = request.headers_mut() {
        headers.clone_from(&plan.headers);
    }
    let mut answer = match &plan.body {
        Some(body) => agent.run(request.body(body.as_slice())?)?,
        None => agent.run(request.body(())?)?,
    };
    io::copy(&mut answer.body_mut().as_reader(), &mut io::sink())?;
    Ok(answer.status().as_u16())
}

#[cfg(test)]
mod tests {
    use super::super::Until;
    use super::super::tests::plan;
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};

    /// Answers every request of a connection after `pause`, with 503 where the path says so.
    fn serve(stream: TcpStream, pause: Duration) -> io::Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        while let Some(first) = lines.next().transpose()? {
            while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
            std::thread::sleep(pause);
            let status = if first.contains("/busy") { "503 Busy" } else { "200 OK" };
            (&stream).write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok").as_bytes())?;
        }
        Ok(())
    }

    /// A service on a port of its own, which it ends with the test's process.
    fn service(pause: Duration) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || serve(stream, pause));
            }
        });
        url
    }

    #[test]
    fn as_many_requests_as_asked_are_sent_to_the_addresses_in_turn() {
        let url = service(Duration::ZERO);
        let mut plan = plan(&url, Until::Requests(101), None);
        plan.urls.push(format!("{url}/busy").parse().unwrap());
        let (tally, seconds) = drive(&plan);
        let summary = tally.summary(seconds, String::new());
        assert_eq!((summary.requests, summary.errors), (51, 50));
        assert_eq!(tally.reasons(), [("status 503", 50)]);
        assert!(summary.seconds > 0.0);
    }

    #[test]
    fn a_paced_burst_counts_the_wait_for_a_service_that_is_too_slow() {
        let url = service(Duration::from_millis(100));
        // 40 in 0.4 s by 4 connections that each manage 10 a second: the last waits 0.6 s and more.
        let slow = plan(&url, Until::Requests(40), Some(100.0));
        let (tally, _) = drive(&slow);
        assert!(tally.quantile_ms(1.0).unwrap() >= 600.0, "{:?}", tally.quantile_ms(1.0));
    }

    #[test]
    fn nobody_there_is_a_failure_with_its_reason() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        drop(listener);
        let (tally, _) = drive(&plan(&url, Until::Requests(5), None));
        assert_eq!(tally.quantile_ms(0.5), None);
        let reasons = tally.reasons();
        assert!(reasons.len() == 1 && reasons[0].1 == 5, "{reasons:?}");
        assert!(reasons[0].0.contains("refused"), "{reasons:?}");
    }
}
