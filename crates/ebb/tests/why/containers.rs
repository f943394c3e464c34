//! `ebb` and a service in a container, as docs/containers.md says: in the container, in another one that shares its
//! processes, on the host. The containers are real ones, of runc, on the machine's /usr.
//!
//! Needs runc and root; skipped where no container can be started.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::harness::{self, Finished, output, subjects};
use nix::unistd::Uid;
use serde_json::{Value, json};
use tempfile::TempDir;
use test_needs::{needs, skip};

/// What docker and containerd leave to a container that asks for nothing.
const DEFAULT: &str = "CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP \
                       NET_BIND_SERVICE SYS_CHROOT KILL AUDIT_WRITE";
const APP_USER: u32 = 1000;
/// A verdict of retention.
const RETENTION: i32 = 10;
/// Not enough evidence; because a right is missing.
const NOT_READ: &[i32] = &[20, 30];

/// Frees every other of 20,000 blocks: 30 MB that malloc holds, and cannot return.
const SERVICE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static char *blocks[20000];
int main(void) {
    for (int i = 0; i < 20000; i++) memset(blocks[i] = malloc(3000), 1, 3000);
    for (int i = 0; i < 20000; i += 2) free(blocks[i]);
    fclose(fopen("/tmp/ready", "w"));
    for (;;) pause();
}
"#;

/// A container that is to be started, or was. Killed and removed at the end.
struct Container {
    id: String,
    bundle: TempDir,
}

impl Container {
    /// Writes a bundle: root file system, user, capabilities; the processes of `shared_with`, if it is given.
    fn new(
        user: u32,
        capabilities: &str,
        shared_with: Option<&Container>,
        programs: &Path,
        arguments: &[&str],
    ) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let bundle = subjects::bundle(&["opt"]);
        let tmp = bundle.path().join("rootfs/tmp");
        std::os::unix::fs::chown(tmp, Some(user), Some(user)).unwrap();
        let capabilities: Vec<_> = capabilities.split(' ').map(|name| format!("CAP_{name}")).collect();
        // Another user than root has none in force, as under docker.
        let in_force = if user == 0 { &capabilities[..] } else { &[] };
        let processes = match shared_with {
            Some(other) => json!({"type": "pid", "path": format!("/proc/{}/ns/pid", other.pid())}),
            None => json!({"type": "pid"}),
        };
        let bind = |to: &str, from: &Path| json!({"destination": to, "type": "bind", "source": from, "options": ["rbind", "ro"]});
        let config = json!({
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": user, "gid": user},
                "args": arguments,
                "env": ["PATH=/usr/bin:/bin"],
                "cwd": "/",
                "capabilities": {"bounding": capabilities, "effective": in_force, "permitted": in_force},
            },
            "root": {"path": "rootfs"},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
                bind("/usr", Path::new("/usr")),
                bind("/opt", programs),
            ],
            "linux": {"namespaces": [processes, {"type": "ipc"}, {"type": "mount"}]},
        });
        fs::write(bundle.path().join("config.json"), config.to_string()).unwrap();
        Self { id: format!("ebb-test-{}-{number}", std::process::id()), bundle }
    }

    fn run(self) -> Output {
        output(Command::new("runc").arg("run").arg(&self.id).current_dir(self.bundle.path()))
    }

    /// A service that has freed half of its memory; `Err` with runc's reason if none can be started here.
    fn service(user: u32, programs: &Path) -> Result<Self, String> {
        let service = Self::new(user, DEFAULT, None, programs, &["/opt/service"]);
        let log = service.bundle.path().join("log");
        let started = Command::new("runc")
            .args(["run", "--detach"])
            .arg(&service.id)
            .current_dir(service.bundle.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).unwrap())
            .status()
            .map_err(|error| error.to_string())?;
        if !started.success() {
            return Err(fs::read_to_string(log).unwrap_or_default().trim().to_owned());
        }
        let ready = service.bundle.path().join("rootfs/tmp/ready");
        harness::wait_until("the service starts", || ready.exists());
        Ok(service)
    }

    /// `ebb` with these arguments in this container: as the image's user, if none is given.
    fn exec(&self, user: Option<&str>, arguments: &[&str]) -> Output {
        let mut command = Command::new("runc");
        command.arg("exec");
        if let Some(user) = user {
            command.args(["--user", user]);
        }
        output(command.arg(&self.id).arg("/opt/ebb").args(arguments))
    }

    fn pid(&self) -> String {
        let state = output(Command::new("runc").arg("state").arg(&self.id));
        let state: Value = serde_json::from_slice(&state.stdout).expect("a container's state");
        state["pid"].to_string()
    }

    fn cgroup(&self) -> String {
        let groups = fs::read_to_string(format!("/proc/{}/cgroup", self.pid())).unwrap();
        let of = |controller: &str| {
            groups.lines().find_map(|line| {
                let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
                let found = controllers.split(',').any(|one| one == controller);
                (found && path.contains(&self.id)).then(|| path.to_owned())
            })
        };
        // The empty name is version 2.
        of("memory").or_else(|| of("")).expect("a cgroup of its own")
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let mut delete = Command::new("runc");
        delete.args(["delete", "--force"]).arg(&self.id);
        // One that ran to its end is gone already.
        let _ = output(&mut delete);
    }
}

/// A folder with `ebb` and the service, for /opt.
fn programs() -> TempDir {
    let folder = harness::folder();
    harness::copy_program(env!("CARGO_BIN_EXE_ebb").as_ref(), &folder.path().join("ebb"));
    harness::compile(&folder, "cc", "service", SERVICE, &["-O1", "-fno-builtin"]);
    folder
}

#[track_caller]
fn assert_reads(output: &Output, what: &str) {
    let said = Finished::of(output);
    assert_eq!(said.code, Some(RETENTION), "{what}: {}", said.all());
}

/// It says that a right is missing, and makes no verdict.
#[track_caller]
fn assert_closed(output: &Output, what: &str) {
    let said = Finished::of(output);
    let text = format!("{what}: {}", said.all());
    assert!(said.code.is_some_and(|code| NOT_READ.contains(&code)), "{text}");
    assert!(text.to_lowercase().contains("no right to read"), "{text}");
}

/// Starts a service for each of two users, or ends the test.
macro_rules! services {
    ($programs:expr) => {{
        if !Uid::effective().is_root() {
            skip!("only root can start containers here");
        }
        match (Container::service(0, $programs), Container::service(APP_USER, $programs)) {
            (Ok(roots), Ok(users)) => (roots, users),
            (Err(reason), _) | (_, Err(reason)) => skip!("runc starts no container here: {reason}"),
        }
    }};
}

#[test]
fn in_the_container_its_user_may_look() {
    needs!("runc");
    let folder = programs();
    let programs = folder.path();
    let (roots, users) = services!(programs);
    assert_reads(&roots.exec(None, &["why", "1"]), "root");
    assert_reads(&users.exec(None, &["why", "1"]), "the image's user");
    let root = users.exec(Some("0:0"), &["why", "1"]);
    assert_closed(&root, "root at a user's process");
}

#[test]
fn a_container_that_shares_the_processes_needs_the_user_or_two_capabilities() {
    needs!("runc");
    let folder = programs();
    let programs = folder.path();
    let (roots, users) = services!(programs);
    let tracing = format!("{DEFAULT} SYS_PTRACE");
    let both = "SYS_PTRACE DAC_READ_SEARCH";
    let why = ["/opt/ebb", "why", "1"];
    for (service, user, capabilities, what) in [
        (&roots, 0, DEFAULT, "the same user"),
        (&users, APP_USER, DEFAULT, "the same user, not root"),
        (&users, 0, &tracing, "SYS_PTRACE and DAC_OVERRIDE"),
        (&users, 0, both, "SYS_PTRACE and DAC_READ_SEARCH"),
    ] {
        let shared_with = Container::new(user, capabilities, Some(service), programs, &why);
        assert_reads(&shared_with.run(), what);
    }
    for (service, user, capabilities, what) in [
        (&users, 0, DEFAULT, "root without SYS_PTRACE"),
        (&users, 0, "SYS_PTRACE", "SYS_PTRACE alone"),
        (&roots, APP_USER, DEFAULT, "another user than root"),
    ] {
        let shared_with = Container::new(user, capabilities, Some(service), programs, &why);
        assert_closed(&shared_with.run(), what);
    }
}

#[test]
fn from_the_host_by_pid_by_identity_and_by_cgroup() {
    needs!("runc");
    let folder = programs();
    let programs = folder.path();
    let (_roots, users) = services!(programs);
    for target in [users.pid(), users.id.clone(), users.cgroup()] {
        let why = output(harness::ebb().args(["why", &target]));
        assert_reads(&why, &target);
    }
}
