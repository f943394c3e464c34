//! `ebb diff`: what grew between two files of `ebb snap` or two heap profiles, what each phase of a program left, or what changed between two
//! periods of a recording.

mod when;

use std::path::{Path, PathBuf};

use jiff::ZonedDateTime;

use crate::commands::{autoscale, life as points, profile, snap};
use crate::exit::{Exit, Failure};
use crate::{paint, terminal};
use ebb_diagnosis::facts::periods::{Autoscaled, Comparison};
use ebb_diagnosis::{autoscale as simulation, difference, life, periods};
use ebb_process::profile::Profile;
use ebb_process::record::Record;
use ebb_process::recording;
use ebb_report::profile::{WithStacks, changes, render_changes};
use when::Span;

/// Stacks that are shown.
const MOST_STACKS: usize = 15;

const EXAMPLES: &str = "Examples:
  ebb diff before.json after.json                                 two files of ebb snap
  ebb diff monday.pb.gz tuesday.pb.gz                             two heap profiles: which stacks grew
  ebb diff life.json                                              a file of ebb snap --label: what each phase left
  ebb diff recording --after 14:00                                a deploy at 14:00: all before it, all after it
  ebb diff recording --before yesterday --after today             two days
  ebb diff recording --before 2026-11-16..2026-11-22 --after 2026-11-24T14:00..now -o report.html

Times are local. A moment is 14:00, 2026-11-24T14:00 or 17h (ago); a day is 2026-11-24 or yesterday.";

/// The arguments of `ebb diff`.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "ebb diff [OPTIONS] BEFORE AFTER\n       ebb diff [OPTIONS] FILE\n       ebb diff [OPTIONS] DIR --before TIME --after TIME",
    after_help = EXAMPLES
)]
pub struct Args {
    /// The earlier snapshot; alone, a file of `ebb snap --label` or the folder of a recording
    #[arg(value_name = "BEFORE")]
    before: PathBuf,

    /// The later snapshot
    #[arg(value_name = "AFTER", conflicts_with_all = ["before_time", "after_time"])]
    after: Option<PathBuf>,

    /// The first period of a recording: up to a moment, a day, or FROM..TO [default: all before the second]
    #[arg(long = "before", id = "before_time", value_name = "TIME")]
    before_time: Option<String>,

    /// The second period: from a moment on, a day, or FROM..TO [default: all after the first]
    #[arg(long = "after", id = "after_time", value_name = "TIME")]
    after_time: Option<String>,

    /// Write a page with both periods in one picture
    #[arg(short, long, value_name = "FILE", conflicts_with = "after")]
    output: Option<PathBuf>,

    /// Simulate the replicas and requests that Kubernetes' autoscalers would have given each period:
    /// target=70%,request=512Mi,min=1,max=20. The request is the recorded limit unless given
    #[arg(long, value_name = "SETTINGS", conflicts_with = "after", value_parser = autoscale::parse)]
    autoscale: Option<autoscale::Settings>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Whether something is asked for that only a recording has.
    fn has_periods(&self) -> bool {
        let times = self.before_time.is_some() || self.after_time.is_some();
        times || self.output.is_some() || self.autoscale.is_some()
    }
}

/// Runs the command.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    match &args.after {
        Some(after) => between_files(args, after),
        None if args.before.is_file() && !args.has_periods() => phases(args),
        None => between_periods(args),
    }
}

fn between_profiles(args: &Args, after: &Path) -> Result<Exit, Failure> {
    let (before, after) = (profile::open(&args.before)?, profile::open(after)?);
    if args.json {
        terminal::print_json(&changes(&before, &after), true)?;
    } else {
        let columns = terminal::columns();
        terminal::print(&render_changes(&before, &after, MOST_STACKS, columns))?;
    }
    Ok(Exit::Ok)
}

fn between_files(args: &Args, after: &Path) -> Result<Exit, Failure> {
    if profile::is_profile(&args.before) {
        return between_profiles(args, after);
    }
    let (before, after) = (snap::read(&args.before)?, snap::read(after)?);
    let difference = difference::of(&before, &after);
    let profiles = Profile::of_snapshot(&before).zip(Profile::of_snapshot(&after));
    if args.json {
        let stacks = profiles.map(|(before, after)| changes(&before, &after));
        terminal::print_json(&WithStacks { all: &difference, stacks }, true)?;
    } else {
        let mut text = ebb_report::growth::render_difference(&difference);
        if terminal::has_colours() {
            text = paint::difference(&text);
        }
        if let Some((before, after)) = profiles {
            let columns = terminal::columns();
            text += &format!("\n{}", render_changes(&before, &after, MOST_STACKS, columns));
        }
        terminal::print(&text)?;
    }
    Ok(Exit::Ok)
}

fn phases(args: &Args) -> Result<Exit, Failure> {
    let life = life::of(&points::read(&args.before)?);
    if args.json {
        terminal::print_json(&life, true)?;
    } else {
        terminal::print(&ebb_report::life::render(&life, terminal::columns()))?;
    }
    Ok(Exit::Ok)
}

fn between_periods(args: &Args) -> Result<Exit, Failure> {
    if args.before.is_file() {
        let what = format!("{} is a file, not the folder of a recording", args.before.display());
        return Err(Failure::usage(what));
    }
    let now = ZonedDateTime::now();
    let (before, after) =
        when::periods(args.before_time.as_deref(), args.after_time.as_deref(), &now).map_err(Failure::usage)?;
    let recording = recording::read(&args.before).map_err(|error| {
        Failure::at(Exit::Usage, &args.before, error).remedy("it must be a folder of ebb snap --to")
    })?;
    for note in &recording.notes {
        terminal::warn(note);
    }
    let [before, after] = [before, after].map(|span| part(&recording.records, span));
    let mut comparison =
        periods::compare(before, after).ok_or_else(|| nothing(&args.before, &recording.records, before.is_empty()))?;
    if let Some(settings) = args.autoscale {
        let limit = simulation::limit(after).or_else(|| simulation::limit(before));
        autoscale::target(&settings, limit)?;
        let simulate = |records| {
            simulation::simulate(&simulation::looks(records), &settings, limit)
                .map_err(|error| Failure::new(Exit::NotEnoughEvidence, error))
        };
        let (before, after) = (simulate(before)?, simulate(after)?);
        comparison.autoscale = Some(Autoscaled { settings, before, after });
    }
    let page = args.output.as_ref().map(|path| {
        let page = ebb_report::periods::render_page(&comparison, before, after, now.time_zone())
            .map_err(|error| Failure::new(Exit::Internal, error))?;
        snap::write(path, &page, None)
    });
    if args.json {
        terminal::print_json(&comparison, true)?;
    } else {
        terminal::print(&ebb_report::periods::render(&comparison, now.time_zone()))?;
    }
    page.transpose()?;
    Ok(if is_clear(&comparison) { Exit::Ok } else { Exit::NotEnoughEvidence })
}

/// The records of a time.
fn part(records: &[Record], span: Span) -> &[Record] {
    let index = |at: Option<jiff::Timestamp>, none: usize| {
        at.map_or(none, |at| records.partition_point(|record| record.at < at))
    };
    let (from, to) = (index(span.from, 0), index(span.to, records.len()));
    &records[from..to.max(from)]
}

fn nothing(folder: &Path, records: &[Record], before: bool) -> Failure {
    let period = if before { "--before" } else { "--after" };
    let what = match (records.first(), records.last()) {
        (Some(first), Some(last)) => format!(
            "{}: no record of a running process in the period of {period}; the records are from {} to {}",
            folder.display(),
            first.at,
            last.at
        ),
        _ => format!("{}: no records; ebb snap TARGET --to writes them", folder.display()),
    };
    Failure::new(Exit::NotEnoughEvidence, what)
}

/// Whether there is an answer: a change, or that there is none.
fn is_clear(comparison: &Comparison) -> bool {
    use ebb_statistics::Reading;
    let levels = &comparison.levels;
    levels.iter().any(|level| level.reading == Some(Reading::Real))
        || levels[0].reading == Some(Reading::NoRealDifference)
}
