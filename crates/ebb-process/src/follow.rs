//! A target that is followed over its restarts.
//!
//! Used by `ebb compare --live` and `ebb snap --to`. A cgroup, a unit, a container and a name are looked up again at each look.
//! A process that was given by its number and has ended is found again by its program and its command
//! line.

use std::path::PathBuf;

use procfs::process::all_processes;

use super::cgroup::Place;
use super::environ;
use super::target::{self, NotFound};
use super::tree::{self, Tree};
use crate::snapshot::TargetKind;

/// A target and what stood for it at the last look.
#[derive(Debug)]
pub struct Followed {
    asked: String,
    kind: TargetKind,
    /// Of a target given by number: what it is found again by.
    command: Option<Command>,
    /// The first processes at the last look at which there were any, with the time they started.
    roots: Vec<(i32, u64)>,
}

/// A program and how it was called.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Command {
    program: PathBuf,
    words: Vec<String>,
}

/// What stands for a target now.
#[derive(Debug)]
pub struct Look {
    /// Its processes; empty while it is gone.
    pub tree: Tree,
    /// The same by the processes that stand for it, each with its descendants; a cgroup is one.
    pub replicas: Vec<Tree>,
    /// None of its first processes was there before.
    pub restarted: bool,
    /// Its cgroup, if the target was named by one.
    pub cgroup: Option<Place>,
}

impl Followed {
    /// Begins; the target must be there now.
    pub fn of(asked: &str) -> Result<Self, NotFound> {
        let resolved = target::resolve(asked)?;
        let command = match (resolved.target.kind, resolved.roots.first()) {
            (TargetKind::Pid, Some(&pid)) => command(pid),
            _ => None,
        };
        let mut followed = Self { asked: asked.to_owned(), kind: resolved.target.kind, command, roots: Vec::new() };
        followed.look();
        Ok(followed)
    }

    /// What stands for it now.
    pub fn look(&mut self) -> Look {
        let trees = |roots: &[i32]| -> Vec<Tree> { roots.iter().filter_map(|&root| Tree::of(root).ok()).collect() };
        let (roots, replicas, cgroup) = match self.kind {
            TargetKind::Pid => {
                let roots: Vec<i32> = self.process().into_iter().collect();
                (roots.clone(), trees(&roots), None)
            }
            _ => match target::resolve(&self.asked) {
                Ok(resolved) if resolved.cgroup.is_some() => {
                    let tree = Tree::of_pids(resolved.roots.clone());
                    (resolved.roots, vec![tree], resolved.cgroup)
                }
                Ok(resolved) => (resolved.roots.clone(), trees(&resolved.roots), None),
                Err(_) => (Vec::new(), Vec::new(), None),
            },
        };
        let now: Vec<(i32, u64)> = roots.iter().filter_map(|&pid| Some((pid, tree::identity(pid)?.0))).collect();
        let restarted = !now.is_empty() && !self.roots.is_empty() && !now.iter().any(|root| self.roots.contains(root));
        if !now.is_empty() {
            self.roots = now;
        }
        Look { tree: joined(&replicas), replicas, restarted, cgroup }
    }

    /// The process that was given by its number, or what was started in its place.
    fn process(&self) -> Option<i32> {
        if let Some(&(pid, started)) = self.roots.first() {
            if tree::identity(pid).is_some_and(|(now, _)| now == started) {
                return Some(pid);
            }
        } else if let Ok(pid) = self.asked.parse() {
            return Some(pid);
        }
        let wanted = self.command.as_ref()?;
        let own = std::process::id() as i32;
        let parents: Vec<(i32, i32)> = all_processes()
            .ok()?
            .flatten()
            .filter(|process| process.pid != own && command(process.pid).as_ref() == Some(wanted))
            .filter_map(|process| Some((process.pid, process.stat().ok()?.ppid)))
            .collect();
        // A master and its workers have one command line: the master.
        parents.iter().find(|(_, parent)| !parents.iter().any(|(pid, _)| pid == parent)).map(|(pid, _)| *pid)
    }
}

fn command(pid: i32) -> Option<Command> {
    let (_, program) = tree::identity(pid)?;
    let words = environ::command_line(pid);
    (!words.is_empty()).then_some(Command { program, words })
}

/// The processes of all of them.
fn joined(replicas: &[Tree]) -> Tree {
    let mut pids = Vec::new();
    for &pid in replicas.iter().flat_map(Tree::pids) {
        if !pids.contains(&pid) {
            pids.push(pid);
        }
    }
    Tree::of_pids(pids)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn sleeper(word: &str) -> Child {
        Command::new("sleep").args(["600", word]).stdin(Stdio::null()).spawn().unwrap()
    }

    #[test]
    fn a_process_that_ends_is_found_again_by_its_command() {
        // A number of seconds that no other test sleeps.
        let word = format!("0.{}", std::process::id());
        let mut first = sleeper(&word);
        let mut followed = Followed::of(&first.id().to_string()).unwrap();
        // The child may not have become the program yet when it was looked at first.
        followed.command = loop {
            let now = command(first.id() as i32);
            if now.as_ref().is_some_and(|now| now.words.contains(&word)) {
                break now;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        };
        assert!(!followed.look().restarted);
        first.kill().unwrap();
        first.wait().unwrap();
        assert!(followed.look().tree.pids().is_empty());
        let mut second = sleeper(&word);
        let pid = second.id() as i32;
        let found = loop {
            let look = followed.look();
            if !look.tree.pids().is_empty() {
                break look;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        };
        assert!(found.restarted);
        assert_eq!(found.tree.pids(), [pid]);
        assert!(!followed.look().restarted, "told once");
        second.kill().unwrap();
        second.wait().unwrap();
    }

    #[test]
    fn what_is_not_there_is_refused() {
        assert!(Followed::of("4194999").is_err());
    }
}
