//! What CPython says of its objects, in a terminal: its interpreters and collectors, the largest types, large blocks.

use ebb_process::snapshot::{Collector, Interpreter, OfType, Python};

/// Types and kinds of blocks in a line.
const MOST_TYPES: usize = 5;

pub(super) fn lines(python: &Python) -> Vec<String> {
    let mut lines: Vec<String> = python
        .interpreters
        .iter()
        .filter_map(|of| Some((of, of.collector.as_ref()?)))
        .map(|(of, collector)| {
            let which = which(python, of);
            format!("{}{which}: {}", python.reader, state(collector))
        })
        .collect();
    if !python.types.is_empty() {
        let most = of_types(python.types.iter().take(MOST_TYPES), "objects of no type");
        lines.push(format!("most bytes in tracked objects: {most}"));
        let mut by_count: Vec<&OfType> = python.types.iter().collect();
        by_count.sort_by_key(|of| std::cmp::Reverse(of.count));
        let most = of_types(by_count.into_iter().take(MOST_TYPES), "objects of no type");
        lines.push(format!("most tracked objects: {most}"));
    }
    if let Some(buffers) = python.buffers.as_ref().filter(|it| !it.is_empty()) {
        let mut collectors = python.interpreters.iter().map(|it| it.collector.as_ref());
        let nobodys = match collectors.all(|it| it.is_some_and(|collector| collector.complete)) {
            true => "not owned by a Python object",
            false => "owner not read",
        };
        let all = of_types(buffers.iter().take(MOST_TYPES), nobodys);
        lines.push(format!("live blocks of 1 MiB and more: {all}"));
    }
    lines
}

/// Which interpreter it is, where there are several.
fn which(python: &Python, of: &Interpreter) -> String {
    match python.interpreters.len() {
        1 => String::new(),
        several => format!(", interpreter {} of {several}", of.id),
    }
}

fn state(of: &Collector) -> String {
    let [young, middle, old] = of.thresholds;
    let runs = match (of.enabled, young) {
        (false, _) => "the collector is off".to_owned(),
        (true, 0) => "the collector never runs by itself (threshold 0)".to_owned(),
        (true, _) => format!("the collector is on (thresholds {young}, {middle}, {old})"),
    };
    let frozen = match of.frozen {
        0 => String::new(),
        frozen => format!(", {frozen} are frozen"),
    };
    let more = match (of.complete, of.swapped) {
        (true, _) => "",
        (false, true) => ", and more: its lists continue on pages in swap, which are not read",
        (false, false) => ", and more: its lists changed while they were read",
    };
    let [young, middle, old] = of.tracked;
    format!("{runs}, {young} young, {middle} middle and {old} old objects are tracked{frozen}{more}")
}

fn of_types<'a>(types: impl Iterator<Item = &'a OfType>, nobodys: &str) -> String {
    let all: Vec<String> = types
        .map(|of| {
            let name = of.name.as_deref().unwrap_or(nobodys);
            format!("{name} {} of {:.1} MB", of.count, of.bytes as f64 / 1e6)
        })
        .collect();
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: Option<&str>, count: u64, bytes: u64) -> OfType {
        OfType { name: name.map(str::to_owned), count, bytes }
    }

    #[test]
    fn what_is_off_frozen_or_nobodys_is_said() {
        let collector = |enabled, complete| Collector {
            enabled,
            thresholds: [700, 10, 10],
            counts: [3, 2, 1],
            tracked: [1, 22, 333],
            frozen: if enabled { 0 } else { 4444 },
            complete,
            ..Collector::default()
        };
        let swapped = Collector { swapped: true, ..collector(true, false) };
        let interpreter = |id, collector| Interpreter { id, collector: Some(collector) };
        let python = Python {
            reader: "CPython 3.14".to_owned(),
            interpreters: vec![
                interpreter(1, collector(false, true)),
                interpreter(0, collector(true, false)),
                interpreter(2, swapped),
            ],
            types: vec![of(Some("dict"), 10, 3_000_000), of(Some("cell"), 40, 2_000_000)],
            buffers: Some(vec![of(Some("bytes"), 2, 7_500_000), of(None, 1, 2_000_000)]),
        };
        assert_eq!(
            lines(&python),
            [
                "CPython 3.14, interpreter 1 of 3: the collector is off, 1 young, 22 middle and 333 old objects are tracked, \
                 4444 are frozen",
                "CPython 3.14, interpreter 0 of 3: the collector is on (thresholds 700, 10, 10), 1 young, 22 middle and 333 \
                 old objects are tracked, and more: its lists changed while they were read",
                "CPython 3.14, interpreter 2 of 3: the collector is on (thresholds 700, 10, 10), 1 young, 22 middle and 333 \
                 old objects are tracked, and more: its lists continue on pages in swap, which are not read",
                "most bytes in tracked objects: dict 10 of 3.0 MB, cell 40 of 2.0 MB",
                "most tracked objects: cell 40 of 2.0 MB, dict 10 of 3.0 MB",
                "live blocks of 1 MiB and more: bytes 2 of 7.5 MB, owner not read 1 of 2.0 MB",
            ]
        );
        let whole = Python { interpreters: vec![interpreter(0, collector(true, true))], types: Vec::new(), ..python };
        assert_eq!(
            lines(&whole)[1],
            "live blocks of 1 MiB and more: bytes 2 of 7.5 MB, not owned by a Python object 1 of 2.0 MB"
        );
    }
}
