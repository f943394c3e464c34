//! What no allocator changes: the live peak; and the limit that the best variant could run with.
//!
//! Used by `commands/compare` at its end. Pure.

use super::cost::megabytes;
use crate::results::{Column, Remains, Variant, Verdict};

/// The least margin above the highest peak. A cgroup also charges page tables, stacks of the kernel, buffers of sockets and
/// file pages in use, which are no resident memory of a process; and peaks between two samples are not seen.
const MARGIN_SHARE: f64 = 0.10;

/// What remains after the change that `verdict` recommends, or after none; `None` without a peak.
pub fn look(variants: &[Variant], verdict: &Verdict) -> Option<Remains> {
    let named = verdict.variant.as_ref();
    let best = match named {
        Some(name) => variants.iter().find(|variant| variant.name == *name)?,
        None => variants.first()?,
    };
    let peak = best.figure(Column::Peak)?;
    let least = peak.max * MARGIN_SHARE;
    // Windows of one service differ by its load, runs of one trial by chance.
    let spread = best.runs.len() > 1;
    let spread = if spread { peak.max - peak.min } else { 0.0 };
    let margin = least.max(spread);
    let live = std::iter::once(best).chain(variants).find_map(|it| Some((live_peak(it)?, it)));
    let limit = variants.iter().flat_map(|variant| &variant.runs).find_map(|run| run.limit_bytes);
    let mut remains = Remains {
        live_peak_bytes: live.map(|(bytes, _)| bytes),
        live_peak_of: live.map(|(_, variant)| variant.name.clone()),
        limit_bytes: limit,
        variant: best.name.clone(),
        peak_bytes: peak.max as u64,
        margin_bytes: margin as u64,
        enough_bytes: (peak.max + margin) as u64,
        sentence: String::new(),
    };
    let lowest = variants.iter().filter_map(|variant| variant.median(Column::Peak));
    let lowest = lowest.reduce(f64::min).unwrap_or(peak.max);
    let why = if spread > least { "the spread of the runs" } else { "10 %" };
    remains.sentence = sentence(&remains, lowest, why);
    Some(remains)
}

/// The highest live heap of a run, the median of the runs.
fn live_peak(variant: &Variant) -> Option<u64> {
    let peaks = variant.complete().filter_map(|run| run.samples.iter().filter_map(|sample| sample.live_bytes).max());
    let peaks: Vec<f64> = peaks.map(|bytes| bytes as f64).collect();
    ebb_statistics::median(&peaks).map(|bytes| bytes as u64)
}

fn sentence(remains: &Remains, lowest_peak: f64, why: &str) -> String {
    let mb = |bytes: u64| megabytes(bytes as f64);
    let live = match remains.live_peak_bytes {
        Some(bytes) => format!("a live peak of {}", mb(bytes)),
        None => format!("the live peak, at most {}", megabytes(lowest_peak)),
    };
    let limit = match remains.limit_bytes {
        Some(bytes) => format!("limit {}", mb(bytes)),
        None => "no limit".to_owned(),
    };
    let more = match remains.limit_bytes {
        Some(limit) if limit < remains.enough_bytes => ", more than it has",
        _ => "",
    };
    format!(
        "What remains: {live} ({limit}), which only the program lowers: it can read in pieces, stream, or work on fewer requests \
         at a time. {} needs a limit of {}{more}: its highest peak, {}, and {} ({why}).",
        remains.variant,
        mb(remains.enough_bytes),
        mb(remains.peak_bytes),
        mb(remains.margin_bytes)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Run, Sample, VerdictKind};

    const MB: u64 = 1_000_000;

    /// A variant whose runs have these peaks and that live peak, in MB.
    fn variant(name: &str, peaks: &[u64], live: Option<u64>) -> Variant {
        let run = |(repetition, peak): (u32, &u64)| {
            let mut run = Run::new(repetition);
            run.measures.peak_bytes = Some((peak * MB) as f64);
            let sample = |live: Option<u64>| Sample { live_bytes: live, ..Sample::default() };
            run.samples = vec![sample(live.map(|live| live * MB)), sample(live.map(|_| 1))];
            run
        };
        Variant { runs: (1..).zip(peaks).map(run).collect(), ..Variant::new(name, name) }
    }

    fn remains(mut variants: Vec<Variant>, recommended: Option<&str>, limit: Option<u64>) -> Remains {
        crate::summary::summarise(&mut variants);
        variants[0].runs[0].limit_bytes = limit.map(|limit| limit * MB);
        let verdict =
            Verdict { kind: VerdictKind::Recommend, variant: recommended.map(str::to_owned), sentence: String::new() };
        look(&variants, &verdict).unwrap()
    }

    #[test]
    fn the_live_peak_stands_next_to_the_limit_and_the_limit_that_is_enough() {
        let variants = || vec![variant("glibc", &[500, 505], None), variant("ours", &[400, 404], Some(310))];
        let found = remains(variants(), Some("ours"), Some(1024));
        assert_eq!(
            found.sentence,
            "What remains: a live peak of 310 MB (limit 1024 MB), which only the program lowers: it can read in pieces, stream, \
             or work on fewer requests at a time. ours needs a limit of 444 MB: its highest peak, 404 MB, and 40 MB (10 %)."
        );
        assert_eq!((found.live_peak_of.as_deref(), found.enough_bytes / MB), (Some("ours"), 444));
        // No recommendation is about the first one. What another counted is live in it too.
        let first = remains(variants(), None, Some(512));
        assert_eq!((first.variant.as_str(), first.live_peak_bytes), ("glibc", Some(310 * MB)));
        assert!(first.sentence.contains("a limit of 556 MB, more than it has"), "{}", first.sentence);
    }

    #[test]
    fn an_unknown_live_peak_has_a_bound_and_a_wide_spread_is_the_margin() {
        let variants = vec![variant("glibc", &[400, 500], None), variant("x", &[300], None)];
        let found = remains(variants, None, None);
        assert_eq!((found.live_peak_bytes, found.margin_bytes), (None, 100 * MB));
        assert!(found.sentence.contains("the live peak, at most 300 MB (no limit)"), "{}", found.sentence);
        assert!(found.sentence.ends_with("100 MB (the spread of the runs)."), "{}", found.sentence);
    }

    #[test]
    fn without_a_peak_there_is_nothing_to_say() {
        assert_eq!(look(&[variant("glibc", &[], None)], &Verdict::default()), None);
    }
}
