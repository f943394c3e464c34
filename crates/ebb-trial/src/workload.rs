//! `workload.toml`: what is set up, started, driven and stopped (`docs/workload.md` is its manual).
//!
//! Read once by `commands/compare`. A [`Workload`] that was loaded is checked: every template can be
//! filled in, every reference leads somewhere, there is a rest after a load. Nothing is started here.

#![allow(missing_docs, reason = "docs/workload.md documents every field")]

use super::template::{self, Values};
use crate::results::PhaseKind;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The version of the format that this build reads.
pub const FORMAT: u32 = 1;

/// A whole file, as written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    format: u32,
    pub workload: About,
    /// Names of the workload's own.
    #[serde(default)]
    vars: BTreeMap<String, Scalar>,
    /// How often the phases of a cycle are repeated.
    #[serde(default)]
    pub cycles: BTreeMap<String, u32>,
    /// Once, before the first run.
    pub setup: Option<Job>,
    /// Started afresh for every run, not measured.
    #[serde(default, rename = "companion")]
    pub companions: Vec<Companion>,
    pub service: Service,
    /// Once a run, after readiness.
    pub prepare: Option<Job>,
    #[serde(default, rename = "phase")]
    pub phases: Vec<Phase>,
    /// Makes the service call malloc_trim(0).
    pub trim: Option<Request>,
    /// Tells the live heap.
    pub live: Option<Request>,
    /// Variants next to the ones that the tool knows.
    #[serde(default)]
    pub variants: BTreeMap<String, VariantTable>,
    #[serde(default, rename = "profile")]
    profiles: BTreeMap<String, Profile>,
    /// Its folder, absolute.
    #[serde(skip)]
    pub dir: PathBuf,
    /// The profile that was applied.
    #[serde(skip)]
    pub profile: Option<String>,
    /// Repetitions that the profile asks for.
    #[serde(skip)]
    pub repetitions: Option<u32>,
    /// Variants that the profile asks for.
    #[serde(skip)]
    pub chosen_variants: Option<Vec<String>>,
}

/// Name and description.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    pub name: String,
    #[serde(default)]
    pub description: String,
}

/// A command that runs to its end.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    pub command: Vec<String>,
    /// Limit; the default depends on what it is for.
    pub timeout_s: Option<f64>,
}

/// A process that the service needs.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Companion {
    /// Its name, also of its port.
    pub name: String,
    pub command: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    pub ready: Option<Ready>,
    #[serde(default = "companion_ready_s")]
    pub ready_timeout_s: f64,
    /// From SIGTERM to SIGKILL.
    #[serde(default = "stop_s")]
    pub stop_timeout_s: f64,
}

/// The process that is measured.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// An image, or the folder of an unpacked root: the command are its arguments then.
    pub image: Option<String>,
    #[serde(default)]
    pub command: Vec<String>,
    /// Relative to the workload's folder.
    #[serde(default)]
    pub cwd: Option<PathBuf>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    pub ready: Ready,
    #[serde(default = "service_ready_s")]
    pub ready_timeout_s: f64,
    /// From SIGTERM to SIGKILL.
    #[serde(default = "stop_s")]
    pub stop_timeout_s: f64,
    /// Asked once a second under load; without it an `http` of `ready` is.
    pub health: Option<String>,
}

impl Service {
    /// The address that tells whether it is well, where there is one.
    pub fn health(&self) -> Option<&str> {
        match (&self.health, &self.ready) {
            (Some(url), _) | (None, Ready::Http(url)) => Some(url),
            _ => None,
        }
    }
}

fn companion_ready_s() -> f64 {
    30.0
}
fn service_ready_s() -> f64 {
    60.0
}
fn stop_s() -> f64 {
    10.0
}

/// How to know that a process is ready.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Ready {
    /// Any 2xx answer.
    Http(String),
    /// A connection is accepted.
    Tcp(String),
    /// Exit status 0.
    Command(Vec<String>),
    /// A line of its output matches.
    Line(String),
}

/// A request to the running service.
#[derive(Debug, Clone, Deserialize)]
// The name in messages about a workload file.
#[serde(deny_unknown_fields, rename = "Ask")]
pub struct Request {
    /// An address ...
    pub http: Option<String>,
    /// ... with its method (default: POST, for live GET),
    pub method: Option<String>,
    /// or a command.
    pub command: Option<Vec<String>>,
}

/// A phase.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    pub name: String,
    pub kind: PhaseKind,
    /// The load, for all kinds but idle.
    pub command: Option<Vec<String>>,
    /// The length, for idle.
    pub seconds: Option<Scalar>,
    pub timeout_s: Option<f64>,
    /// Repeated together with its neighbours of the same cycle.
    pub cycle: Option<String>,
    /// Sent to the service when an idle phase begins.
    pub ask: Option<Request>,
    /// Times in a row.
    pub repeat: Option<u32>,
    /// Names the state at its end.
    pub mark: Option<String>,
}

/// A variant of the workload's own.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VariantTable {
    /// An allocator, or the path of a shared object.
    pub allocator: String,
    /// A shared object preloaded together with the allocator; a template.
    pub beside: Option<String>,
    /// The program brings that allocator itself: nothing is preloaded.
    #[serde(default)]
    pub linked: bool,
    /// Started instead of the service's command.
    pub command: Option<Vec<String>>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Profile {
    repetitions: Option<u32>,
    variants: Option<Vec<String>>,
    #[serde(default)]
    vars: BTreeMap<String, Scalar>,
    #[serde(default)]
    cycles: BTreeMap<String, u32>,
}

/// A number, a text or a truth value: what a variable or `seconds` may be.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Scalar {
    Integer(i64),
    Float(f64),
    Boolean(bool),
    /// A text, which may be a template.
    Text(String),
}

impl std::fmt::Display for Scalar {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Scalar::Integer(value) => value.fmt(out),
            Scalar::Float(value) => value.fmt(out),
            Scalar::Boolean(value) => value.fmt(out),
            Scalar::Text(value) => value.fmt(out),
        }
    }
}

impl Workload {
    /// Reads, applies a profile, checks. `at` is the folder or the file itself; the message has the file and the line.
    pub fn load(at: &Path, profile: Option<&str>) -> Result<Workload, String> {
        let path = if at.is_dir() { at.join("workload.toml") } else { at.to_owned() };
        let unread = |error: std::io::Error| format!("{}: {error}", path.display());
        let text = std::fs::read_to_string(&path).map_err(unread)?;
        // The parent of a bare file name is empty, which is no path.
        let parent = path.parent().filter(|parent| *parent != Path::new(""));
        let dir = std::fs::canonicalize(parent.unwrap_or(Path::new("."))).map_err(unread)?;
        Workload::parse(&text, &path, dir, profile)
    }

    /// Checks a text that is in no file; its commands run in `dir`.
    pub fn from_text(text: &str, dir: PathBuf) -> Result<Workload, String> {
        Workload::parse(text, Path::new("the workload of the command line"), dir, None)
    }

    fn parse(text: &str, path: &Path, dir: PathBuf, profile: Option<&str>) -> Result<Workload, String> {
        let path = path.display();
        let mut workload: Workload = toml::from_str(text).map_err(|error| {
            let line =
                |span: Range<usize>| format!(":{}", text[..span.start.min(text.len())].matches('\n').count() + 1);
            format!("{path}{}: {}", error.span().map_or(String::new(), line), error.message())
        })?;
        workload.dir = dir;
        let checked = workload.apply(profile).and_then(|()| workload.check());
        checked.map_err(|message| format!("{path}: {message}"))?;
        Ok(workload)
    }

    fn apply(&mut self, profile: Option<&str>) -> Result<(), String> {
        let Some(name) = profile else { return Ok(()) };
        let Some(chosen) = self.profiles.get(name).cloned() else {
            let known: Vec<_> = self.profiles.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".into() } else { known.join(", ") };
            return Err(format!("there is no profile \"{name}\"; it has: {known}"));
        };
        self.vars.extend(chosen.vars);
        self.cycles.extend(chosen.cycles);
        self.repetitions = chosen.repetitions;
        self.chosen_variants = chosen.variants;
        self.profile = Some(name.to_owned());
        Ok(())
    }

    /// The variables as text.
    pub fn vars(&self) -> Values {
        self.vars.iter().map(|(name, value)| (name.clone(), value.to_string())).collect()
    }
}

impl Phase {
    /// The length of an idle phase; `None` for the others.
    pub fn idle_seconds(&self, values: &Values) -> Result<Option<f64>, String> {
        let Some(seconds) = &self.seconds else {
            return Ok(None);
        };
        let text = template::fill(&seconds.to_string(), values)?;
        match text.parse::<f64>() {
            Ok(seconds) if seconds.is_finite() && seconds > 0.0 => Ok(Some(seconds)),
            _ => Err(format!("seconds = \"{text}\" is not a time")),
        }
    }
}

mod check;
mod digest;
#[cfg(test)]
mod tests;
