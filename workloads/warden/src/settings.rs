//! What an operator sets.

use std::path::PathBuf;

/// The command line.
#[derive(Debug, Clone, clap::Parser)]
#[command(version, about)]
pub struct Settings {
    /// Where it listens, on 127.0.0.1.
    #[arg(long)]
    pub port: u16,
    /// The folder of the log of JSON lines; made if it is not there.
    #[arg(long)]
    pub log: PathBuf,
    /// Length after which a file of the log is followed by the next.
    #[arg(long, default_value_t = 1_000_000)]
    pub file_bytes: u64,
    /// Files of the log that the dashboard shows.
    #[arg(long, default_value_t = 7)]
    pub shown: usize,
    /// How the dashboard reads the log.
    #[arg(long, value_enum, default_value = "whole")]
    pub read: Read,
    /// Dashboards that are made at once; 0 sets no limit.
    #[arg(long, default_value_t = 0)]
    pub at_once: usize,
    /// Visitors that are remembered; the one that came first is forgotten first.
    #[arg(long, default_value_t = 50_000)]
    pub remember: usize,
}

/// How the dashboard reads the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Read {
    /// Every file into memory, every line into an entry, then the figures.
    Whole,
    /// From where the last reader stopped, line by line into the figures.
    Tail,
}
