//! `ebb fleet`: where held memory costs a fleet most, and which workloads need a look. From a Prometheus that scrapes
//! `ebb agent`, or from folders of `ebb snap`.

mod names;
mod series;
mod snaps;

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use jiff::tz::TimeZone;

use crate::arguments;
use crate::commands::snap;
use crate::exit::{Exit, Failure};
use crate::{prometheus, terminal};
use ebb_diagnosis::facts::fleet::{History, Reason};
use ebb_diagnosis::fleet;
use ebb_report::fleet as report;
use names::By;
use series::Wanted;

const EXAMPLES: &str = "Examples:
  ebb fleet rank --prometheus http://localhost:9090                    what each workload held for a week
  ebb fleet rank --prometheus http://localhost:9090 --by namespace --for 30d --page fleet.html
  ebb fleet rank --snaps /var/lib/ebb --price 0.0042                   from folders of ebb snap
  ebb fleet watch-list --prometheus http://localhost:9090              growth, allocators that do not serve";

/// Show which workloads of a fleet hold freed memory, and what that costs.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Rank workloads by what they hold: on average, at their peaks, at the peaks of their nodes
    Rank(Rank),
    /// List workloads whose live heap grows, whose allocator does not serve, or which hold memory again
    WatchList(WatchList),
}

/// Where the figures are from.
#[derive(Debug, clap::Args)]
#[group(skip)]
struct Source {
    #[command(flatten)]
    server: prometheus::Args,

    /// Folder with one folder or file of ebb snap for each service, instead of a server
    #[arg(long, value_name = "DIR", conflicts_with = "prometheus", required_unless_present = "prometheus")]
    snaps: Option<PathBuf>,

    /// What a row stands for
    #[arg(long, value_enum, default_value = "workload")]
    by: By,

    /// How far to look back
    #[arg(long = "for", value_name = "TIME", default_value = "7d", value_parser = period)]
    time: Duration,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Rank {
    #[command(flatten)]
    source: Source,

    /// Price of one GB of requested memory per hour, such as 0.0042
    #[arg(long, value_name = "PER_GB_HOUR", value_parser = price)]
    price: Option<f64>,

    /// Rows that are shown; --json has all
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,

    /// Write a page with the table and the course of the first workloads
    #[arg(short, long, value_name = "FILE")]
    page: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct WatchList {
    #[command(flatten)]
    source: Source,
}

fn period(text: &str) -> Result<Duration, String> {
    let allowed = Duration::from_secs(600)..=Duration::from_secs(366 * 86_400);
    Some(arguments::time(text)?).filter(|time| allowed.contains(time)).ok_or_else(|| "between 10m and 366d".to_owned())
}

fn price(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|it| it.is_finite() && *it > 0.0);
    number.ok_or_else(|| "write a number above 0".to_owned())
}

impl Source {
    fn read(&self, wanted: Wanted) -> Result<History, Failure> {
        match (self.server.server()?, &self.snaps) {
            (Some(server), _) => series::read(&server, self.by, self.time, wanted),
            (None, Some(folder)) => snaps::read(folder, self.by, self.time),
            (None, None) => Err(Failure::usage("neither --prometheus nor --snaps is given")),
        }
    }
}

/// Runs the command.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    match &args.verb {
        Verb::Rank(args) => rank(args),
        Verb::WatchList(args) => watch_list(args),
    }
}

fn rank(args: &Rank) -> Result<Exit, Failure> {
    let history = args.source.read(Wanted::Ranking { requests: args.price.is_some() })?;
    let ranking = fleet::rank(&history, args.price);
    drop(history);
    let zone = TimeZone::system();
    let by = args.source.by.label();
    let page = args.page.as_ref().map(|path| {
        let page = report::render_page(&ranking, by, args.top, &zone);
        snap::write(path, &page.map_err(|error| Failure::new(Exit::Internal, error))?, None)
    });
    if args.source.json {
        terminal::print_json(&ranking, true)?;
    } else {
        terminal::print(&report::render(&ranking, by, args.top, &zone))?;
    }
    page.transpose()?;
    let seen = ranking.all.share_looked > 0.0;
    Ok(if seen { Exit::Ok } else { Exit::NotEnoughEvidence })
}

fn watch_list(args: &WatchList) -> Result<Exit, Failure> {
    let history = args.source.read(Wanted::WatchList)?;
    let list = fleet::watch_list(&history);
    history.cautions.iter().for_each(|caution| terminal::warn(caution));
    if args.source.json {
        terminal::print_json(&list, true)?;
    } else {
        terminal::print(&report::render_list(&list))?;
    }
    Ok(Exit::of_all(list.iter().map(|watched| match watched.reason {
        Reason::LiveHeapGrows => Exit::LiveHeapGrows,
        Reason::NotInCharge => Exit::NotInCharge,
        Reason::RetentionIsBack => Exit::Retention,
    })))
}
