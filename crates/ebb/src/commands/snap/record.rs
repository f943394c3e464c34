//! `ebb snap --to DIR`: one record every minute, over restarts and replicas, for `ebb diff DIR`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::arguments;
use crate::exit::{Exit, Failure};
use crate::signals::Ending;
use crate::terminal;
use ebb_node::look;
use ebb_process::follow::Followed;
use ebb_process::record::{FORMAT, Record, Replica};
use ebb_process::recording::{self, NotOpened, Writer};
use ebb_process::tree::Tree;

/// Looks more often than this would do nothing else.
const LEAST_EVERY: Duration = Duration::from_millis(100);

/// The arguments of a recording.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Record until Ctrl-C into this folder, over restarts and replicas; ebb diff DIR compares two periods of it
    #[arg(long, value_name = "DIR", conflicts_with = "output")]
    to: Option<PathBuf>,

    /// Time between two records
    #[arg(long, value_name = "TIME", default_value = "1m", requires = "to", value_parser = every)]
    every: Duration,

    /// Delete days that are older
    #[arg(long, value_name = "TIME", default_value = "30d", requires = "to", value_parser = arguments::time)]
    keep: Duration,
}

fn every(text: &str) -> Result<Duration, String> {
    let time = arguments::time(text)?;
    if time < LEAST_EVERY { Err("at least 100ms".to_owned()) } else { Ok(time) }
}

impl Args {
    /// The folder, where a recording is wanted.
    pub fn folder(&self) -> Option<&Path> {
        self.to.as_deref()
    }

    /// Records until a signal comes, or until the folder takes no more.
    pub fn record(&self, target: &str, with_children: bool, to: &Path) -> Result<Exit, Failure> {
        let ending = Ending::listen()?;
        let mut followed = Followed::of(target)?;
        let mut writer = Writer::open(to, self.keep).map_err(|error| {
            let exit = if matches!(error, NotOpened::InUse) { Exit::TryAgain } else { Exit::NotWritten };
            Failure::at(exit, to, error)
        })?;
        warn_of_another(to, target)?;
        let mut was_there = true;
        let mut next = Instant::now();
        loop {
            let look = followed.look();
            let replicas = look.replicas.iter().filter_map(|tree| {
                let alone = Tree::of_pids(tree.pids().iter().copied().take(1).collect());
                let tree = if with_children || look.cgroup.is_some() { tree } else { &alone };
                Replica::read(tree, look.cgroup.as_ref(), look::allocator_of)
            });
            let now = Timestamp::now().as_millisecond();
            let record = Record {
                format: FORMAT,
                at: Timestamp::from_millisecond(now)
                    .map_err(|error| Failure::new(Exit::Internal, error.to_string()))?,
                every_s: self.every.as_secs_f64(),
                target: target.to_owned(),
                replicas: replicas.collect(),
            };
            if record.replicas.is_empty() && was_there {
                terminal::warn(&format!("{target} has ended; looking for it again"));
            }
            was_there = !record.replicas.is_empty();
            writer.append(&record).map_err(|error| Failure::at(Exit::NotWritten, to, error))?;
            // On a grid; a missed point is left out, not made up for.
            while next <= Instant::now() {
                next += self.every;
            }
            if !ending.sleep_until(next) {
                return Ok(Exit::Ok);
            }
        }
    }
}

/// One folder is for one service, which may have had another pid or name.
fn warn_of_another(folder: &Path, target: &str) -> Result<(), Failure> {
    let last = recording::last(folder).map_err(|error| Failure::at(Exit::Usage, folder, error))?;
    if let Some(last) = last.filter(|last| last.target != target) {
        terminal::warn(&format!(
            "{} has records of {}; those of {target} follow, as of the same service",
            folder.display(),
            last.target
        ));
    }
    Ok(())
}
