//! The HTTP interface: the dashboard, health, diagnosis; everything else is a probe and is logged.

use crate::journal::{Entry, Journal};
use crate::overview::Overview;
use crate::settings::{Read, Settings};
use crate::visitors::Visitors;
use crate::{memory, page};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::Semaphore;

/// Visitors that the dashboard shows.
const WORST: usize = 100;
/// The header in which a reverse proxy names the client.
const FORWARDED_FOR: &str = "x-forwarded-for";

/// A rule: its name, and what a path has in it that breaks it.
const RULES: [(&str, &[&str]); 4] = [
    ("wordpress", &["/wp-", "/xmlrpc.php"]),
    ("database", &["phpmyadmin", "/pma", "/adminer", "/mysql"]),
    ("secrets", &["/.env", "/.git", "/.aws", "id_rsa", "/config"]),
    ("shells", &["/shell", "/cgi-bin", "eval-stdin", "/boaform"]),
];

/// The agent.
#[derive(Debug)]
pub struct Agent {
    journal: Journal,
    visitors: Mutex<Visitors>,
    read: Read,
    at_once: Option<Semaphore>,
}

impl Agent {
    /// Opens its log.
    pub fn open(settings: &Settings) -> Result<Agent, String> {
        Ok(Agent {
            journal: Journal::open(&settings.log, settings.file_bytes, settings.shown)?,
            visitors: Mutex::new(Visitors::new(settings.remember)),
            read: settings.read,
            at_once: (settings.at_once > 0).then(|| Semaphore::new(settings.at_once)),
        })
    }

    fn visitors(&self) -> std::sync::MutexGuard<'_, Visitors> {
        self.visitors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn log(&self, entry: Entry) -> Result<(), Failed> {
        self.journal.append(&entry).await?;
        self.visitors().note(&entry);
        Ok(())
    }

    async fn overview(&self) -> Result<Overview, Failed> {
        let _turn = match &self.at_once {
            Some(turns) => turns.acquire().await.ok(),
            None => None,
        };
        Ok(match self.read {
            Read::Whole => Overview::of(&self.journal.entries().await?),
            Read::Tail => self.journal.overview().await?,
        })
    }
}

/// The answer to a client when the log fails.
struct Failed(std::io::Error);

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Failed {
        Failed(error)
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        eprintln!("warden: the log: {}", self.0);
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

/// Everything that is answered.
pub fn routes(agent: Arc<Agent>) -> Router {
    Router::new()
        .route("/", get(dashboard))
        .route("/health", get(async || "ok"))
        .route("/debug/live", get(live))
        .route("/debug/trim", post(async || format!("{{\"released\":{}}}", memory::trim())))
        .fallback(probe)
        .with_state(agent)
}

async fn dashboard(State(agent): State<Arc<Agent>>, request: Request) -> Result<Html<String>, Failed> {
    agent.log(entry(&request, StatusCode::OK)).await?;
    let overview = agent.overview().await?;
    let (count, worst) = {
        let visitors = agent.visitors();
        (visitors.count(), visitors.worst(WORST))
    };
    Ok(Html(page::dashboard(&overview, count, &worst).into_string()))
}

async fn probe(State(agent): State<Arc<Agent>>, request: Request) -> Result<StatusCode, Failed> {
    agent.log(entry(&request, StatusCode::NOT_FOUND)).await?;
    Ok(StatusCode::NOT_FOUND)
}

async fn live() -> Response {
    match memory::live_bytes() {
        Some(bytes) => format!("{{\"live_bytes\":{bytes}}}").into_response(),
        None => StatusCode::NOT_IMPLEMENTED.into_response(),
    }
}

fn entry(request: &Request, status: StatusCode) -> Entry {
    let headers = request.headers();
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    Entry {
        at: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        address: text(headers, FORWARDED_FOR).unwrap_or_else(|| "127.0.0.1".into()),
        method: request.method().to_string(),
        path: path.to_owned(),
        status: status.as_u16(),
        rule: broken_rule(path).map(str::to_owned),
        headers: headers
            .keys()
            .filter(|name| **name != header::HOST)
            .filter_map(|name| Some((name.to_string(), text(headers, name.as_str())?)))
            .collect(),
    }
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

fn broken_rule(path: &str) -> Option<&'static str> {
    let path = path.to_ascii_lowercase();
    RULES.iter().find(|(_, parts)| parts.iter().any(|part| path.contains(part))).map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use clap::Parser;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    async fn ask(agent: &Arc<Agent>, path: &str) -> (StatusCode, String) {
        let request = Request::builder()
            .uri(path)
            .header(FORWARDED_FOR, "203.0.113.9")
            .header("user-agent", "<script>")
            .body(Body::empty())
            .unwrap();
        let answer = routes(agent.clone()).oneshot(request).await.unwrap();
        let status = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn probes_are_logged_and_shown_whichever_way_the_log_is_read() {
        for read in ["whole", "tail"] {
            let folder = tempfile::tempdir().unwrap();
            let log = folder.path().join("log.jsonl");
            let log = log.to_str().unwrap();
            let settings =
                Settings::parse_from(["warden", "--port", "0", "--log", log, "--read", read, "--at-once", "1"]);
            let agent = Arc::new(Agent::open(&settings).unwrap());
            for path in ["/wp-login.php", "/.env", "/phpMyAdmin/index.php", "/about"] {
                assert_eq!(ask(&agent, path).await.0, StatusCode::NOT_FOUND);
            }
            let (status, page) = ask(&agent, "/").await;
            assert_eq!(status, StatusCode::OK);
            assert!(page.contains("5 requests, 1 visitors"), "{page}");
            for name in ["wordpress", "secrets", "database", "203.0.113.9", "&lt;script&gt;"] {
                assert!(page.contains(name), "{name} is not in {page}");
            }
        }
    }

    #[tokio::test]
    async fn the_bytes_in_use_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log.jsonl");
        let settings = Settings::parse_from(["warden", "--port", "0", "--log", log.to_str().unwrap()]);
        let agent = Arc::new(Agent::open(&settings).unwrap());
        let held = vec![1_u8; 32 << 20];
        let (status, body) = ask(&agent, "/debug/live").await;
        assert_eq!(status, StatusCode::OK);
        let bytes: u64 = body.trim_matches(|letter: char| !letter.is_ascii_digit()).parse().unwrap();
        assert!(bytes > held.len() as u64, "{bytes}");
    }
}
