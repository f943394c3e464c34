//! A service in a container: what is started in place of its command, and what is asked of the engine.
//!
//! Used by `run`, which starts a container as it starts a command: the engine's client stays in front, hands signals on and
//! ends with the container. Two sorts of engines: `client` runs images of docker, podman and nerdctl by their command
//! lines, `bundle` an unpacked root with runc or crun. Nothing of the image and of the root is changed.

use crate::results::Limits;
use std::path::Path;

mod bundle;
mod client;
mod engine;

pub use bundle::Bundle;
pub use client::{NoImage, choose};
pub use engine::{Engine, Mounted, Start};

/// The names of a trial's containers begin with this; ebb's process follows.
const NAME: &str = "ebb-trial-";

/// What the service of a trial runs in.
#[derive(Debug)]
pub struct Container {
    /// Who runs it.
    pub engine: Engine,
    /// What is run.
    pub source: Source,
    /// The engine sets them.
    pub limits: Limits,
}

/// What is run.
#[derive(Debug)]
pub enum Source {
    /// An image of the engine, and further options of its `run`.
    Image(String, Vec<String>),
    /// An unpacked root.
    Bundle(Bundle),
}

impl Container {
    /// The name of the container of a run.
    pub fn name(run_mark: &str) -> String {
        let safe = |letter: char| {
            if letter.is_ascii_alphanumeric() || "-_.".contains(letter) { letter } else { '_' }
        };
        format!("{NAME}{}", run_mark.chars().map(safe).collect::<String>())
    }

    /// The command that runs it in the foreground.
    pub fn command(&self, start: &Start) -> Result<Vec<String>, String> {
        match &self.source {
            Source::Image(image, options) => Ok(client::command(&self.engine, image, options, &self.limits, start)),
            Source::Bundle(bundle) => bundle.command(&self.engine, &self.limits, start),
        }
    }

    /// Containers of trials whose ebb is gone, with the command that removes them.
    pub fn left_over(&self) -> Vec<String> {
        let names = self.engine.containers();
        let is_gone = |name: &String| {
            let pid = name.strip_prefix(NAME).and_then(|rest| rest.split('-').next());
            pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists())
        };
        names.into_iter().filter(is_gone).map(|name| self.engine.removal(&name).join(" ")).collect()
    }
}

/// A container that was started.
#[derive(Debug, Clone)]
pub struct Running {
    /// Who runs it.
    pub engine: Engine,
    /// Its name.
    pub name: String,
}

impl Running {
    /// The number of its first process on this machine; none while it has none.
    pub fn pid(&self) -> Option<u32> {
        self.engine.pid(&self.name)
    }

    /// Whether the engine says that processes of it were killed for lack of memory.
    pub fn was_oom_killed(&self) -> bool {
        self.engine.was_oom_killed(&self.name)
    }

    /// Ends its processes and removes it.
    pub fn remove(&self) {
        self.engine.remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_that_every_engine_takes() {
        let name = Container::name("71-glibc+A=b:c/d-1");
        assert_eq!(name, "ebb-trial-71-glibc_A_b_c_d-1");
    }
}
