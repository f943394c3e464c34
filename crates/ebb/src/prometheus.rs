//! Asks a Prometheus, or what speaks its API (Thanos, Mimir, VictoriaMetrics): one value now, values over time, label sets.
//!
//! For `ebb fleet` and `ebb compare --live`. Long times are asked in parts, so no answer is large. Only http: TLS would add more to
//! `ebb` than its size allows.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use ureq::http::Uri;

use crate::exit::{Exit, Failure};

/// Values of one answer, about 30 MB of JSON.
const MOST_VALUES: usize = 1_000_000;
/// Prometheus refuses more values of one series.
const MOST_OF_SERIES: usize = 11_000;
/// An answer that is larger is a mistake.
const MOST_BYTES: u64 = 256 << 20;
/// Prometheus gives up after two minutes by default.
const TIME_LIMIT: Duration = Duration::from_secs(150);
/// Proxies refuse longer addresses; nginx allows 8 KiB with all headers.
const MOST_OF_ADDRESS: usize = 4096;
/// An error's text that is longer is no sentence.
const MOST_LETTERS: usize = 300;

/// Where to ask.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Address of the Prometheus server: http://HOST:PORT[/PATH]
    #[arg(long, value_name = "URL")]
    pub prometheus: Option<String>,

    /// File with a bearer token for it
    #[arg(long, value_name = "FILE", requires = "prometheus")]
    pub token_file: Option<std::path::PathBuf>,
}

impl Args {
    /// The server, where one is named.
    pub fn server(&self) -> Result<Option<Server>, Failure> {
        let open = |url: &String| Server::open(url, self.token_file.as_deref());
        self.prometheus.as_ref().map(open).transpose()
    }
}

#[derive(Debug)]
pub struct Server {
    agent: ureq::Agent,
    base: String,
    token: Option<String>,
}

/// Times at equal distances, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    pub from_s: f64,
    pub step_s: f64,
    pub count: usize,
}

impl Times {
    pub fn at_s(&self, index: usize) -> f64 {
        self.from_s + self.step_s * index as f64
    }

    /// The parts in which `series` series are asked: the first index, and the times.
    fn parts(self, series: usize) -> impl Iterator<Item = (usize, Times)> {
        let most = (MOST_VALUES / series.max(1)).clamp(1, MOST_OF_SERIES);
        (0..self.count).step_by(most).map(move |first| {
            let count = most.min(self.count - first);
            (first, Times { from_s: self.at_s(first), count, ..self })
        })
    }
}

pub type Labels<'a> = BTreeMap<Text<'a>, Text<'a>>;

/// A label's value; empty where there is none, as in PromQL.
pub fn label<'a>(labels: &'a Labels, name: &'static str) -> &'a str {
    labels.get(&Text(Cow::Borrowed(name))).map_or("", |text| &text.0)
}

/// The id of a container as the runtime has it; kube-state-metrics puts `containerd://` or the like in front.
pub fn container_id<'a>(labels: &'a Labels) -> &'a str {
    let id = label(labels, "container_id");
    id.rsplit_once("://").map_or(id, |(_, id)| id)
}

/// Text of an answer, which is not copied where nothing in it is escaped.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Text<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Text<'de>;
            fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
                out.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        from.deserialize_str(Any)
    }
}

/// A number, which the answer has as a string.
struct Number(f64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Text::deserialize(from)?;
        text.0.parse().map(Number).map_err(|_| serde::de::Error::custom("not a number"))
    }
}

#[derive(serde::Deserialize)]
struct Answer<T> {
    data: Option<T>,
    error: Option<String>,
}

#[derive(serde::Deserialize)]
struct Series<'a> {
    #[serde(borrow)]
    metric: Labels<'a>,
    value: Option<(f64, Number)>,
    #[serde(default)]
    values: Vec<(f64, Number)>,
}

/// The result of a query, which is of no other type than asked.
struct Found<'a>(Vec<Series<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for Found<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Data;
        impl<'de> Visitor<'de> for Data {
            type Value = Found<'de>;
            fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
                out.write_str("the data of a query")
            }
            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Found<'de>, M::Error> {
                let mut found = Vec::new();
                while let Some(key) = map.next_key::<Text>()? {
                    if key.0 == "result" {
                        found = map.next_value()?;
                    } else {
                        map.next_value::<serde::de::IgnoredAny>()?;
                    }
                }
                Ok(Found(found))
            }
        }
        from.deserialize_map(Data)
    }
}

impl Server {
    /// Checks the address and reads the token; nothing is sent.
    pub fn open(url: &str, token: Option<&Path>) -> Result<Self, Failure> {
        let wrong = |why: &str| Failure::usage(format!("--prometheus {url}: {why}"));
        let uri: Uri = url.parse().map_err(|error| wrong(&format!("{error}")))?;
        match (uri.scheme_str(), uri.host()) {
            (Some("http"), Some(host)) if !host.is_empty() => (),
            (Some("https"), _) => {
                return Err(Failure::new(Exit::Unsupported, format!("--prometheus {url}: ebb speaks http, not https"))
                    .remedy(
                        "forward a local port: kubectl port-forward svc/prometheus 9090, or ssh -L; or run a TLS proxy \
                     on this machine",
                    ));
            }
            _ => return Err(wrong("not an address such as http://localhost:9090")),
        }
        let token = token.map(|path| {
            let read = std::fs::read_to_string(path);
            let text = read.map_err(|error| Failure::at(Exit::Usage, path, error))?;
            let text = text.trim();
            match text.is_empty() || text.contains(|it: char| it.is_control() || !it.is_ascii()) {
                true => Err(Failure::at(Exit::Usage, path, "not one line with a token")),
                false => Ok(text.to_owned()),
            }
        });
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(TIME_LIMIT))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .build();
        Ok(Self {
            agent: ureq::Agent::new_with_config(config),
            base: url.trim_end_matches('/').to_owned(),
            token: token.transpose()?,
        })
    }

    pub fn address(&self) -> &str {
        &self.base
    }

    /// The value of each series at one time.
    pub fn query(&self, query: &str, at_s: f64, mut each: impl FnMut(&Labels, f64)) -> Result<(), Failure> {
        let time = format!("{at_s:.3}");
        let body = self.get("query", &[("query", query), ("time", &time)])?;
        for series in self.data::<Found>(&body)?.0 {
            if let Some((_, Number(value))) = series.value {
                each(&series.metric, value);
            }
        }
        Ok(())
    }

    /// The values of each series over time, of about `series` series: labels, the index of the time, the value.
    pub fn query_range(
        &self,
        query: &str,
        times: Times,
        series: usize,
        mut each: impl FnMut(&Labels, &mut dyn Iterator<Item = (usize, f64)>),
    ) -> Result<(), Failure> {
        for (first, part) in times.parts(series) {
            let [from, to, step] =
                [part.from_s, part.at_s(part.count - 1), part.step_s].map(|seconds| format!("{seconds:.3}"));
            let asked = [("query", query), ("start", &from), ("end", &to), ("step", &step)];
            let body = self.get("query_range", &asked)?;
            for series in self.data::<Found>(&body)?.0 {
                let index = |at_s: f64| ((at_s - times.from_s) / times.step_s).round() as usize;
                let inside = first..first + part.count;
                let mut values = series
                    .values
                    .iter()
                    .map(|(at_s, Number(value))| (index(*at_s), *value))
                    .filter(|(at, value)| inside.contains(at) && value.is_finite());
                each(&series.metric, &mut values);
            }
        }
        Ok(())
    }

    /// The label sets of the series that match and had a value in a time.
    pub fn series(&self, matches: &str, from_s: f64, to_s: f64, each: impl FnMut(&Labels)) -> Result<(), Failure> {
        let [from, to] = [from_s, to_s].map(|seconds| format!("{seconds:.3}"));
        let body = self.get("series", &[("match[]", matches), ("start", &from), ("end", &to)])?;
        self.data::<Vec<Labels>>(&body)?.iter().for_each(each);
        Ok(())
    }

    fn get(&self, what: &str, parameters: &[(&str, &str)]) -> Result<Vec<u8>, Failure> {
        let parameters: Vec<String> =
            parameters.iter().map(|(name, value)| format!("{}={}", quoted(name), quoted(value))).collect();
        let (address, parameters) = (format!("{}/api/v1/{what}", self.base), parameters.join("&"));
        let bearer = self.token.iter().map(|token| format!("Bearer {token}"));
        // What only reads is a GET, which proxies permit, unless it is longer than they permit.
        let answer = if parameters.len() <= MOST_OF_ADDRESS {
            let request = self.agent.get(format!("{address}?{parameters}"));
            bearer.fold(request, |request, it| request.header("Authorization", it)).call()
        } else {
            let request = self.agent.post(address).content_type("application/x-www-form-urlencoded");
            bearer.fold(request, |request, it| request.header("Authorization", it)).send(parameters)
        };
        let mut answer = answer.map_err(|error| self.unreachable(&error))?;
        let status = answer.status().as_u16();
        let body = answer.body_mut().with_config().limit(MOST_BYTES).read_to_vec();
        let body = body.map_err(|error| self.unreachable(&error))?;
        match status {
            200..300 => Ok(body),
            _ => Err(self.refused(status, &body)),
        }
    }

    fn unreachable(&self, error: &ureq::Error) -> Failure {
        let remedy = match error {
            ureq::Error::Timeout(_) => "ask for a shorter time with --for",
            ureq::Error::BodyExceedsLimit(_) => "ask for a shorter time with --for, or for fewer series",
            _ => "is that the address of a running Prometheus?",
        };
        Failure::new(Exit::TryAgain, format!("{}: {error}", self.base)).remedy(remedy)
    }

    /// A status that is no success, in the server's words where it has any.
    fn refused(&self, status: u16, body: &[u8]) -> Failure {
        let said = serde_json::from_slice::<Answer<serde::de::IgnoredAny>>(body);
        let said = said
            .ok()
            .and_then(|answer| answer.error)
            .map_or(String::new(), |error| format!(": {}", error.chars().take(MOST_LETTERS).collect::<String>()));
        let (exit, remedy) = match status {
            401 | 403 => (Exit::Permission, "give a token with --token-file"),
            300..400 | 404 | 405 => (Exit::Usage, "is a part of the path missing, such as /prometheus?"),
            400 | 422 => (Exit::Usage, "see the server's words"),
            _ => (Exit::TryAgain, "see the server's log, or ask for a shorter time with --for"),
        };
        Failure::new(exit, format!("{} answered with status {status}{said}", self.base)).remedy(remedy)
    }

    fn data<'a, T: Deserialize<'a>>(&self, body: &'a [u8]) -> Result<T, Failure> {
        let answer: Result<Answer<T>, _> = serde_json::from_slice(body);
        answer.ok().and_then(|answer| answer.data).ok_or_else(|| {
            Failure::usage(format!("{}: the answer is not the JSON of a Prometheus", self.base))
                .remedy("is a part of the path missing, or a login page in front?")
        })
    }
}

/// Text of a parameter.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(byte.into()),
            _ => out += &format!("%{byte:02X}"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    fn once(answer: &'static str) -> Server {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer.as_bytes());
        });
        Server::open(&url, None).unwrap()
    }

    #[test]
    fn what_is_no_answer_is_one_line_with_a_remedy() {
        for (answer, exit, words) in [
            ("HTTP/1.0 503 Busy\r\n\r\n", Exit::TryAgain, "status 503; see the server's log"),
            ("HTTP/1.0 401 No\r\n\r\n", Exit::Permission, "status 401; give a token"),
            (
                "HTTP/1.0 400 Bad\r\n\r\n{\"status\":\"error\",\"error\":\"parse error\\nat 1\"}",
                Exit::Usage,
                "status 400: parse error at 1;",
            ),
            ("HTTP/1.0 302 Found\r\nLocation: /login\r\n\r\n", Exit::Usage, "status 302; is a part of the path"),
            ("HTTP/1.0 200 OK\r\n\r\n<html>", Exit::Usage, "not the JSON of a Prometheus; is a part"),
            ("HTTP/1.0 200 OK\r\n\r\n{\"status\":\"success\"}", Exit::Usage, "not the JSON"),
            (
                "HTTP/1.0 200 OK\r\n\r\n{\"data\":{\"result\":[{\"metric\":{},\"value\":[1,\"x\"]}]}}",
                Exit::Usage,
                "not the JSON",
            ),
            ("", Exit::TryAgain, "is that the address of a running Prometheus?"),
        ] {
            let failure = once(answer).query("up", 1.0, |_, _| ()).unwrap_err();
            assert_eq!(failure.exit(), exit, "{failure}");
            assert!(failure.to_string().contains(words), "{failure}");
            assert!(!failure.to_string().contains('\n'));
        }
    }

    #[test]
    fn only_addresses_of_http_are_taken() {
        for (url, words) in [
            ("localhost:9090", "not an address such as"),
            ("http://", "--prometheus http://: "),
            ("ftp://host", "not an address"),
            ("https://host", "speaks http"),
        ] {
            let failure = Server::open(url, None).unwrap_err().to_string();
            assert!(failure.contains(words), "{failure}");
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        for (token, words) in [(None, "No such file"), (Some("a\nb"), "not one line"), (Some(" "), "not one line")] {
            if let Some(token) = token {
                std::fs::write(&file, token).unwrap();
            }
            let failure = Server::open("http://h", Some(&file)).unwrap_err().to_string();
            assert!(failure.contains(words), "{failure}");
        }
    }

    #[test]
    fn a_long_time_is_asked_in_parts() {
        let times = Times { from_s: 60.0, step_s: 60.0, count: 100 };
        let parts: Vec<(usize, Times)> = times.parts(30_000).collect();
        assert_eq!(parts.len(), 4);
        assert_eq!((parts[3].0, parts[3].1), (99, Times { from_s: 6000.0, step_s: 60.0, count: 1 }));
        assert_eq!(times.parts(0).count(), 1);
        assert_eq!(quoted("a{b=\"c d\"}é"), "a%7Bb%3D%22c%20d%22%7D%C3%A9");
    }
}
