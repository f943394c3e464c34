//! A workload from the words of a command line: what `ebb compare --load '...' -- COMMAND` runs.
//!
//! Used by `commands/compare`. A sketch becomes the text of a workload file and nothing else, so what is
//! run is what `--print-workload` prints, and a user goes from flags to a file without a change. Pure.

use super::template;
use std::fmt::Write;
use toml::Value;

/// How long a load of a sketch may take: its own command says how long it is.
const LOAD_LIMIT_S: u32 = 3600;
/// Requests to the health address that bring the service's first imports in.
const WARM_UP_REQUESTS: &str = "20";

/// A service and its load, as a user types them.
#[derive(Debug, Clone)]
pub struct Sketch {
    /// The service under test.
    pub service: Vec<String>,
    /// The image or unpacked root that it is in; its words are the image's arguments then.
    pub image: Option<String>,
    /// How to know that it is there: `http://...`, `HOST:PORT` or `line:REGEX`. Without it the address
    /// of the load is used for a connection check.
    pub ready: Option<String>,
    /// Command that drives the service.
    pub load: Vec<String>,
    /// What it is called in the report.
    pub load_name: &'static str,
    /// The text before it, once.
    pub warm_up: Option<Vec<String>>,
    /// The rest after each load.
    pub rest_s: f64,
    /// How often load and rest come.
    pub cycles: u32,
}

impl Sketch {
    /// The text of the workload file; the message says what is missing.
    pub fn to_toml(&self) -> Result<String, String> {
        let program = self.image.as_ref().or(self.service.first()).ok_or("there is no service")?;
        let program = program.trim_end_matches('/');
        let name = program.rsplit('/').next().unwrap_or(program);
        let ready = match &self.ready {
            Some(text) => ready(text)?,
            None => self.connection()?,
        };
        let shown = |command: &[String]| {
            shlex::try_join(command.iter().map(String::as_str)).unwrap_or_else(|_| command.join(" "))
        };
        let started: Vec<String> = self.image.iter().chain(&self.service).cloned().collect();
        let description = format!("{}, under {}", shown(&started), shown(&self.load));
        let mut out = String::from(
            "# As `ebb compare --print-workload` wrote it; docs/workload.md explains every line. Commands run in\n\
             # the folder of this file.\nformat = 1\n\n",
        );
        let _ = write!(
            out,
            "[workload]\nname = {}\ndescription = {}\n\n[vars]\nrest_s = {}\n\n[cycles]\nloads = {}\n\n\
             [service]\n{}command = {}\nready = {ready}\n",
            text(name),
            text(&description),
            self.rest_s,
            self.cycles,
            self.image.as_ref().map_or(String::new(), |image| format!("image = {}\n", text(image))),
            list(&self.service),
        );
        if let Some(command) = self.warm_up.clone().or_else(|| self.health_requests()) {
            let _ = write!(
                out,
                "\n[[phase]]\nname = \"warm-up\"\nkind = \"warmup\"\ncommand = {}\ntimeout_s = {LOAD_LIMIT_S}\n",
                list(&command)
            );
        }
        let _ = write!(
            out,
            "\n[[phase]]\nname = \"{0}\"\nkind = \"{0}\"\ncycle = \"loads\"\ncommand = {1}\ntimeout_s = {LOAD_LIMIT_S}\n\
             \n[[phase]]\nname = \"rest\"\nkind = \"idle\"\ncycle = \"loads\"\nseconds = \"{{rest_s}}\"\n",
            self.load_name,
            list(&self.load)
        );
        Ok(out)
    }

    /// The health address a few times, one request after the other.
    fn health_requests(&self) -> Option<Vec<String>> {
        let url = self.ready.as_ref().filter(|ready| ready.starts_with("http://"))?;
        let words = ["ebb", "burst", "--requests", WARM_UP_REQUESTS, "--concurrency", "1", url];
        Some(words.map(str::to_owned).to_vec())
    }

    /// A connection to the first address in the load's words.
    fn connection(&self) -> Result<String, String> {
        let address = self.load.iter().find_map(|word| {
            let (_, rest) = word.split_once("://")?;
            let host = rest.split(['/', '?', '#']).next()?;
            let host = host.rsplit('@').next()?;
            (!host.is_empty()).then(|| {
                if has_port(host) {
                    host.to_owned()
                } else if word.contains("https://") {
                    format!("{host}:443")
                } else {
                    format!("{host}:80")
                }
            })
        });
        match address {
            Some(address) => Ok(format!("{{ tcp = {} }}", text(&template::keep_known(&address)))),
            None => Err("the load has no address, so ebb cannot detect when the service is ready; \
                         give --ready URL, --ready HOST:PORT or --ready line:REGEX"
                .into()),
        }
    }
}

fn ready(words: &str) -> Result<String, String> {
    if words.starts_with("http://") {
        return Ok(format!("{{ http = {} }}", text(&template::keep_known(words))));
    }
    if words.starts_with("https://") {
        return Err(format!(
            "--ready {words}: the readiness check does not support TLS; give --ready HOST:PORT or --ready line:REGEX"
        ));
    }
    if let Some(pattern) = words.strip_prefix("line:") {
        regex::Regex::new(pattern).map_err(|error| format!("--ready {words}: {error}"))?;
        return Ok(format!("{{ line = {} }}", text(pattern)));
    }
    if has_port(words) && !words.contains('/') {
        return Ok(format!("{{ tcp = {} }}", text(&template::keep_known(words))));
    }
    Err(format!("--ready {words}: write http://..., HOST:PORT or line:REGEX"))
}

/// Whether a host is followed by a port, which may be a template.
fn has_port(host: &str) -> bool {
    host.rsplit_once(':')
        .is_some_and(|(name, port)| !name.is_empty() && (port == "{port}" || port.parse::<u16>().is_ok()))
}

fn text(value: &str) -> String {
    Value::from(value).to_string()
}

/// A command; `ebb` is the program that reads this, wherever it lies.
fn list(command: &[String]) -> String {
    let words = command.iter().enumerate().map(|(index, word)| match (index, word.as_str()) {
        (0, "ebb") => "{ebb}".to_owned(),
        _ => template::keep_known(word),
    });
    Value::from(words.collect::<Vec<String>>()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::PhaseKind;
    use crate::workload::{Ready, Workload};

    fn words(text: &str) -> Vec<String> {
        shlex::split(text).unwrap()
    }

    fn sketch() -> Sketch {
        Sketch {
            service: words("uvicorn main:app --port 8000"),
            ready: Some("http://localhost:8000/health".into()),
            load: words("oha -z 20s http://localhost:8000/"),
            load_name: "load",
            image: None,
            warm_up: None,
            rest_s: 15.0,
            cycles: 2,
        }
    }

    fn read(sketch: &Sketch) -> Workload {
        Workload::from_text(&sketch.to_toml().unwrap(), "/tmp".into()).unwrap()
    }

    #[test]
    fn a_sketch_is_a_whole_workload() {
        let workload = read(&sketch());
        let kinds: Vec<_> = workload.phases.iter().map(|phase| phase.kind).collect();
        assert_eq!(kinds, [PhaseKind::Warmup, PhaseKind::Load, PhaseKind::Idle]);
        assert_eq!(workload.cycles["loads"], 2);
        assert_eq!(workload.workload.name, "uvicorn");
        assert_eq!(workload.phases[1].command.as_ref().unwrap()[0], "oha");
        assert_eq!(workload.phases[0].command.as_ref().unwrap()[..2], ["{ebb}", "burst"]);
        assert!(matches!(workload.service.ready, Ready::Http(url) if url.ends_with("/health")));
    }

    #[test]
    fn quotes_braces_and_templates_survive() {
        let mut sketch = sketch();
        sketch.service = words(r#"python3 -c 'print("{}", {"a": 1})' --port {port}"#);
        sketch.ready = Some("localhost:{port}".into());
        let workload = read(&sketch);
        let values = [("port".to_owned(), "7".to_owned())].into();
        let filled = template::fill_all(&workload.service.command, &values).unwrap();
        assert_eq!(filled[2..], ["print(\"{}\", {\"a\": 1})", "--port", "7"]);
        assert!(matches!(&workload.service.ready, Ready::Tcp(address) if address == "localhost:{port}"));
        assert_eq!(workload.phases.len(), 2, "without a health address nothing is sent before");
    }

    #[test]
    fn readiness_is_read_or_found_in_the_load() {
        type Expected = Result<Ready, &'static str>;
        let tcp = |address: &str| Ok(Ready::Tcp(address.into()));
        let cases: [(Option<&str>, &str, Expected); 7] = [
            (None, "oha -z 20s http://localhost:8000/", tcp("localhost:8000")),
            (None, "wrk http://example/path", tcp("example:80")),
            (None, "./load.sh", Err("--ready URL")),
            (Some("https://x/"), "./load.sh", Err("does not support TLS")),
            (Some("soon"), "./load.sh", Err("write http://")),
            (Some("line:["), "./load.sh", Err("regex")),
            (Some("line:^ready {3}$"), "./load.sh", Ok(Ready::Line("^ready {3}$".into()))),
        ];
        for (ready, load, expected) in cases {
            let sketch = Sketch { ready: ready.map(str::to_owned), load: words(load), ..sketch() };
            match expected {
                Ok(expected) => {
                    let ready = format!("{:?}", read(&sketch).service.ready);
                    assert_eq!(ready, format!("{expected:?}"), "{load}");
                }
                Err(part) => {
                    let message = sketch.to_toml().unwrap_err();
                    assert!(message.contains(part), "{ready:?}: {message}");
                }
            }
        }
    }
}
