//! Services that fork: celery's pool, PostgreSQL's backends, redis while it saves. With `EBB_LONG`.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::forked::{assert_untouched, settle};
use crate::harness::{self, wait_until};
use crate::programs::{self, Group};

/// Whether this is a run that takes its time, with `program` installed.
fn is_asked(program: &str, name: &str) -> bool {
    if !harness::is_long() {
        eprintln!("skipped: {name} is tested with EBB_LONG=1");
        return false;
    }
    let is_there = is_in_path(program);
    if !is_there {
        eprintln!("skipped: no {program} here");
    }
    is_there
}

fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    Path::new(program).is_file() || std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[test]
fn redis_shares_its_memory_with_the_child_that_saves() {
    if !is_asked("redis-server", "redis") {
        return;
    }
    let folder = harness::folder();
    let socket = folder.path().join("socket");
    let mut command = Command::new("redis-server");
    command
        .args(["--port", "0", "--save", "", "--enable-debug-command", "yes", "--dir"])
        .arg(folder.path())
        .arg("--unixsocket")
        .arg(&socket)
        .stdout(Stdio::null());
    let server = Group::start(&mut command);
    let ask = |words: &[&str]| {
        let output = Command::new("redis-cli").arg("-s").arg(&socket).args(words).output();
        String::from_utf8_lossy(&output.expect("redis-cli").stdout).into_owned()
    };
    wait_until("redis answers", || ask(&["ping"]).contains("PONG"));
    ask(&["debug", "populate", "200000", "key", "200"]);
    // A key a hundredth of a second, so that the child is there for long.
    ask(&["config", "set", "rdb-key-save-delay", "10000"]);
    ask(&["bgsave"]);
    wait_until("it saves", || programs::pids_of(server.pid()).len() == 2);
    settle(server.pid());
    assert_untouched(server.pid());
}

#[test]
fn backends_of_postgresql_keep_what_they_share() {
    let folder = Path::new("/usr/lib/postgresql");
    let versions = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let programs: Option<PathBuf> = versions.map(|entry| entry.path().join("bin")).max();
    let programs = programs.unwrap_or_default();
    if !is_asked(&programs.join("postgres").display().to_string(), "PostgreSQL") {
        return;
    }
    let folder = harness::folder();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let data = folder.path().join("data");
    // It refuses to run as root.
    let as_its_user = |program: &Path| {
        let mut command = match nix::unistd::geteuid().is_root() {
            true => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
                command.arg(program);
                command
            }
            false => Command::new(program),
        };
        command.current_dir("/").stdout(Stdio::null());
        command
    };
    let mut initdb = as_its_user(&programs.join("initdb"));
    let made = initdb.args(["--no-sync", "-A", "trust", "-U", "postgres", "-D"]).arg(&data).status();
    assert!(made.expect("initdb").success());
    let mut command = as_its_user(&programs.join("postgres"));
    command.arg("-D").arg(&data).arg("-k").arg(folder.path()).args([
        "-c", "listen_addresses=", "-c", "max_connections=60", "-c", "autovacuum=off", "-c", "bgwriter_lru_maxpages=0",
    ]);
    let server = Group::start(command.stderr(Stdio::null()));
    let psql = || {
        let mut command = Command::new(programs.join("psql"));
        command.args(["-U", "postgres", "-qtA", "-h"]).arg(folder.path());
        command
    };
    wait_until("postgres answers", || {
        let output = psql().args(["-c", "select 1"]).stderr(Stdio::null()).output();
        output.is_ok_and(|output| output.stdout.starts_with(b"1"))
    });
    let mut clients = Vec::new();
    for _ in 0..50 {
        let mut client = Group::start(psql().stdin(Stdio::piped()).stdout(Stdio::null()));
        let input = client.0.stdin.as_mut().expect("a pipe");
        writeln!(input, "select count(*) from pg_class, pg_attribute;").expect("it reads");
        clients.push(client);
    }
    wait_until("50 backends", || programs::pids_of(server.pid()).len() > 50);
    settle(server.pid());
    assert_untouched(server.pid());
}

#[test]
fn a_pool_of_celery_keeps_what_it_shares() {
    // Of `ci/python-env.sh benches`, or the first one in the path.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let own = root.join("benches/.venv/bin/celery").display().to_string();
    let celery = if is_in_path(&own) { own } else { "celery".to_owned() };
    if !is_asked(&celery, "celery") {
        return;
    }
    let folder = harness::folder();
    for name in ["queue", "processed"] {
        std::fs::create_dir(folder.path().join(name)).expect("a folder");
    }
    // Messages in files: no broker is needed.
    let text = "from celery import Celery\n\
                app = Celery('held', broker='filesystem://')\n\
                app.conf.broker_transport_options = {'data_folder_in': 'queue', 'data_folder_out': 'queue',\n\
                \x20   'processed_folder': 'processed'}\n\
                rows = [{'id': i, 'name': str(i) * 8} for i in range(100_000)]\n";
    std::fs::write(folder.path().join("held.py"), text).expect("a file");
    let mut command = Command::new(&celery);
    command
        .args(["-A", "held", "worker", "--pool", "prefork", "--concurrency", "8"])
        .args(["--loglevel", "error", "--without-gossip", "--without-mingle", "--without-heartbeat"])
        .current_dir(folder.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("C_FORCE_ROOT", "1")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let server = Group::start(&mut command);
    wait_until("eight of a pool", || programs::pids_of(server.pid()).len() >= 9);
    settle(server.pid());
    assert_untouched(server.pid());
}
