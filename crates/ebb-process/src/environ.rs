//! The environment of a process: the one that it was started with, which its loader and its allocator
//! have read, and the one that it has now, which its children get.
//!
//! The first is the kernel's (`/proc/PID/environ`). The second is followed from libc's `environ`. A
//! variable that is only in the second was set by the program itself, too late for a loader or an
//! allocator that have looked already.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procfs::process::Process;

use super::charge::{self, Unreadable};
use super::patience::unless_stuck;

/// Linux: three quarters of the largest stack that a program starts with, 8 MiB.
const MOST_TEXT_BYTES: u64 = 6 << 20;
/// After so many processes that do not answer, no command line is read any more.
const MOST_SILENT: usize = 5;

/// Variables and their values; of two with one name the first counts, as for getenv.
pub type Variables = BTreeMap<OsString, OsString>;

/// What the process was started with.
pub fn at_start(pid: i32) -> Result<Variables, Unreadable> {
    let bytes = texts(pid, "environ").map_err(|error| charge::io_reason(&error))?;
    Ok(variables(bytes.split(|&byte| byte == 0)))
}

/// The words of its command line; none of one that does not answer, or has ended.
pub fn command_line(pid: i32) -> Vec<String> {
    // Those of all processes are searched for a name: each that does not answer costs a second.
    static SILENT: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: only a count.
    if SILENT.load(Ordering::Relaxed) >= MOST_SILENT {
        return Vec::new();
    }
    let Some(read) = unless_stuck(Duration::from_secs(1), move || texts(pid, "cmdline")) else {
        SILENT.fetch_add(1, Ordering::Relaxed);
        return Vec::new();
    };
    let bytes = read.unwrap_or_default();
    let words = bytes.split(|&byte| byte == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// A file of texts in the memory of process `pid`, which says itself where they lie: no more of it than a program can be
/// started with.
fn texts(pid: i32, name: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(format!("/proc/{pid}/{name}"))?.take(MOST_TEXT_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What the process has now.
pub fn now(pid: i32) -> Result<Variables, Unreadable> {
    let process = Process::new(pid).map_err(charge::reason)?;
    let entries = charge::environment_strings(&process)?;
    Ok(variables(entries.iter().map(Vec::as_slice)))
}

fn variables<'a>(entries: impl Iterator<Item = &'a [u8]>) -> Variables {
    let mut variables = Variables::new();
    for entry in entries {
        let Some(at) = entry.iter().position(|&byte| byte == b'=') else {
            continue;
        };
        let name = OsStr::from_bytes(&entry[..at]).to_owned();
        variables.entry(name).or_insert_with(|| OsString::from_vec(entry[at + 1..].to_vec()));
    }
    variables
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_first_of_two_counts() {
        let entries: [&[u8]; 4] = [b"A=1", b"A=2", b"rubbish", b"B="];
        let variables = variables(entries.into_iter());
        assert_eq!(variables.get(OsStr::new("A")), Some(&"1".into()));
        assert_eq!(variables.get(OsStr::new("B")), Some(&"".into()));
        assert_eq!(variables.len(), 2);
    }

    /// A shell that changes its own environment keeps it to itself, so a program that calls putenv.
    #[test]
    fn a_variable_that_the_program_sets_is_seen_apart() {
        let code = "import os,sys; os.environ['LATER'] = 'yes'; del os.environ['GONE']\n\
                    print(flush=True); sys.stdin.read()";
        let mut child = Command::new("python3")
            .args(["-c", code])
            .env("EARLY", "1")
            .env("GONE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut byte = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut byte).unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let (start, now) = (at_start(pid).unwrap(), now(pid).unwrap());
        drop(child.stdin.take());
        child.wait().unwrap();
        let has = |variables: &Variables, name: &str| variables.contains_key(OsStr::new(name));
        assert!(has(&start, "EARLY") && has(&start, "GONE") && !has(&start, "LATER"));
        assert!(has(&now, "EARLY") && !has(&now, "GONE") && has(&now, "LATER"));
    }
}
