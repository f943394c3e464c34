//! An unpacked root, with the configuration of an OCI bundle or without one, run by runc or crun.
//!
//! What the service writes goes to a folder of the run: each folder of the root is the lower part of an overlay.

use super::engine::{Engine, Mounted, Start, words};

use crate::results::Limits;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// The rights of root in a container of docker.
const CAPABILITIES: [&str; 14] = [
    "CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD",
    "CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
];
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Folders of a root that are file systems of the container.
const OF_THE_CONTAINER: [&str; 3] = ["dev", "proc", "sys"];
/// The length in which a CPU quota is counted, in microseconds.
const PERIOD_US: u64 = 100_000;

/// An unpacked root.
#[derive(Debug, Clone)]
pub struct Bundle {
    root: PathBuf,
    /// The bundle's own, or what docker would give a container of root.
    config: Value,
}

impl Bundle {
    /// Reads a folder: a bundle, which has a `config.json`, or a root alone.
    pub fn read(path: &Path) -> Result<Bundle, String> {
        let problem = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let path = fs::canonicalize(path).map_err(|error| problem(&error))?;
        let file = path.join("config.json");
        if !file.is_file() {
            let is_root = ["bin", "usr", "lib", "etc"].iter().any(|name| path.join(name).is_dir());
            return match is_root {
                true => Ok(Bundle { root: path, config: plain() }),
                false => Err(format!(
                    "{}: neither a root (it has no bin, usr, lib or etc) nor an OCI bundle (no config.json)",
                    path.display()
                )),
            };
        }
        let text = fs::read_to_string(&file).map_err(|error| problem(&error))?;
        let config: Value = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        let root = path.join(config["root"]["path"].as_str().unwrap_or("rootfs"));
        if !root.is_dir() {
            return Err(format!("{}: its root {} is not there", path.display(), root.display()));
        }
        Ok(Bundle { root, config })
    }

    fn env(&self) -> Vec<String> {
        let env = self.config["process"]["env"].as_array().into_iter().flatten();
        env.filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// Whether its configuration says what is run.
    pub fn has_command(&self) -> bool {
        self.config["process"]["args"].as_array().is_some_and(|args| !args.is_empty())
    }

    /// Writes the bundle of a run, and gives the command that runs it.
    pub(super) fn command(&self, engine: &Engine, limits: &Limits, start: &Start) -> Result<Vec<String>, String> {
        let folder = start.dir.join("bundle");
        let problem = |error: std::io::Error| format!("{}: {error}", folder.display());
        fs::create_dir(&folder).map_err(problem)?;
        let overlays = overlays(&self.root, &folder).map_err(problem)?;
        let config = self.of_run(limits, start, overlays);
        fs::write(folder.join("config.json"), config.to_string()).map_err(problem)?;
        let folder = folder.display().to_string();
        let mut command = words(&engine.program, &["run", "--bundle", &folder]);
        if engine.keeps_ended() {
            // Its cgroup is read when its processes have ended.
            command.push("--keep".into());
        }
        command.push(start.name.to_owned());
        Ok(command)
    }

    fn of_run(&self, limits: &Limits, start: &Start, overlays: Vec<Value>) -> Value {
        let mut config = self.config.clone();
        config["root"] = json!({"path": self.root, "readonly": true});
        let process = &mut config["process"];
        process["terminal"] = false.into();
        if !start.arguments.is_empty() {
            process["args"] = start.arguments.into();
        }
        process["env"] = with(&self.env(), start.env).into();
        let mounts = config["mounts"].as_array().cloned().unwrap_or_default();
        let file = |mount: &Mounted| json!({"destination": mount.to, "type": "bind", "source": mount.from, "options": ["bind", "ro"]});
        // The network is this machine's, and so are the names in it.
        let names = ["/etc/hosts", "/etc/resolv.conf"].map(PathBuf::from);
        let names = names.into_iter().filter(|it| it.is_file() && self.root.join("etc").is_dir());
        let names: Vec<_> = names.map(|it| Mounted { from: it.clone(), to: it }).collect();
        let files = start.mounts.iter().chain(&names).map(file);
        config["mounts"] = overlays.into_iter().chain(mounts).chain(files).collect();
        let linux = &mut config["linux"];
        if let Some(namespaces) = linux["namespaces"].as_array_mut() {
            namespaces.retain(|it| it["type"] != "network");
        }
        if let Some(bytes) = limits.memory_max_bytes {
            linux["resources"]["memory"] = json!({"limit": bytes, "swap": bytes});
        }
        if let Some(cpus) = limits.cpus {
            let quota = (cpus * PERIOD_US as f64).round() as i64;
            linux["resources"]["cpu"] = json!({"quota": quota, "period": PERIOD_US});
        }
        config
    }
}

/// `KEY=VALUE` entries, in which later ones replace those of the same name.
fn with(entries: &[String], more: &BTreeMap<String, String>) -> Vec<String> {
    let is_replaced = |entry: &&String| entry.split_once('=').is_some_and(|(key, _)| more.contains_key(key));
    let kept = entries.iter().filter(|entry| !is_replaced(entry)).cloned();
    kept.chain(more.iter().map(|(key, value)| format!("{key}={value}"))).collect()
}

/// An overlay over each folder at the top of the root, whose upper part is in `folder`.
fn overlays(root: &Path, folder: &Path) -> std::io::Result<Vec<Value>> {
    let mut overlays = Vec::new();
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        let name = entry.file_name();
        if !entry.file_type()?.is_dir() || OF_THE_CONTAINER.iter().any(|it| name == *it) {
            continue;
        }
        let [upper, work] = ["upper", "work"].map(|part| folder.join(part).join(&name));
        for made in [&upper, &work] {
            fs::create_dir_all(made)?;
        }
        // The folder that is seen has the owner and the rights of the upper one.
        let lower = entry.metadata()?;
        chown(&upper, Some(lower.uid()), Some(lower.gid()))?;
        fs::set_permissions(&upper, fs::Permissions::from_mode(lower.mode() & 0o7777))?;
        let part = |name: &str, path: &Path| format!("{name}={}", path.display());
        overlays.push(json!({
            "destination": Path::new("/").join(&name),
            "type": "overlay",
            "source": "overlay",
            "options": [part("lowerdir", &entry.path()), part("upperdir", &upper), part("workdir", &work)],
        }));
    }
    Ok(overlays)
}

/// The configuration for a root that has none.
fn plain() -> Value {
    let mount = |to: &str, kind: &str, options: &[&str]| json!({"destination": to, "type": kind, "source": kind, "options": options});
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": [],
            "env": [PATH],
            "cwd": "/",
            "capabilities": {"bounding": CAPABILITIES, "effective": CAPABILITIES, "permitted": CAPABILITIES},
        },
        "mounts": [
            mount("/proc", "proc", &["nosuid", "noexec", "nodev"]),
            mount("/dev", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
            mount("/dev/shm", "tmpfs", &["nosuid", "noexec", "nodev", "mode=1777"]),
        ],
        "linux": {
            "namespaces": [{"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_of_the_run_replaces_that_of_the_image() {
        let own = ["A=1", "LD_PRELOAD=/x.so", "B=2"].map(str::to_owned);
        let more = BTreeMap::from([("LD_PRELOAD".to_owned(), "/dev/ebb/y.so".to_owned())]);
        assert_eq!(with(&own, &more), ["A=1", "B=2", "LD_PRELOAD=/dev/ebb/y.so"]);
    }

    #[test]
    fn a_folder_that_is_neither_root_nor_bundle_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let refusal = |expected: &str| {
            let error = Bundle::read(folder.path()).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        refusal("neither a root");
        fs::write(folder.path().join("config.json"), "{").unwrap();
        refusal("config.json: EOF");
        fs::write(folder.path().join("config.json"), "{}").unwrap();
        refusal("rootfs is not there");
        assert!(Bundle::read(Path::new("/nowhere")).unwrap_err().contains("/nowhere"));
    }

    /// What a bundle says stays, but for the terminal, the network and what the run adds.
    #[test]
    fn a_bundle_keeps_its_entry_point_user_and_folder() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["rootfs/var", "rootfs/dev", "run"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let own = json!({
            "process": {"terminal": true, "user": {"uid": 7}, "args": ["/serve"], "cwd": "/srv", "env": ["A=1"]},
            "root": {"path": "rootfs"},
            "mounts": [{"destination": "/dev"}],
            "linux": {"namespaces": [{"type": "pid"}, {"type": "network"}]},
        });
        fs::write(folder.path().join("config.json"), own.to_string()).unwrap();
        let bundle = Bundle::read(folder.path()).unwrap();
        assert!(bundle.has_command());
        std::os::unix::fs::symlink("/bin/true", folder.path().join("runc")).unwrap();
        let engine = Engine::all(None, folder.path().as_os_str(), true).unwrap().remove(0);
        let limits = Limits { memory_max_bytes: Some(64_000_000), cpus: Some(0.5) };
        let mounts = [Mounted::library("/a/libx.so".into())];
        let env = BTreeMap::from([("B".to_owned(), "2".to_owned())]);
        let start =
            Start { name: "ebb-trial-1", arguments: &[], env: &env, mounts: &mounts, dir: &folder.path().join("run") };
        let command = bundle.command(&engine, &limits, &start).unwrap();
        assert_eq!(command[1..3], ["run", "--bundle"]);
        assert_eq!(command[4..], ["--keep", "ebb-trial-1"]);
        let written = fs::read_to_string(Path::new(&command[3]).join("config.json")).unwrap();
        let config: Value = serde_json::from_str(&written).unwrap();
        let process = &config["process"];
        assert_eq!(
            (&process["terminal"], &process["user"]["uid"], &process["args"], &process["cwd"]),
            (&json!(false), &json!(7), &json!(["/serve"]), &json!("/srv"))
        );
        assert_eq!(process["env"], json!(["A=1", "B=2"]));
        let places: Vec<_> = config["mounts"].as_array().unwrap().iter().collect();
        let places: Vec<_> = places.iter().map(|it| it["destination"].as_str().unwrap()).collect();
        assert_eq!(places, ["/var", "/dev", "/dev/ebb/libx.so"]);
        assert_eq!(config["linux"]["namespaces"], json!([{"type": "pid"}]));
        assert_eq!(config["linux"]["resources"]["memory"]["limit"], 64_000_000);
        assert_eq!(config["linux"]["resources"]["cpu"]["quota"], 50_000);
    }
}
