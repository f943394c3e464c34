//! What the renderings of a profile share: the figure that is shown, the head, names and numbers.

use std::fmt::Write;

use ebb_process::profile::{Growth, Profile, Stack, Sum};
use ebb_process::symbols::Line;

use crate::figures;
use ebb_trial::results::Unit;

/// Rows of a table.
pub(super) const ROWS: usize = 15;
/// Functions of a stack that is shown whole.
pub(super) const DEPTH: usize = 12;

/// Which figure is shown first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// What is still there.
    Live,
    /// What was allocated.
    Allocated,
}

impl Shown {
    pub(super) fn of(self, stack: &Stack) -> Sum {
        match self {
            Shown::Live => stack.live,
            Shown::Allocated => stack.allocated,
        }
    }

    /// Its name in a heading.
    pub fn heading(self) -> &'static str {
        match self {
            Shown::Live => "still there",
            Shown::Allocated => "allocated",
        }
    }
}

pub(super) fn notes(profile: &Profile) -> String {
    profile.notes.iter().map(|note| format!("! {note}\n")).collect()
}

pub(super) fn head(profile: &Profile) -> String {
    let (allocated, live) = profile.total();
    let interval = profile.interval as f64;
    let error = |stacks: fn(&Stack) -> Sum| {
        let variance: f64 = profile.stacks.iter().map(|it| stacks(it).error(interval).powi(2)).sum();
        mb(variance.sqrt())
    };
    let mut out = format!("{}: ", profile.title);
    let _ = match profile.seconds {
        Some(seconds) => writeln!(
            out,
            "{} MB ±{} were allocated in {}, {} MB ±{} of that are still there",
            mb(allocated.bytes),
            error(|it| it.allocated),
            figures::duration(seconds),
            mb(live.bytes),
            error(|it| it.live)
        ),
        None => writeln!(
            out,
            "{} MB ±{} are live, by the profile that its settings switch on",
            mb(live.bytes),
            error(|it| it.live)
        ),
    };
    if let (Some(heap), Some(_)) = (profile.heap, profile.seconds) {
        let before = (heap as f64 - live.bytes).max(0.0);
        let _ = writeln!(out, "live heap {} MB: {} MB are from before the profile", mb(heap as f64), mb(before));
    }
    out
}

/// What grows is first, by what it grows at least, if what is still there is shown.
pub(super) fn rank(growth: Growth, shown: Shown) -> f64 {
    match shown {
        Shown::Live => (growth.bytes - 2.0 * growth.variance.sqrt()).max(0.0),
        Shown::Allocated => 0.0,
    }
}

pub(super) fn mb(bytes: f64) -> String {
    figures::plain(bytes, Unit::Bytes)
}

/// "function file:line", without the file's folders.
pub(super) fn in_words(line: &Line) -> String {
    let file = line.file.as_deref().map(|file| file.rsplit('/').next().unwrap_or(file));
    match file {
        Some(file) if line.line > 0 => format!("{} {file}:{}", line.function, line.line),
        Some(file) => format!("{} {file}", line.function),
        None => line.function.clone(),
    }
}

/// At most so many letters: the middle of a long name is left out, which has the parameters of templates.
pub(super) fn cut(text: &str, most: usize) -> String {
    let letters: Vec<char> = text.chars().collect();
    if letters.len() <= most || most < 3 {
        return text.to_owned();
    }
    let head = (most - 1) / 2;
    let tail = most - 1 - head;
    letters[..head].iter().chain(&['…']).chain(&letters[letters.len() - tail..]).collect()
}
