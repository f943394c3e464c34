//! The programs that run containers, and what they are asked about one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ebb_process::program::locate;
use serde_json::Value;

/// A program that runs containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Engine {
    /// Found on PATH, or named.
    pub program: PathBuf,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Docker,
    Podman,
    Nerdctl,
    Runc,
    Crun,
}

/// The clients of images, and then what runs an unpacked root, each in the order in which they are tried.
const KINDS: [(&str, Kind); 5] = [
    ("docker", Kind::Docker),
    ("podman", Kind::Podman),
    ("nerdctl", Kind::Nerdctl),
    ("runc", Kind::Runc),
    ("crun", Kind::Crun),
];

impl Engine {
    /// The engines on `search_path`. If one is named, by its name or a path, that one alone.
    pub fn all(named: Option<&str>, search_path: &std::ffi::OsStr, runs_roots: bool) -> Result<Vec<Engine>, String> {
        let of = |kind: Kind| matches!(kind, Kind::Runc | Kind::Crun) == runs_roots;
        let fitting = || KINDS.iter().filter(|(_, kind)| of(*kind));
        let known = fitting().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let what = if runs_roots { "an unpacked root" } else { "an image" };
        if let Some(named) = named {
            let file = Path::new(named).file_name().and_then(|name| name.to_str());
            let (_, kind) = fitting()
                .find(|(name, _)| Some(*name) == file)
                .ok_or(format!("--engine {named}: {what} is run by {known}"))?;
            let program = locate(named.as_ref(), search_path).map_err(|error| format!("--engine {error}"))?;
            // The trial may start it in another folder.
            let program = std::path::absolute(&program).unwrap_or(program);
            return Ok(vec![Engine { program, kind: *kind }]);
        }
        let found: Vec<Engine> = fitting()
            .filter_map(|(name, kind)| {
                let program = locate(name.as_ref(), search_path).ok()?;
                Some(Engine { program, kind: *kind })
            })
            .collect();
        if found.is_empty() {
            return Err(format!("{what} is run by {known}, and none of them is on PATH"));
        }
        Ok(found)
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        KINDS.iter().find(|(_, kind)| *kind == self.kind).map_or("", |(name, _)| name)
    }

    pub(super) fn keeps_ended(&self) -> bool {
        self.kind == Kind::Runc
    }

    /// Whether labels of SELinux can be switched off for one container.
    pub(super) fn has_labels(&self) -> bool {
        matches!(self.kind, Kind::Docker | Kind::Podman)
    }

    fn is_runtime(&self) -> bool {
        matches!(self.kind, Kind::Runc | Kind::Crun)
    }

    fn ask(&self, arguments: &[&str]) -> Result<String, String> {
        ask(&words(&self.program, arguments))
    }

    /// What it says of a container, or of an image.
    pub(super) fn inspect(&self, arguments: &[&str]) -> Result<Value, String> {
        let text = self.ask(arguments)?;
        let value: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        Ok(match value {
            Value::Array(mut items) if !items.is_empty() => items.swap_remove(0),
            other => other,
        })
    }

    pub(super) fn pid(&self, name: &str) -> Option<u32> {
        let pid = if self.is_runtime() {
            self.inspect(&["state", name]).ok()?["pid"].as_u64()?
        } else {
            self.inspect(&["inspect", name]).ok()?["State"]["Pid"].as_u64()?
        };
        u32::try_from(pid).ok().filter(|pid| *pid > 0)
    }

    pub(super) fn was_oom_killed(&self, name: &str) -> bool {
        !self.is_runtime()
            && self.inspect(&["inspect", name]).is_ok_and(|it| it["State"]["OOMKilled"].as_bool() == Some(true))
    }

    pub(super) fn removal(&self, name: &str) -> Vec<String> {
        if self.is_runtime() {
            return words(&self.program, &["delete", "--force", name]);
        }
        // With the volumes that are its alone.
        words(&self.program, &["rm", "--force", "--volumes", name])
    }

    pub(super) fn remove(&self, name: &str) {
        // An engine waits for the end of what it removes; what was killed has ended. One that is gone already is no error.
        if !self.is_runtime() {
            let _ = self.ask(&["kill", name]);
        }
        let _ = ask(&self.removal(name));
    }

    pub(super) fn containers(&self) -> Vec<String> {
        let text = match self.kind {
            // Both write the same; crun writes names alone.
            Kind::Runc | Kind::Crun => self.ask(&["list", "--quiet"]),
            _ => self.ask(&["ps", "--all", "--format", "{{.Names}}"]),
        };
        text.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    }
}

/// Runs a command to its end: what it wrote, or the first line of its error.
fn ask(words: &[String]) -> Result<String, String> {
    let (program, arguments) = words.split_first().ok_or("no command")?;
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    Err(line.unwrap_or("it says nothing of the reason").to_owned())
}

/// A command of words that do not change.
pub(super) fn words(program: &Path, words: &[&str]) -> Vec<String> {
    let program = program.display().to_string();
    std::iter::once(program).chain(words.iter().map(|word| (*word).to_owned())).collect()
}

/// Where a library lies in a container. `/dev` is a file system in memory of every container, so that the image may be
/// read-only, and nothing is left in an unpacked root.
const LIBRARIES: &str = "/dev/ebb";

/// One start of a container.
#[derive(Debug)]
pub struct Start<'a> {
    /// Its name.
    pub name: &'a str,
    /// In place of the image's own arguments, where there are any.
    pub arguments: &'a [String],
    /// Added to the image's environment.
    pub env: &'a BTreeMap<String, String>,
    /// Files of this machine that are seen in it.
    pub mounts: &'a [Mounted],
    /// An empty folder, which stays until the container is gone.
    pub dir: &'a Path,
}

/// A file of this machine that is seen in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// Here.
    pub from: PathBuf,
    /// In the container.
    pub to: PathBuf,
}

impl Mounted {
    /// A library, at the place where libraries of a trial are seen.
    pub fn library(from: PathBuf) -> Mounted {
        let to = Path::new(LIBRARIES).join(from.file_name().unwrap_or_default());
        Mounted { from, to }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_found_on_the_path_or_by_name() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["podman", "crun"] {
            std::os::unix::fs::symlink("/bin/true", folder.path().join(name)).unwrap();
        }
        let search = folder.path().as_os_str();
        let names = |named, runs_roots| -> Result<Vec<&'static str>, String> {
            Ok(Engine::all(named, search, runs_roots)?.iter().map(Engine::name).collect())
        };
        assert_eq!(names(None, false), Ok(vec!["podman"]));
        assert_eq!(names(Some("podman"), false), Ok(vec!["podman"]));
        assert_eq!(names(None, true), Ok(vec!["crun"]));
        for (named, expected) in
            [("docker", "docker: no such command"), ("crun", "docker, podman, nerdctl"), ("lxc", "docker")]
        {
            assert!(names(Some(named), false).unwrap_err().contains(expected), "{named}");
        }
        let nothing = Engine::all(None, std::ffi::OsStr::new("/nowhere"), true).unwrap_err();
        assert!(nothing.contains("runc, crun"), "{nothing}");
    }

    #[test]
    fn the_reason_of_a_failed_command_is_its_last_line() {
        let fails = words(Path::new("/bin/sh"), &["-c", "echo a >&2; echo 'b c' >&2; exit 3"]);
        assert_eq!(ask(&fails), Err("b c".to_owned()));
        assert!(ask(&words(Path::new("/nowhere/docker"), &[])).unwrap_err().contains("/nowhere"));
    }
}
