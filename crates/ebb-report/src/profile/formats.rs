//! A profile for programs: JSON, folded stacks, speedscope. What is long is made while it is written.

use std::collections::{BTreeMap, HashMap};

use ebb_process::profile::{Growth, Profile, Stack, Sum};
use ebb_process::symbols::Line;
use serde::ser::{Serialize, Serializer};

use super::shown::Shown;

/// A list that is made each time that it is written.
pub(super) struct Seq<F>(pub F);

impl<I: IntoIterator<Item: Serialize>, F: Fn() -> I> Serialize for Seq<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}

/// Whole bytes.
pub(super) fn bytes(bytes: f64) -> i64 {
    bytes.round() as i64
}

/// Folded stacks: a line each, the outermost function first, and its bytes.
pub fn folded(profile: &Profile, shown: Shown) -> String {
    let mut sums: BTreeMap<Vec<&str>, f64> = BTreeMap::new();
    for stack in &profile.stacks {
        let names = profile.lines(stack).rev().map(|it| it.function.as_str()).collect();
        *sums.entry(names).or_default() += shown.of(stack).bytes;
    }
    let lines = sums.into_iter().filter(|(_, bytes)| bytes.round() > 0.0);
    let line = |names: Vec<&str>| names.join("\n").replace(';', ":").replace('\n', ";");
    lines.map(|(names, bytes)| format!("{} {bytes:.0}\n", line(names))).collect()
}

#[derive(serde::Serialize)]
struct Speedscope<'a, F, P> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: &'static str,
    name: &'a str,
    shared: Shared<F>,
    profiles: P,
}

#[derive(serde::Serialize)]
struct Shared<F> {
    frames: F,
}

#[derive(serde::Serialize)]
struct Frame<'a> {
    name: &'a str,
    file: Option<&'a str>,
    line: Option<u32>,
}

impl<'a> From<&'a Line> for Frame<'a> {
    fn from(line: &'a Line) -> Self {
        let number = (line.line > 0).then_some(line.line);
        Self { name: &line.function, file: line.file.as_deref(), line: number }
    }
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Sampled<S, W> {
    r#type: &'static str,
    name: &'static str,
    unit: &'static str,
    start_value: i64,
    end_value: i64,
    samples: S,
    weights: W,
}

/// A file of speedscope, with what is still there and what was allocated.
pub fn speedscope(profile: &Profile) -> serde_json::Result<String> {
    let mut numbers: HashMap<&Line, usize> = HashMap::new();
    let mut lines: Vec<&Line> = Vec::new();
    for line in profile.stacks.iter().flat_map(|stack| profile.lines(stack)) {
        numbers.entry(line).or_insert_with(|| {
            lines.push(line);
            lines.len() - 1
        });
    }
    let samples = || profile.stacks.iter().map(|it| Seq(|| profile.lines(it).rev().map(|it| numbers[it])));
    let one = |shown: Shown| {
        let weights = move || profile.stacks.iter().map(move |it| bytes(shown.of(it).bytes));
        Sampled {
            r#type: "sampled",
            name: shown.heading(),
            unit: "bytes",
            start_value: 0,
            end_value: weights().sum(),
            samples: Seq(samples),
            weights: Seq(weights),
        }
    };
    serde_json::to_string(&Speedscope {
        schema: "https://www.speedscope.app/file-format-schema.json",
        exporter: concat!("ebb ", env!("CARGO_PKG_VERSION")),
        name: &profile.title,
        shared: Shared { frames: Seq(|| lines.iter().map(|&line| Frame::from(line))) },
        profiles: [one(Shown::Live), one(Shown::Allocated)],
    })
}

#[derive(serde::Serialize)]
struct Document<'a, S> {
    ebb_version: &'static str,
    target: &'a str,
    seconds: Option<f64>,
    interval_bytes: u64,
    heap_live_bytes: Option<u64>,
    live_bytes: i64,
    allocated_bytes: i64,
    stacks: S,
    notes: &'a [String],
}

#[derive(serde::Serialize)]
struct OneStack<F> {
    live: Figures,
    allocated: Figures,
    second_half: Option<Change>,
    frames: F,
}

#[derive(serde::Serialize)]
struct Figures {
    bytes: i64,
    objects: i64,
    error_bytes: i64,
}

#[derive(serde::Serialize)]
struct Change {
    bytes: i64,
    error_bytes: i64,
}

/// The figures for programs (docs/json.md), the largest stack first.
pub fn json(profile: &Profile) -> impl Serialize + '_ {
    let interval = profile.interval as f64;
    let mut stacks: Vec<&Stack> = profile.stacks.iter().collect();
    stacks.sort_by(|a, b| b.live.bytes.total_cmp(&a.live.bytes));
    let figures = move |sum: Sum| Figures {
        bytes: bytes(sum.bytes),
        objects: bytes(sum.objects),
        error_bytes: bytes(sum.error(interval)),
    };
    let change = |it: Growth| Change { bytes: bytes(it.bytes), error_bytes: bytes(it.variance.sqrt()) };
    let stacks = move || {
        stacks.clone().into_iter().map(move |stack| OneStack {
            live: figures(stack.live),
            allocated: figures(stack.allocated),
            second_half: stack.growth.map(change),
            frames: Seq(move || profile.lines(stack)),
        })
    };
    let (allocated, live) = profile.total();
    Document {
        ebb_version: env!("CARGO_PKG_VERSION"),
        target: &profile.title,
        seconds: profile.seconds,
        interval_bytes: profile.interval,
        heap_live_bytes: profile.heap,
        live_bytes: bytes(live.bytes),
        allocated_bytes: bytes(allocated.bytes),
        stacks: Seq(stacks),
        notes: &profile.notes,
    }
}
