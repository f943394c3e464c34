//! In a memory cgroup with 5 % of headroom no process dies, and its charge stays.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use ebb_process::cgroup::Place;

use crate::figures;
use crate::forked;
use crate::harness;
use crate::programs::{self, Group, wait_until};
use crate::verbs;

/// The kernel charges in batches of 64 pages for each processor.
const BATCH: u64 = 64 * 4096 * 16;

/// A memory cgroup for a test.
pub struct Tight {
    folder: PathBuf,
    usage: &'static str,
    limit: &'static str,
}

impl Tight {
    /// Makes one below that of this test; `None` where that may not be done.
    pub fn make(name: &str) -> Option<Self> {
        let own = Place::of(std::process::id().cast_signed())?;
        let (usage, limit) = match own.version {
            1 => ("memory.usage_in_bytes", "memory.limit_in_bytes"),
            _ => ("memory.current", "memory.max"),
        };
        let folder = own.folder.join(format!("ebb-look-{name}-{}", std::process::id()));
        fs::create_dir(&folder).ok()?;
        let made = Self { folder, usage, limit };
        made.folder.join(limit).exists().then_some(made)
    }

    /// `command` inside of it.
    pub fn inside(&self, command: &Command) -> Command {
        let mut inside = Command::new("sh");
        inside
            .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
            .arg(self.folder.join("cgroup.procs"))
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            inside.env(name, value.unwrap_or_default());
        }
        if let Some(folder) = command.get_current_dir() {
            inside.current_dir(folder);
        }
        inside
    }

    pub fn charge(&self) -> u64 {
        let text = fs::read_to_string(self.folder.join(self.usage)).expect("its charge");
        text.trim().parse().expect("a number")
    }

    /// Sets the limit to 5 % above the charge.
    pub fn tighten(&self) {
        let limit = self.charge() / 20 * 21;
        fs::write(self.folder.join(self.limit), limit.to_string()).expect("its limit");
    }
}

impl Drop for Tight {
    fn drop(&mut self) {
        // Its last processes leave a moment after they have ended.
        for _ in 0..100 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

fn assert_all_live(tight: &Tight, root: i32) {
    tight.tighten();
    let (before, processes) = (tight.charge(), figures::tree(root));
    verbs::each(root, |verb| {
        assert_eq!(figures::tree(root), processes, "after {verb} in a tight cgroup");
        let after = tight.charge();
        assert!(
            after.abs_diff(before) <= before / 100 + BATCH,
            "after {verb}: charge {before} -> {after}"
        );
    });
}

#[test]
fn no_process_of_a_forked_tree_dies_in_a_tight_cgroup() {
    let Some(tight) = Tight::make("tree") else {
        eprintln!("skipped: no memory cgroup can be made here");
        return;
    };
    let mut command = Command::new(programs::tree());
    command.args(["small", "100"]);
    let tree = Group::ready(&mut tight.inside(&command));
    assert_all_live(&tight, tree.pid());
}

#[test]
fn no_worker_of_gunicorn_dies_in_a_tight_cgroup() {
    let Some(tight) = Tight::make("gunicorn") else {
        eprintln!("skipped: no memory cgroup can be made here");
        return;
    };
    let folder = harness::folder();
    let command = programs::gunicorn(&folder);
    let server = Group::start(tight.inside(&command).stdout(Stdio::null()));
    wait_until("eight workers and a master", || figures::tree(server.pid()).len() == 9);
    forked::settle(server.pid());
    assert_all_live(&tight, server.pid());
}
