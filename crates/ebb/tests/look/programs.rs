//! Programs to look at.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::figures;
use crate::harness;

/// Nothing takes longer on a machine that has other things to do.
const LIMIT: Duration = Duration::from_secs(60);

/// A process with all its descendants, in a process group of its own that ends with this value.
pub struct Group(pub Child);

impl Group {
    pub fn start(command: &mut Command) -> Self {
        let child = command.process_group(0).spawn();
        Self(child.unwrap_or_else(|error| panic!("{command:?}: {error}: ci/install.sh")))
    }

    /// Starts it and waits for its word.
    pub fn ready(command: &mut Command) -> Self {
        let mut group = Self::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let mut line = String::new();
        BufReader::new(group.0.stdout.take().expect("a pipe"))
            .read_line(&mut line)
            .expect("a line");
        assert_eq!(line.trim(), "ready", "{command:?}");
        group
    }

    pub fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let all = figures::tree(self.pid());
        // Children that made groups of their own are in the list.
        for pid in all.into_iter().chain([-self.pid()]) {
            let pid = nix::unistd::Pid::from_raw(pid);
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
        let _ = self.0.wait();
    }
}

pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LIMIT, "not {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The tree of `tree.c`.
pub fn tree() -> PathBuf {
    static BUILT: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, program) = BUILT.get_or_init(|| {
        let folder = harness::folder();
        let program = harness::compile(&folder, "cc", "tree", include_str!("tree.c"), &["-O1"]);
        (folder, program)
    });
    program.clone()
}

/// Debian's gunicorn on Debian's Python, with eight workers that share 40 MB of objects of the master.
pub fn gunicorn(folder: &TempDir) -> Command {
    let text = "import gc\n\
                rows = [{'id': i, 'name': str(i) * 8} for i in range(100_000)]\n\
                gc.freeze()\n\
                def app(environ, start):\n    start('200 OK', [])\n    return [b'']\n";
    std::fs::write(folder.path().join("held.py"), text).expect("a file");
    let mut command = Command::new("gunicorn");
    command
        .args(["--preload", "--workers", "8", "--log-level", "error", "--timeout", "300"])
        // Workers write into a file of their own each second; not into anonymous memory.
        .args(["--worker-tmp-dir", "/dev/shm"])
        .arg(format!("--bind=unix:{}", folder.path().join("socket").display()))
        .arg("held:app")
        .current_dir(folder.path())
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}
