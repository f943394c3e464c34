//! `ebb top`: what every process, container and unit of this machine holds, live.
//!
//! One thread reads (`reader`), one waits for keys (`screen`); the loop here gives what they send to the state (`model`), which
//! is drawn (`draw`).

use std::io::{self, IsTerminal};
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::arguments;
use crate::exit::{Exit, Failure};
use crate::terminal;
use model::{Event, Model, View, Wish};
use rows::Row;
use screen::Screen;

mod draw;
mod model;
mod reader;
mod rows;
mod screen;
mod words;

const EXAMPLES: &str = "Examples:
  ebb top --groups               containers and units, by what they hold; F1 shows the keys
  ebb top --once                 processes as a table, for a pipe
  ebb top --json                 the same figures for a script";

/// The arguments of `ebb top`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Show containers, units and other cgroups instead of processes
    #[arg(long, short)]
    groups: bool,

    /// Print a table and end; heaps are read for at most 10 s, those of the largest processes first
    #[arg(long)]
    once: bool,

    /// Print JSON and end (docs/json.md)
    #[arg(long)]
    json: bool,

    /// Time between two ticks
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = every)]
    every: Duration,

    /// CPU time that ebb top may use, in per cent of one core
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = budget)]
    budget: f64,
}

impl Args {
    /// Whether it ends after one look.
    pub fn looks_once(&self) -> bool {
        self.once || self.json
    }
}

fn every(text: &str) -> Result<Duration, String> {
    let time = arguments::time(text)?;
    if time < LEAST_EVERY { Err("at least 100ms".to_owned()) } else { Ok(time) }
}

/// As a part of one core.
fn budget(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim_end().parse::<f64>().ok();
    match number.filter(|percent| (0.1..=100.0).contains(percent)) {
        Some(percent) => Ok(percent / 100.0),
        None => Err("write a number from 0.1 to 100, which is per cent of one core".to_owned()),
    }
}

/// All columns fit.
const COLUMNS_OF_A_FILE: u16 = 160;
/// Looks more often than this would do nothing else.
const LEAST_EVERY: Duration = Duration::from_millis(100);

/// Runs the command.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    let view = if args.groups { View::Groups } else { View::Processes };
    if args.looks_once() { once(args, view) } else { live(args, view) }
}

fn live(args: &Args, view: View) -> Result<Exit, Failure> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::usage("ebb top needs a terminal")
            .remedy("--once prints a table, --json the same figures for a script"));
    }
    let (events, inbox) = mpsc::channel();
    let mut screen = Screen::take(&events)?;
    let wishes = reader::start(args.budget, args.every, events);
    let size = screen.0.size()?;
    let mut model = Model::new((size.width, size.height), view);
    let has_colours = terminal::has_colours();
    loop {
        screen.0.draw(|frame| draw::draw(&model, frame, has_colours))?;
        let Ok(first) = inbox.recv() else { return Ok(Exit::Ok) };
        // All that waits is taken before the screen is drawn again.
        for event in std::iter::once(first).chain(inbox.try_iter()) {
            for wish in model.update(event) {
                // A reader that is gone has nothing more to say.
                if wish == Wish::Quit || wishes.send(wish).is_err() {
                    return Ok(Exit::Ok);
                }
            }
        }
    }
}

/// The layout of `--json` (`docs/json.md`).
#[derive(Serialize)]
struct Once<'a> {
    taken: String,
    processes: Vec<&'a Row>,
    groups: Vec<&'a Row>,
    /// Processes whose heaps were not read.
    unread: usize,
}

fn once(args: &Args, view: View) -> Result<Exit, Failure> {
    let (figures, unread) = reader::once();
    let width = if io::stdout().is_terminal() { columns() } else { COLUMNS_OF_A_FILE };
    let mut model = Model::new((width, u16::MAX), view);
    model.update(Event::Figures(figures));
    if args.json {
        let all = Once {
            taken: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            processes: model.figures.processes.iter().collect(),
            groups: model.figures.groups.iter().collect(),
            unread,
        };
        terminal::print_json(&all, true)?;
    } else {
        terminal::print(&words::table(&model))?;
    }
    if unread > 0 {
        terminal::warn(&format!("the heaps of {unread} processes were not read in time"));
    }
    Ok(Exit::Ok)
}

fn columns() -> u16 {
    ratatui::crossterm::terminal::size().map_or(COLUMNS_OF_A_FILE, |(width, _)| width)
}
