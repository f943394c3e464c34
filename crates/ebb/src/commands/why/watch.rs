//! Looks at a target again and again, for `ebb why --watch`.

use std::time::{Duration, Instant};

use crate::exit::Failure;
use crate::signals::Ending;
use crate::terminal;
use ebb_diagnosis::facts::growth::{Event, Growth, Point};
use ebb_diagnosis::growth::causes::Standing;
use ebb_node::look::Observer;
use ebb_process::look::Depth;
use ebb_process::target::Resolved;
use ebb_report::figures::duration;
use ebb_statistics::slope::WINDOWS;
use ebb_statistics::steps::LEAST_POINTS;

/// Looks of a watch: enough for steps, even if a busy machine delays one in five. More do not sharpen a slope.
const LOOKS: u32 = 300;
const _: () = assert!(LOOKS as usize * 4 / 5 >= LEAST_POINTS);
/// A step is found to a look, and should be found within minutes.
const LONGEST: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(50);

/// Looks for that long, then concludes; earlier if asked to end or if the target does. Returns the events that the looks
/// showed as well.
pub fn watch(
    observer: &Observer,
    resolved: &Resolved,
    with_children: bool,
    time: Duration,
    every: Option<Duration>,
) -> Result<(Growth, Vec<Event>), Failure> {
    let every = every.unwrap_or((time / LOOKS).min(LONGEST)).max(STEP);
    let ending = Ending::listen()?;
    let start = Instant::now();
    terminal::warn(&format!(
        "watching {} for {}; Ctrl-C ends it and reports what was measured",
        resolved.target.asked,
        duration(time.as_secs_f64())
    ));
    let mut windows = Windows::new(time);
    let (mut points, mut events, mut standing) = (Vec::new(), Vec::new(), Standing::default());
    let mut last = None;
    let mut start_s = None;
    loop {
        let looked = Instant::now();
        let snapshot = observer.look(resolved, with_children, Depth::Heaps);
        if snapshot.processes.is_empty() {
            break;
        }
        let start_s = *start_s.get_or_insert(snapshot.at_s);
        events.extend(standing.follow(Standing::of(&snapshot), snapshot.at_s - start_s));
        let diagnosis = ebb_diagnosis::of(snapshot);
        let point = ebb_diagnosis::growth::point(&diagnosis, start_s);
        windows.add(&point);
        points.push(point);
        last = Some(diagnosis);
        // A look that takes long is not made more often: at most half of the time is spent reading.
        let next = (looked + every).max(Instant::now() + looked.elapsed());
        if next > start + time || !ending.sleep_until(next) {
            break;
        }
    }
    let last = last.ok_or_else(|| Failure::ended(&resolved.target.asked))?;
    Ok((ebb_diagnosis::growth::of(points, last), events))
}

/// Says a line for each window of the time, so that a long watch is not silent.
struct Windows {
    each_s: f64,
    time_s: f64,
    /// The window, and the lowest point in it so far.
    now: Option<(u64, Point)>,
}

impl Windows {
    fn new(time: Duration) -> Self {
        let time_s = time.as_secs_f64();
        Self {
            // Lines that follow each other faster are not read.
            each_s: (time_s / WINDOWS as f64).max(1.0),
            time_s,
            now: None,
        }
    }

    fn add(&mut self, point: &Point) {
        let window = (point.at_s / self.each_s) as u64;
        match &mut self.now {
            Some((now, lowest)) if *now == window => {
                if point.total < lowest.total {
                    *lowest = *point;
                }
            }
            before => {
                if let Some((window, lowest)) = before.replace((window, *point)) {
                    let end_s = ((window + 1) as f64 * self.each_s).min(self.time_s);
                    terminal::warn(&line(end_s, self.time_s, &lowest));
                }
            }
        }
    }
}

/// One line for a window: its lowest look.
fn line(end_s: f64, time_s: f64, point: &Point) -> String {
    let mb = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    let heap = match (point.live, point.held) {
        (Some(live), Some(held)) => format!(", {} live, {} freed and held", mb(live), mb(held)),
        _ => String::new(),
    };
    format!("{} of {}: {}{heap}", duration(end_s), duration(time_s), mb(point.total))
}
