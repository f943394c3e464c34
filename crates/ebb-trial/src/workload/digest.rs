//! What identifies a workload: a digest of everything that drives the service.
//!
//! Two trials with one digest had the same load in the same phases. The service's own code is not part of
//! it, so that a new version of a service can be compared with the last; nor are variants, repetitions,
//! time limits and descriptions.

use super::{Phase, Ready, Request, Workload};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::Path;

impl Workload {
    /// The digest, as hexadecimal digits. Files of the workload's folder that a load or `prepare` names as an
    /// argument count with their contents.
    pub fn digest(&self) -> String {
        let mut hasher = WorkloadHasher(Sha256::new());
        hasher.text("name", &self.workload.name);
        for (name, value) in self.vars() {
            hasher.text(&format!("var {name}"), &value);
        }
        for (name, rounds) in &self.cycles {
            hasher.text(&format!("cycle {name}"), &rounds.to_string());
        }
        for companion in &self.companions {
            hasher.text("companion", &companion.name);
            hasher.list("command", &companion.command);
            hasher.env(&companion.env);
        }
        hasher.list("service", &self.service.command);
        hasher.env(&self.service.env);
        hasher.ready(&self.service.ready);
        if let Some(prepare) = &self.prepare {
            hasher.list("prepare", &prepare.command);
            hasher.files(&self.dir, &prepare.command);
        }
        for phase in &self.phases {
            hasher.phase(phase, &self.dir);
        }
        hasher.request("live", self.live.as_ref());
        hasher.request("trim", self.trim.as_ref());
        let digest = hasher.0.finalize();
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// What has been hashed so far; names and lengths keep one thing from looking like another.
struct WorkloadHasher(Sha256);

impl WorkloadHasher {
    fn bytes(&mut self, name: &str, value: &[u8]) {
        self.0.update(format!("{name} {}\n", value.len()));
        self.0.update(value);
    }

    fn text(&mut self, name: &str, value: &str) {
        self.bytes(name, value.as_bytes());
    }

    fn list(&mut self, name: &str, values: &[String]) {
        self.text(name, &values.len().to_string());
        for value in values {
            self.text("item", value);
        }
    }

    fn files(&mut self, dir: &Path, command: &[String]) {
        for word in command {
            let inside = !word.starts_with('/') && !word.contains('{');
            if let Some(bytes) = inside.then(|| std::fs::read(dir.join(word)).ok()).flatten() {
                self.bytes(&format!("file {word}"), &bytes);
            }
        }
    }

    fn env(&mut self, env: &BTreeMap<String, String>) {
        for (name, value) in env {
            self.text(&format!("env {name}"), value);
        }
    }

    fn ready(&mut self, ready: &Ready) {
        match ready {
            Ready::Http(text) => self.text("http", text),
            Ready::Tcp(text) => self.text("tcp", text),
            Ready::Line(text) => self.text("line", text),
            Ready::Command(words) => self.list("command", words),
        }
    }

    fn phase(&mut self, phase: &Phase, dir: &Path) {
        self.text("phase", &phase.name);
        self.text("kind", phase.kind.label());
        if let Some(command) = &phase.command {
            self.list("command", command);
            self.files(dir, command);
        }
        for (name, value) in [
            ("seconds", phase.seconds.as_ref().map(ToString::to_string)),
            ("cycle", phase.cycle.clone()),
            ("repeat", phase.repeat.map(|repeat| repeat.to_string())),
            ("mark", phase.mark.clone()),
        ] {
            value.iter().for_each(|value| self.text(name, value));
        }
    }

    fn request(&mut self, name: &str, request: Option<&Request>) {
        let Some(request) = request else { return };
        self.text(name, request.http.as_deref().unwrap_or_default());
        self.list("command", request.command.as_deref().unwrap_or_default());
    }
}
