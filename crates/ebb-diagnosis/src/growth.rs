//! The verdict over several looks: what grows, and with what.

use super::findings::{LEAST_BYTES, megabytes};
use super::ledger::{has_all_heaps, owners};
use super::next::{self, argument, rounded};
use crate::facts::diagnosis::{Cause, Diagnosis, Verdict, VerdictKind};
use crate::facts::growth::{Growth, LoadDependence, Point, Series, Trend};
use ebb_allocators::Allocator;
use ebb_process::snapshot::{Runtime, Snapshot};
use ebb_statistics::slope::{self, End, Slope};

mod bursts;
pub mod causes;
pub mod steps;

use bursts::{IDLE, NO_WORK};

/// A growth below this over the time watched is noise: a buffer, a cache that fills.
const LEAST_GROWTH: f64 = 2_000_000.0;
/// And below this part of the present size.
const LEAST_PART: f64 = 0.02;
/// A rise below this may be a few pages: no reason to watch for longer.
const LEAST_RISE: f64 = 500_000.0;
/// Held memory is a reason from this part of the whole on, as in the verdict of one look.
const REASON: f64 = 0.2;
/// Growth that would take longer than this to matter is named, and no reason to watch for longer.
const LONGEST: f64 = 86_400.0;
/// A time that would be enough is this much longer than the one that is computed.
const MARGIN: f64 = 1.5;
/// No shorter time than this is recommended.
const SHORTEST: f64 = 30.0;

/// One look in sums; `start_s` is the time of the first.
pub fn point(diagnosis: &Diagnosis, start_s: f64) -> Point {
    let (snapshot, ledger) = (&diagnosis.snapshot, &diagnosis.ledger);
    let read = has_all_heaps(snapshot);
    let swap = snapshot.total(|process| process.status.swap).unwrap_or(0);
    Point {
        at_s: snapshot.at_s - start_s,
        live: read.then(|| ledger.bytes(Cause::Live) + ledger.bytes(Cause::Objects)),
        held: read.then(|| ledger.held()),
        other: ledger.bytes(Cause::Anonymous) + ledger.bytes(Cause::UnreadHeap) + swap,
        shared: ledger.bytes(Cause::SharedMemory),
        total: ledger.total + swap,
        trimmable: (read && is_glibc(snapshot)).then(|| ledger.bytes(Cause::Trimmable)),
        cpu_s: snapshot.processes.iter().map(|process| process.work.cpu_s).sum(),
        io_bytes: snapshot.total(|process| process.work.io_bytes),
    }
}

/// Whether all processes are on glibc's malloc, which returns free pages when it is asked to.
fn is_glibc(snapshot: &Snapshot) -> bool {
    let is = |heap: &ebb_process::snapshot::Heap| Allocator::from_reader(&heap.reader) == Some(Allocator::Glibc);
    snapshot.processes.iter().all(|process| process.heap.as_ref().is_some_and(is))
}

/// Concludes from the looks and the last of them in full.
pub fn of(points: Vec<Point>, last: Diagnosis) -> Growth {
    let trends: Vec<Trend> = [Series::Live, Series::Held, Series::Other, Series::Shared, Series::Total]
        .into_iter()
        .filter_map(|series| trend_of(series, &points))
        .collect();
    let growing = trends
        .iter()
        .filter(|trend| trend.grows && trend.series != Series::Total)
        .filter(|trend| trend.series != Series::Held || is_held(trend.to, &points))
        .max_by_key(|trend| trend.to.saturating_sub(trend.from));
    let dependence = growing.map(|trend| load_dependence(trend.series, &points));
    let verdict = verdict(
        &Evidence {
            trends: &trends,
            points: &points,
            last: &last,
            who: super::verdict::target_name(&last.snapshot),
            seconds: points.last().map_or(0.0, |point| point.at_s),
        },
        growing,
        dependence,
    );
    let steps = steps::of(&points);
    let rests = bursts::of(&points, &last.snapshot);
    let events = Vec::new();
    Growth { verdict, trends, company: dependence, steps, events, rests, points, last }
}

/// Whether so much held memory is a reason for a verdict.
fn is_held(bytes: u64, points: &[Point]) -> bool {
    let total = points.last().map_or(0, |point| point.total);
    bytes >= LEAST_BYTES && bytes as f64 >= REASON * total as f64
}

fn value(series: Series, point: &Point) -> Option<u64> {
    match series {
        Series::Live => point.live,
        Series::Held => point.held,
        Series::Other => Some(point.other),
        Series::Shared => Some(point.shared),
        Series::Total => Some(point.total),
    }
}

/// The values of a series; those of looks at which it could not be read are left out.
fn values(series: Series, points: &[Point]) -> Vec<(f64, f64)> {
    points.iter().filter_map(|point| Some((point.at_s, value(series, point)? as f64))).collect()
}

fn trend_of(series: Series, points: &[Point]) -> Option<Trend> {
    let values = values(series, points);
    let floors = slope::floors(&values);
    let (first, last) = (floors.first()?, floors.last()?);
    let slope = slope::slope(&floors);
    let time = last.0 - first.0;
    let rose = slope.is_some_and(|slope| slope.low > 0.0 && slope.bytes_per_s * time >= least_growth(first.1));
    let mean = (last.1 - first.1) / time.max(f64::MIN_POSITIVE);
    let jumped = slope.is_some() && last.1 - first.1 >= least_growth(first.1);
    let per_s = slope.map_or(0.0, |slope| slope.bytes_per_s).max(mean);
    let end = slope::end(&values, per_s);
    Some(Trend {
        series,
        from: first.1 as u64,
        to: last.1 as u64,
        slope,
        grows: rose && end == End::GoesOn,
        settled: (rose || jumped) && end == End::Flat,
    })
}

/// A growth from there below this is none to speak of.
fn least_growth(from: f64) -> f64 {
    LEAST_GROWTH.max(LEAST_PART * from)
}

/// Whether a growth goes with work: the growth in windows with work against that in those without.
fn load_dependence(series: Series, points: &[Point]) -> LoadDependence {
    let span = points.last().map_or(0.0, |point| point.at_s);
    let mut windows: Vec<Vec<&Point>> = vec![Vec::new(); slope::WINDOWS];
    for point in points {
        let window = (point.at_s / span.max(f64::MIN_POSITIVE) * slope::WINDOWS as f64) as usize;
        windows[window.min(slope::WINDOWS - 1)].push(point);
    }
    // From the end of one window to that of the next: seconds, CPU seconds, growth.
    let ends: Vec<&Point> = windows.iter().filter_map(|window| window.last().copied()).collect();
    let steps: Vec<(f64, f64, f64)> = ends
        .windows(2)
        .filter_map(|pair| {
            let grown = value(series, pair[1])? as f64 - value(series, pair[0])? as f64;
            Some((pair[1].at_s - pair[0].at_s, pair[1].cpu_s - pair[0].cpu_s, grown))
        })
        .filter(|(seconds, ..)| *seconds > 0.0)
        .collect();
    let busiest = steps.iter().map(|(seconds, cpu, _)| cpu / seconds).fold(0.0, f64::max);
    if busiest < NO_WORK {
        return LoadDependence::NoLoad;
    }
    let (idle, busy): (Vec<_>, Vec<_>) = steps.iter().partition(|(seconds, cpu, _)| cpu / seconds < IDLE * busiest);
    let rate = |steps: &[&(f64, f64, f64)]| {
        let seconds: f64 = steps.iter().map(|step| step.0).sum();
        let grown: f64 = steps.iter().map(|step| step.2).sum();
        grown / seconds.max(f64::MIN_POSITIVE)
    };
    // One window may only be a change between both.
    if idle.len() < 2 {
        return LoadDependence::AlwaysLoad;
    }
    let (with, without) = (rate(&busy), rate(&idle));
    if without < 0.1 * with { LoadDependence::OnlyWithLoad } else { LoadDependence::WithAndWithoutLoad }
}

/// What a verdict rests on.
struct Evidence<'a> {
    trends: &'a [Trend],
    points: &'a [Point],
    last: &'a Diagnosis,
    who: String,
    seconds: f64,
}

fn verdict(evidence: &Evidence, growing: Option<&Trend>, dependence: Option<LoadDependence>) -> Verdict {
    let (who, seconds) = (&evidence.who, evidence.seconds);
    let Some(total) = evidence.trends.iter().find(|trend| trend.series == Series::Total) else {
        let sentence = format!("Not enough evidence: {who} could not be read.");
        return undecided(sentence, None);
    };
    match (total.slope, growing) {
        (None, _) => evidence.too_few(),
        (Some(slope), None) => evidence.not_growing(total, slope),
        (Some(_), Some(trend)) => {
            let (kind, what) = kind_of(trend.series, &evidence.last.snapshot);
            let main = match trend.series {
                Series::Live => Some(Cause::Live),
                Series::Held => evidence.last.verdict.main,
                Series::Shared => Some(Cause::SharedMemory),
                Series::Other | Series::Total => Some(Cause::Anonymous),
            };
            let rate = trend.slope.map_or_else(String::new, rate);
            let sentence = format!(
                "{what} of {who} grows: {} MB in {}, {rate}{}.",
                growth_mb(trend),
                time(seconds),
                dependence.map_or("", with)
            );
            let next = match trend.series {
                // Held memory has no stack that allocates it.
                Series::Held => next::give_back(main, &evidence.last.snapshot),
                Series::Shared => next::shared(&evidence.last.snapshot),
                _ => find_the_stack(&evidence.last.snapshot),
            };
            Verdict { kind, main, sentence, next: Some(next) }
        }
    }
}

/// What the growth of a series means, and its name at the beginning of a sentence.
fn kind_of(series: Series, snapshot: &Snapshot) -> (VerdictKind, String) {
    let owners = owners(&snapshot.processes);
    let (kind, what) = match series {
        Series::Live => (VerdictKind::LiveHeapGrows, "The live heap"),
        Series::Held => (VerdictKind::Retention, "The freed memory that the allocator holds"),
        Series::Shared => (VerdictKind::NotHeap, "Shared memory"),
        // A new arena is mapped only when the objects alive need more than there are.
        _ if snapshot.runtime() == Some(Runtime::Cpython) && owners.len() == 1 => {
            (VerdictKind::LiveHeapGrows, "The memory of CPython's objects")
        }
        _ => {
            let whose = if owners.is_empty() { "Anonymous memory".to_owned() } else { capital(&owners.join(" or ")) };
            let what = format!("{whose}, whose live part is not known,");
            return (VerdictKind::NotEnoughEvidence, what);
        }
    };
    (kind, what.to_owned())
}

fn undecided(sentence: String, next: Option<String>) -> Verdict {
    Verdict { kind: VerdictKind::NotEnoughEvidence, main: None, sentence, next }
}

impl Evidence<'_> {
    /// Nothing can be concluded yet; `enough` is the time that would do.
    fn too_short(&self, why: &str, enough: f64) -> Verdict {
        let enough = rounded((enough * MARGIN).max(SHORTEST));
        let longer = format!("Watch it for longer; {} would be enough", time(enough));
        let next = next::watch(&self.last.snapshot, &argument(enough));
        undecided(format!("Too short: {why}. {longer}."), Some(next))
    }

    fn too_few(&self) -> Verdict {
        let looks = match self.points.len() {
            1 => "1 look".to_owned(),
            several => format!("{several} looks"),
        };
        let each = self.seconds / (self.points.len().max(2) - 1) as f64;
        let enough = (each * slope::WINDOWS as f64).max(2.0 * self.seconds);
        let time = time(self.seconds);
        self.too_short(&format!("{looks} at {} in {time} are too few for a slope", self.who), enough)
    }

    /// No part grows beyond doubt, by an amount that matters, and to the end.
    fn not_growing(&self, total: &Trend, slope: Slope) -> Verdict {
        let (who, seconds) = (&self.who, self.seconds);
        let (during, rate_of) = (time(seconds), rate(slope));
        if total.grows {
            let why = format!("{who} grows by {rate_of} in {during}, but no single part grows enough");
            return self.too_short(&why, 2.0 * seconds);
        }
        if let Some(verdict) = self.rises_slowly(total) {
            return verdict;
        }
        if total.settled {
            let (third, mb) = (time(seconds / 3.0), growth_mb(total));
            return self.flat(&format!("Flat for the last {third}, after {who} rose from {mb} MB"));
        }
        if let Some((_, slope)) = self.rising(0.0) {
            return self.flat(&format!("Hardly any growth in {during} ({})", rate(slope)));
        }
        // A growth that the looks cannot exclude is no "no".
        let least = (LEAST_BYTES as f64).max(REASON * total.from as f64);
        let excludes = |slope: Slope| slope.high * seconds < least;
        let floors = slope::floors(&values(Series::Total, self.points));
        let coarse = slope::slope(&slope::coarser(&floors));
        if !excludes(slope) && !coarse.is_some_and(excludes) {
            let why = format!("{who} varies too much for a slope after {during} ({rate_of})");
            return self.too_short(&why, 4.0 * seconds);
        }
        let verb = if slope.high < 0.0 { "It shrinks" } else { "No growth" };
        self.flat(&format!("{verb} in {during} ({rate_of})"))
    }

    /// The fastest of the series that rise beyond doubt, by at least so much.
    fn rising(&self, least: f64) -> Option<(&Trend, Slope)> {
        let unsettled = self.trends.iter().filter(|trend| !trend.settled);
        let slopes = unsettled.filter_map(|trend| Some((trend, trend.slope?)));
        slopes
            .filter(|(_, it)| it.low > 0.0 && it.bytes_per_s * self.seconds >= least)
            .max_by(|(_, left), (_, right)| left.bytes_per_s.total_cmp(&right.bytes_per_s))
    }

    /// A rise that would matter within a day, where there is one.
    fn rises_slowly(&self, total: &Trend) -> Option<Verdict> {
        let (trend, slope) = self.rising(LEAST_RISE)?;
        let enough = (wanted(trend, total) / slope.bytes_per_s).max(2.0 * self.seconds);
        let what = match trend.series {
            Series::Total => self.who.clone(),
            series => format!("{} of {}", noun(series), self.who),
        };
        let (mb, during) = (growth_mb(trend), time(self.seconds));
        let why = format!("{what} grew from {mb} MB in {during} ({})", rate(slope));
        (enough <= LONGEST).then(|| self.too_short(&why, enough))
    }

    /// Nothing grows: the last look says the rest.
    fn flat(&self, how: &str) -> Verdict {
        let last = &self.last.verdict;
        let rest = last.sentence.replace(". To see whether they grow, look again later", "");
        let is_open = matches!(last.kind, VerdictKind::InUse | VerdictKind::NotEnoughEvidence);
        Verdict { sentence: format!("{how}. {rest}"), next: last.next.clone().filter(|_| !is_open), ..last.clone() }
    }
}

/// How much a series has to rise from its first floor on until that is a verdict.
fn wanted(trend: &Trend, total: &Trend) -> f64 {
    let from = trend.from as f64;
    match trend.series {
        Series::Held => (LEAST_BYTES as f64).max(REASON * total.to as f64) - from,
        _ => least_growth(from),
    }
}

/// The name of a series in a sentence.
fn noun(series: Series) -> &'static str {
    match series {
        Series::Live => "the live heap",
        Series::Held => "the freed memory that the allocator holds",
        Series::Other => "other anonymous memory",
        Series::Shared => "the shared memory",
        Series::Total => "the memory",
    }
}

fn growth_mb(trend: &Trend) -> String {
    format!("{} to {}", megabytes(trend.from), megabytes(trend.to))
}

fn rate(slope: Slope) -> String {
    let hourly = |bytes_per_s: f64| format!("{:.1}", bytes_per_s * 3600.0 / 1e6).replace('-', "\u{2212}");
    format!("{} MB per hour (95 %: {} to {})", hourly(slope.bytes_per_s), hourly(slope.low), hourly(slope.high))
}

fn with(dependence: LoadDependence) -> &'static str {
    match dependence {
        LoadDependence::OnlyWithLoad => ", with load only, and not while idle",
        LoadDependence::WithAndWithoutLoad => ", with load and without",
        LoadDependence::AlwaysLoad => ", under load all the time",
        LoadDependence::NoLoad => ", without load",
    }
}

/// The command that finds who allocates.
pub(super) fn find_the_stack(snapshot: &Snapshot) -> String {
    let pid = next::first_pid(snapshot);
    let allocator = snapshot.processes.first().and_then(|first| first.allocator.name.as_deref());
    let is_ours = allocator == Some(Allocator::Ebbmalloc.name());
    match snapshot.runtime() {
        None if is_ours => format!("ebb profile {}", next::quoted(snapshot)),
        Some(Runtime::Cpython) => format!("memray attach {pid}"),
        Some(Runtime::V8) => {
            format!("kill -USR1 {pid}   # then chrome://inspect, Memory, two heap snapshots")
        }
        Some(Runtime::Jvm) => format!("jcmd {pid} GC.class_histogram"),
        Some(Runtime::Go) => "go tool pprof http://HOST:PORT/debug/pprof/heap".to_owned(),
        Some(Runtime::Ruby) => "ruby -robjspace -e 'ObjectSpace.trace_object_allocations_start'".to_owned(),
        None => format!("heaptrack -p {pid}"),
    }
}

fn time(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 120.0 => format!("{seconds:.0} s"),
        seconds if seconds < 7200.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3600.0),
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests;
