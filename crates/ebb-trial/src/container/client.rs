//! Images of docker, podman and nerdctl: found and run by their command lines, which are alike.

use super::engine::{Engine, Start, words};

use crate::results::Limits;

/// Why there is no image to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoImage {
    /// No engine has it; with what each said.
    Unknown(String),
    /// Engines are there, and none of them answers.
    NoEngine(String),
    /// The engine is there, and may not be used.
    NoRights(String),
}

/// The first of the engines that has the image, and the image's architecture as Go has it: `amd64`.
pub fn choose(engines: Vec<Engine>, image: &str) -> Result<(Engine, String), NoImage> {
    let (mut said, mut answers, mut refused) = (Vec::new(), false, false);
    for engine in engines {
        match engine.inspect(&["image", "inspect", image]) {
            Ok(said) => {
                let architecture = said["Architecture"].as_str().unwrap_or_default().to_owned();
                return Ok((engine, architecture));
            }
            Err(reason) => {
                let lower = reason.to_lowercase();
                answers |= ["no such image", "not known", "no such object", "not found"]
                    .iter()
                    .any(|text| lower.contains(text));
                refused |= lower.contains("permission denied");
                said.push(format!("{}: {reason}", engine.name()));
            }
        }
    }
    let said = said.join("; ");
    Err(match (answers, refused) {
        (true, _) => NoImage::Unknown(said),
        (false, true) => NoImage::NoRights(said),
        (false, false) => NoImage::NoEngine(said),
    })
}

/// The command that runs the image. Options of the service come after ours, so that they count.
pub(super) fn command(engine: &Engine, image: &str, options: &[String], limits: &Limits, start: &Start) -> Vec<String> {
    let mut command = words(&engine.program, &["run", "--name", start.name, "--pull", "never"]);
    let mut add = |words: &[&str]| command.extend(words.iter().map(|word| (*word).to_owned()));
    if engine.has_labels() {
        // With SELinux a container could not read the library.
        add(&["--security-opt", "label=disable"]);
    }
    let has = |option: &str| options.iter().any(|word| word == option);
    if !has("--network") && !has("--publish") {
        add(&["--network", "host"]);
    }
    for mount in start.mounts {
        let (from, to) = (mount.from.display(), mount.to.display());
        add(&["--mount", &format!("type=bind,source={from},destination={to},readonly")]);
    }
    add(&options.iter().map(String::as_str).collect::<Vec<_>>());
    for (key, value) in start.env {
        add(&["--env", &format!("{key}={value}")]);
    }
    if let Some(bytes) = limits.memory_max_bytes {
        let bytes = bytes.to_string();
        add(&["--memory", &bytes, "--memory-swap", &bytes]);
    }
    if let Some(cpus) = limits.cpus {
        add(&["--cpus", &cpus.to_string()]);
    }
    command.push(image.to_owned());
    command.extend_from_slice(start.arguments);
    command
}
