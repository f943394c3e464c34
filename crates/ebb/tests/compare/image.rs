//! `ebb compare --image`: real containers. Quick ones are of runc, on a bundle of the machine's /usr; an image of podman is made
//! of a program of the machine.
//!
//! Need root; skipped where no container can be started.

use crate::harness::{self, Finished, subjects, wait_until};
use crate::workload::{ebb, fixture, list, median};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;

/// A bundle whose program is python3 with the fixture's service, and a folder for results.
struct Bundle {
    folder: TempDir,
    out: TempDir,
}

impl Bundle {
    fn new(env: &[&str]) -> Self {
        let bundle = Self { folder: subjects::bundle(&["srv"]), out: harness::folder() };
        let service = bundle.path().join("rootfs/srv/service.py");
        fs::copy(fixture().join("service.py"), service).unwrap();
        let env: Vec<&str> = ["PATH=/usr/bin:/bin"].iter().chain(env).copied().collect();
        let config = json!({
            "ociVersion": "1.0.2",
            "process": {
                "terminal": true,
                "user": {"uid": 1000, "gid": 1000},
                "args": ["/usr/bin/python3", "service.py"],
                "env": env,
                "cwd": "/srv",
            },
            "root": {"path": "rootfs"},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
                {"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]},
            ],
            "linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "network"}]},
        });
        fs::write(bundle.path().join("config.json"), config.to_string()).unwrap();
        bundle
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// `ebb compare` of it under a short load, with these words; then what is run in it.
    fn compare(&self, line: &str, service: &str) -> Command {
        let mut command = ebb("compare --ready http://127.0.0.1:{port}/health --cycles 1 -n 1");
        let rest = if line.contains("--rest") { "" } else { "--rest 300ms" };
        command.args(harness::words(rest));
        command.args(["--burst", "http://127.0.0.1:{port}/burst -n 3 -c 1", "--engine", "runc"]);
        command.arg("--image").arg(self.path()).arg("-o").arg(self.out.path());
        command.args(harness::words(line)).arg("--").args(harness::words(service));
        command.env("EBB_LIB", harness::ebbmalloc());
        command
    }

    fn results(&self) -> Value {
        let text = fs::read_to_string(self.out.path().join("results.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    }
}

const SERVICE: &str = "/usr/bin/python3 service.py {port}";

fn runc(line: &str) -> String {
    let output = Command::new("runc").args(harness::words(line)).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Containers of trials that have ended; other tests run at the same time.
fn left_over(names: &str) -> Vec<&str> {
    let is_gone = |name: &&str| {
        let pid = name.strip_prefix("ebb-trial-").and_then(|rest| rest.split('-').next());
        pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists())
    };
    names.split_whitespace().filter(is_gone).collect()
}

/// Whether runc can start containers here; if not, the test is listed as skipped.
fn can_start() -> bool {
    if !Uid::effective().is_root() {
        test_needs::note("only root can start containers here");
        return false;
    }
    static REFUSAL: OnceLock<Option<String>> = OnceLock::new();
    let refusal = REFUSAL.get_or_init(|| {
        let bundle = Bundle::new(&[]);
        let config = fs::read_to_string(bundle.path().join("config.json")).unwrap();
        let (from, to) = (r#""/usr/bin/python3","service.py""#, r#""/usr/bin/true""#);
        let plain = config.replace(from, to).replace("\"terminal\":true", "\"terminal\":false");
        fs::write(bundle.path().join("config.json"), plain).unwrap();
        let name = format!("ebb-test-start-{}", std::process::id());
        let run = Command::new("runc").args(["run", &name]).current_dir(bundle.path()).output();
        let output = run.unwrap();
        (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
    });
    if let Some(reason) = refusal {
        test_needs::note(&format!("runc starts no container here: {reason}"));
    }
    refusal.is_none()
}

#[test]
fn a_bundle_runs_on_libraries_of_its_own_and_on_mounted_ones() {
    test_needs::needs!("runc");
    if !can_start() {
        return;
    }
    let bundle = Bundle::new(&[]);
    // Not one of the root's: it is mounted.
    let copy = bundle.path().join("libcopy.so");
    fs::copy(harness::jemalloc(), &copy).unwrap();
    let variants = format!("--variants glibc,ebbmalloc,jemalloc,copy={}", copy.display());
    let finished = Finished::by(&mut bundle.compare(&variants, SERVICE));
    finished.expect(0, &["Verdict"], &["in the image: python3 (glibc, "]);
    let trial = bundle.results();
    assert_eq!(trial["workload"]["image"], bundle.path().to_str().unwrap());
    let libraries: Vec<_> = list(&trial["variants"]).iter().map(|it| &it["library"]).collect();
    let of_root = harness::jemalloc();
    assert_eq!(
        libraries,
        [&Value::Null, &json!("/dev/ebb/libebbmalloc.so"), &json!(of_root), &json!("/dev/ebb/libcopy.so")]
    );
    for variant in list(&trial["variants"]) {
        assert_eq!(variant["runs"][0]["outcome"]["kind"], "complete", "{variant}");
        let samples = list(&variant["runs"][0]["samples"]);
        let most = samples.iter().filter_map(|it| it["rss_bytes"].as_u64()).max();
        assert!(most.is_some_and(|bytes| bytes > 30_000_000), "the burst is seen: {most:?}");
    }
    // The burst of the fixture is written nowhere in the root, and nothing of ebb either.
    let root = bundle.path().join("rootfs");
    assert_eq!(fs::read_dir(root.join("dev")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(root.join("srv")).unwrap().count(), 1);
    assert_eq!(left_over(&runc("list -q")), Vec::<&str>::new());
}

#[test]
fn what_the_image_preloads_is_the_first_variant_and_the_others_replace_it() {
    test_needs::needs!("runc");
    if !can_start() {
        return;
    }
    let preload = format!("LD_PRELOAD={}", harness::jemalloc().display());
    let bundle = Bundle::new(&[&preload]);
    let finished = Finished::by(&mut bundle.compare("--variants jemalloc,glibc", SERVICE));
    finished.expect(0, &["Verdict"], &["in the image: python3 (glibc, ", " preloads /usr/lib"]);
    let trial = bundle.results();
    for variant in list(&trial["variants"]) {
        assert_eq!(variant["runs"][0]["outcome"]["kind"], "complete", "{variant}");
    }
    assert_eq!(trial["variants"][1]["library"], Value::Null);
}

#[test]
fn a_limit_is_the_container_s() {
    test_needs::needs!("runc");
    if !can_start() {
        return;
    }
    let bundle = Bundle::new(&[]);
    let finished = Finished::by(&mut bundle.compare("--memory-max 30M --variants glibc", SERVICE));
    finished.expect(0, &["OOM-killed", "limit 30 MB"], &[]);
    let oom = &bundle.results()["variants"][0]["runs"][0]["oom"];
    assert!(oom["kills"].as_u64().is_some_and(|kills| kills > 0), "{oom}");
}

#[test]
fn what_cannot_be_started_is_one_line() {
    test_needs::needs!("runc");
    let bundle = Bundle::new(&[]);
    let at = |name: &str| bundle.path().join(name);
    fs::create_dir(at("empty")).unwrap();
    let root = at("rootfs");
    let start = "compare --burst http://127.0.0.1:{port}/ --ready 127.0.0.1:{port} --variants glibc";
    for (line, code, expected) in [
        (format!("--image {}", at("empty").display()), 64, "neither a root"),
        ("--image /nowhere/root -- x".to_owned(), 64, "/nowhere/root: No such file"),
        (format!("--image {} --engine lxc -- x", root.display()), 64, "is run by runc, crun"),
        ("--image some/image --engine runc".to_owned(), 64, "docker, podman, nerdctl"),
        ("--engine runc -- sleep 9".to_owned(), 64, "no image is given"),
    ] {
        let finished = Finished::by(&mut ebb(&format!("{start} {line}")));
        finished.expect(code, &[], &[expected]);
        assert_eq!(finished.stderr.trim().lines().count(), 1, "{}", finished.stderr);
    }
    if !can_start() {
        return;
    }
    let finished = Finished::by(&mut ebb(&format!("{start} --image {}", root.display())));
    finished.expect(64, &[], &["its service is not known; give the service's command after `--`"]);
    for (service, expected) in
        [("/usr/bin/nothing", "no such file"), ("/bin/sh -c 'echo last words >&2; exit 3'", "| last words")]
    {
        let finished = Finished::by(&mut bundle.compare("--variants glibc", service));
        finished.expect(32, &[], &["first look at the image: the service ended with status"]);
        assert!(finished.stderr.to_lowercase().contains(expected), "{}", finished.stderr);
    }
    assert_eq!(left_over(&runc("list -q")), Vec::<&str>::new());
}

#[test]
fn ctrl_c_removes_the_container() {
    test_needs::needs!("runc");
    if !can_start() {
        return;
    }
    let bundle = Bundle::new(&[]);
    let mut command = bundle.compare("--rest 300s --variants glibc", SERVICE);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let name = format!("ebb-trial-{}-glibc", child.id());
    let summary = bundle.out.path().join("logs/glibc-1/burst-1.out");
    wait_until("the burst never ended", || fs::metadata(&summary).is_ok_and(|file| file.len() > 0));
    assert!(runc("list -q").contains(&name), "{}", runc("list -q"));
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    Finished::of(&child.wait_with_output().unwrap()).expect(130, &["run 1 was interrupted"], &[]);
    assert!(!runc("list -q").contains(&name), "{}", runc("list -q"));
}

/// The fixture's server, compiled with these flags, as `to`.
fn server(to: &Path, flags: &[&str]) {
    let folder = harness::folder();
    let source = fs::read_to_string(fixture().join("server.c")).unwrap();
    harness::copy_program(&harness::compile(&folder, "gcc", "server", &source, flags), to);
}

#[test]
fn a_static_program_is_not_tried() {
    test_needs::needs!("runc");
    if !can_start() {
        return;
    }
    let bundle = Bundle::new(&[]);
    server(&bundle.path().join("rootfs/srv/server"), &["-static"]);
    let finished = Finished::by(&mut bundle.compare("--variants glibc,ebbmalloc", "/srv/server {port}"));
    finished.expect(20, &["statically linked"], &["in the image: server (statically"]);
    for variant in list(&bundle.results()["variants"]) {
        let said = variant["unavailable"].as_str().unwrap_or_default();
        assert!(said.ends_with("so nothing can be preloaded"), "{variant}");
    }
}

/// podman with a store of its own, and limits that root may set without CAP_SYS_RESOURCE.
struct Podman {
    folder: TempDir,
}

impl Podman {
    /// With an image of redis-server, the fixture's server and their libraries; `Err` with the reason if no image can be
    /// made here.
    fn new() -> Result<Self, String> {
        let podman = Self { folder: harness::folder() };
        let at = |name: &str| podman.folder.path().join(name);
        let limits = "default_ulimits = [\"nofile=1024:1024\", \"nproc=1000:1000\"]";
        let engine = "runtime = \"runc\"\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"";
        fs::write(at("containers.conf"), format!("[containers]\n{limits}\n[engine]\n{engine}\n")).unwrap();
        let (graph, run) = (at("store"), at("state"));
        let storage = format!("[storage]\ndriver = \"vfs\"\ngraphroot = {graph:?}\nrunroot = {run:?}\n");
        fs::write(at("storage.conf"), storage).unwrap();
        let root = at("root");
        for folder in ["usr/bin", "usr/local/bin", "tmp", "etc"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        let program = Path::new("/usr/bin/redis-server");
        harness::copy_program(program, &root.join("usr/bin/redis-server"));
        harness::copy_libraries(program, &root);
        server(&root.join("usr/local/bin/server"), &[]);
        let archive = at("root.tar");
        let packed = Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&root).arg(".").status();
        assert!(packed.unwrap().success());
        let arguments = r#"CMD ["/usr/bin/redis-server", "--port", "7391", "--save", ""]"#;
        let output = podman
            .set(&mut Command::new("podman"))
            .args(["import", "--change", arguments, "--change", "WORKDIR /tmp"])
            .arg(&archive)
            .arg("localhost/ebb-test:1")
            .output()
            .map_err(|error| error.to_string())?;
        if output.status.success() { Ok(podman) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    }

    fn set<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let at = |name: &str| self.folder.path().join(name);
        command
            .env("CONTAINERS_CONF", at("containers.conf"))
            .env("CONTAINERS_STORAGE_CONF", at("storage.conf"))
            .env("EBB_LIB", harness::ebbmalloc())
    }

    fn names(&self) -> String {
        let mut command = Command::new("podman");
        let output = self.set(command.args(["ps", "--all", "--format", "{{.Names}}"])).output();
        String::from_utf8_lossy(&output.unwrap().stdout).into_owned()
    }

    fn written(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }
}

/// redis-server of Debian, which is linked to jemalloc, as an image of podman and as a service of a compose file; a server
/// whose Dockerfile is changed and built.
#[test]
fn an_image_of_podman_runs_as_it_compose_and_its_dockerfile_say() {
    test_needs::needs!("podman", "runc", "redis-server", "redis-tools");
    if !harness::is_long() {
        test_needs::skip!("EBB_LONG=1 is not set");
    }
    if !can_start() {
        return;
    }
    let podman = match Podman::new() {
        Ok(podman) => podman,
        Err(reason) => test_needs::skip!("podman imports no image here: {reason}"),
    };
    let load = |what: &str, port: u16| {
        let mut command = ebb(what);
        let benchmark = format!("redis-benchmark -p {port} -n 20000 -t set -d 1000 -r 20000 -q");
        command.args(["--load", &benchmark, "--ready", &format!("127.0.0.1:{port}")]);
        command.args(harness::words("--rest 500ms --cycles 1 -n 1 --json --engine podman"));
        Finished::by(podman.set(&mut command))
    };
    let image = "localhost/ebb-test:1";
    let finished = load(&format!("compare --image {image} --variants jemalloc,glibc,ebbmalloc"), 7391);
    finished.expect(0, &[], &["in the image: redis-server (glibc, ", "is linked to /"]);
    let trial = finished.json();
    let said = trial["variants"][1]["unavailable"].as_str().unwrap_or_default();
    assert!(said.contains("redis-server is linked to"), "{said}");
    for at in [0, 2] {
        assert_eq!(trial["variants"][at]["runs"][0]["outcome"]["kind"], "complete", "{trial}");
    }

    let compose = podman.written(
        "compose.yaml",
        &format!(
            "services:\n  cache:\n    image: {image}\n    network_mode: host\n    mem_limit: 200m\n    \
             command: /usr/bin/redis-server --port 7392 --save ''\n"
        ),
    );
    let compose = format!("compare --compose {} --variants jemalloc", compose.display());
    let trial = load(&compose, 7392).json();
    assert_eq!(trial["variants"][0]["runs"][0]["limit_bytes"], 200 << 20, "{trial}");

    let dockerfile =
        podman.written("context/Dockerfile", &format!("FROM {image}\nCMD [\"/usr/local/bin/server\", \"7393\"]\n"));
    let mut build = Command::new("podman");
    build.args(["build", "--tag", "localhost/ebb-test:3"]).arg(dockerfile.parent().unwrap());
    assert!(podman.set(&mut build).status().unwrap().success());
    let mut command = ebb("compare --image localhost/ebb-test:3 --variants glibc,ebbmalloc --engine podman");
    command.args(harness::words("--ready http://127.0.0.1:7393/ --rest 3s --cycles 1 -n 3 --json"));
    command.args(["--burst", "http://127.0.0.1:7393/burst -n 3 -c 1", "--dockerfile"]);
    let trial = Finished::by(podman.set(command.arg(&dockerfile))).json();
    let built = &trial["variants"][2];
    assert_eq!(built["name"], "ebbmalloc, built", "{trial}");
    let held = |at| median(&trial, at, "after_rest");
    assert!(held(2) < held(0) / 2.0, "{built}");
    let now = fs::read_to_string(&dockerfile).unwrap();
    assert!(!now.contains("ebbmalloc"), "only a copy is changed: {now}");

    load("compare --image localhost/ebb-test:2", 7391).expect(32, &[], &["no engine has the image"]);
    assert_eq!(left_over(&podman.names()), Vec::<&str>::new());
}
