//! What a trial comes to, in one sentence.
//!
//! Used by the engine at its end. Pure: the figures in, the sentence out. It recommends whatever the
//! data say, a competitor or no change at all, and stays silent where they say nothing.

use super::cost::{self, megabytes};
use crate::results::{Column, Metric, Run, Summary, Variant, Verdict, VerdictKind};

/// A gain below this is not worth a change of allocator, whatever its interval: two repetitions of one
/// variant differ by a few MB.
const WORTH_BYTES: f64 = 8e6;
/// ... and it must be this share of what the first variant holds after the rest.
const WORTH_SHARE: f64 = 0.10;
/// Variants whose memory after the rest is this close to the lowest are as good as it: among them
/// cost decides.
const AS_LOW_BYTES: f64 = 3e6;
const AS_LOW_SHARE: f64 = 0.05;
/// Added where the kernel may have taken pages that no allocator returned.
const MEMORY_DISTURBED: &str = " The memory is uncertain: the machine ran short of it.";
/// The live heap accounts for what stays from this share on.
const LIVE_SHARE: f64 = 0.80;

/// Says what the figures come to. The first variant is the one that the service runs on today.
pub fn judge(variants: &[Variant], metric: Metric) -> Verdict {
    if let Some(verdict) = at_limit(variants) {
        return verdict;
    }
    let Some(first) = variants.first() else {
        return Verdict::not_enough("no variant was run");
    };
    let Some(before) = first.summary.as_ref() else {
        return Verdict::not_enough(&format!(
            "{} has no complete run, so there is nothing to compare with",
            first.name
        ));
    };
    let Some(held) = before.median(Column::AfterRest) else {
        return Verdict::not_enough(&format!("the {} of {} could not be read", metric.label(), first.name));
    };
    let alive = variants[1..].iter().filter(|variant| !is_killed(variant));
    let others: Vec<Candidate> = alive.filter_map(Candidate::of).collect();
    if others.is_empty() {
        let was_tried = variants[1..].iter().any(|other| !other.is_reference());
        let missing = if was_tried {
            "but no other variant has a complete run"
        } else {
            "and no variant that could replace it was tried"
        };
        return Verdict::not_enough(&format!("{} holds {} after the rest, {missing}", first.name, megabytes(held)));
    }
    let runs = others.iter().map(|other| other.summary.runs).chain([before.runs]).min().unwrap_or(0);
    let mut verdict = compare(first, before, held, &others, cost::is_disturbed(variants));
    if variants.iter().any(Variant::has_disturbed_memory) {
        verdict.sentence.push_str(MEMORY_DISTURBED);
    }
    if runs == 1 {
        verdict.sentence.push_str(" One run, direction only.");
    }
    verdict
}

/// A variant with figures.
struct Candidate<'a> {
    variant: &'a Variant,
    summary: &'a Summary,
    after_rest: f64,
}

impl Candidate<'_> {
    fn of(variant: &Variant) -> Option<Candidate<'_>> {
        // A reference, never deployed.
        if variant.is_reference() {
            return None;
        }
        let summary = variant.summary.as_ref()?;
        Some(Candidate { variant, summary, after_rest: summary.median(Column::AfterRest)? })
    }

    /// Whether the difference to the first variant is more than noise and more than nothing.
    fn gains(&self, held: f64) -> bool {
        let gain = held - self.after_rest;
        let figure = &self.summary.figures[&Column::AfterRest];
        let interval = figure.versus_first.and_then(|difference| difference.interval);
        gain >= WORTH_BYTES.max(held * WORTH_SHARE) && interval.is_none_or(|(_, high)| high < 0.0)
    }

    /// The criteria among variants that are as low: CPU time, where that is to be trusted, then the number
    /// of its settings, then memory.
    fn cost(&self, disturbed: bool) -> (f64, usize, f64) {
        let cpu = self.summary.median(Column::Cpu).filter(|_| !disturbed);
        (cpu.unwrap_or(f64::INFINITY), self.variant.env.len(), self.after_rest)
    }
}

fn compare(first: &Variant, before: &Summary, held: f64, others: &[Candidate], disturbed: bool) -> Verdict {
    let growth = before.median(Column::Growth);
    let gaining: Vec<&Candidate> = others.iter().filter(|other| other.gains(held)).collect();
    let lowest = gaining.iter().map(|other| other.after_rest).fold(f64::INFINITY, f64::min);
    let as_low = lowest + AS_LOW_BYTES.max(lowest * AS_LOW_SHARE);
    let best = gaining.iter().filter(|other| other.after_rest <= as_low).min_by(|left, right| {
        let (left, right) = (left.cost(disturbed), right.cost(disturbed));
        left.0.total_cmp(&right.0).then(left.1.cmp(&right.1)).then(left.2.total_cmp(&right.2))
    });
    let Some(best) = best else {
        return nobody_is_lower(first, before, held, growth);
    };
    let name = &best.variant.name;
    let mut sentence = format!(
        "{name} holds {} after the rest where {} holds {}{}",
        megabytes(best.after_rest),
        first.name,
        megabytes(held),
        cost::in_words(best.summary, disturbed),
    );
    let tied: Vec<(&str, &Summary)> = gaining
        .iter()
        .filter(|other| other.after_rest <= as_low && other.variant.name != *name)
        .map(|other| (other.variant.name.as_str(), other.summary))
        .collect();
    let best = (!disturbed).then_some(best.summary);
    sentence.push_str(&and_others("as low", &tied, best));
    sentence.push('.');
    Verdict { kind: VerdictKind::Recommend, variant: Some(name.clone()), sentence }
}

/// Why no variant is lower: nothing was kept, the program itself holds it, or it cannot be told.
fn nobody_is_lower(first: &Variant, before: &Summary, held: f64, growth: Option<f64>) -> Verdict {
    let small = WORTH_BYTES.max(held * WORTH_SHARE);
    if growth.is_some_and(|growth| growth < small) {
        let sentence = format!(
            "Nothing to gain: {} is back at {} after the rest, {} above its baseline.",
            first.name,
            megabytes(held),
            megabytes(growth.unwrap_or(0.0).max(0.0))
        );
        return Verdict::without_variant(VerdictKind::NothingToGain, sentence);
    }
    if let Some(live) = before.median(Column::Live).filter(|live| *live >= held * LIVE_SHARE) {
        let sentence = format!(
            "No allocator helps, because the live heap grows: {} of the {} that {} holds after the rest are live.",
            megabytes(live),
            megabytes(held),
            first.name
        );
        return Verdict::without_variant(VerdictKind::LiveHeapGrows, sentence);
    }
    let trim = before.median(Column::Reclaimable);
    let reason = match trim {
        Some(trim) if trim >= small => {
            format!("although malloc_trim returns {} there", megabytes(trim))
        }
        Some(trim) => format!(
            "and malloc_trim returns only {}, so most of it is in use or on pages with live blocks",
            megabytes(trim.max(0.0))
        ),
        None => "so it is in use or on pages with live blocks".to_owned(),
    };
    let sentence = format!(
        "No allocator helps: after the rest every variant holds about what {} holds, {}, {reason}.",
        first.name,
        megabytes(held)
    );
    Verdict::without_variant(VerdictKind::NoneHelps, sentence)
}

/// The verdict if the first variant was killed for lack of memory; `None` where it was not, and
/// the figures decide as ever.
fn at_limit(variants: &[Variant]) -> Option<Verdict> {
    let (first, others) = variants.split_first()?;
    let killed = oom_kills_in_words(first)?;
    // A reference is no choice.
    let choices = || others.iter().filter(|variant| !variant.is_reference());
    let mut survivors: Vec<&Variant> =
        choices().filter(|variant| variant.summary.is_some() && !is_killed(variant)).collect();
    let disturbed = cost::is_disturbed(variants);
    let cpu = |variant: &Variant| variant.median(Column::Cpu).filter(|_| !disturbed).unwrap_or(f64::INFINITY);
    survivors.sort_by(|left, right| cpu(left).total_cmp(&cpu(right)).then(left.env.len().cmp(&right.env.len())));
    let Some((best, rest)) = survivors.split_first() else {
        let tried: Vec<&str> =
            choices().filter(|variant| is_killed(variant)).map(|variant| variant.name.as_str()).collect();
        let also = match tried[..] {
            [] => String::new(),
            _ => format!(", and so is every other variant ({})", tried.join(", ")),
        };
        let sentence = format!("No allocator helps: {} is {killed}{also}.", first.name);
        return Some(Verdict::without_variant(VerdictKind::NoneHelps, sentence));
    };
    let peak = best.median(Column::Peak).map_or(String::new(), |peak| format!(" with a peak of {}", megabytes(peak)));
    let mut sentence = format!("{} stays within the limit{peak} where {} is {killed}", best.name, first.name);
    let rest: Vec<(&str, &Summary)> =
        rest.iter().filter_map(|variant| Some((variant.name.as_str(), variant.summary.as_ref()?))).collect();
    let known = best.summary.as_ref().filter(|_| !disturbed);
    sentence.push_str(&and_others("so do", &rest, known));
    sentence.push('.');
    Some(Verdict { kind: VerdictKind::Recommend, variant: Some(best.name.clone()), sentence })
}

/// Whether a process of it was killed for lack of memory in any run.
fn is_killed(variant: &Variant) -> bool {
    variant.runs.iter().any(|run| run.oom.is_some())
}

/// `OOM-killed after 12 s, in 3 of 3 runs, under a limit of 64 MB`
fn oom_kills_in_words(variant: &Variant) -> Option<String> {
    let killed: Vec<&Run> = variant.runs.iter().filter(|run| run.oom.is_some()).collect();
    let oom = killed.first()?.oom?;
    let times: Vec<f64> = killed.iter().filter_map(|run| run.oom?.at_s).collect();
    let when = match ebb_statistics::median(&times) {
        Some(seconds) => format!(" after {seconds:.0} s"),
        None => " before it was ready".to_owned(),
    };
    let limit =
        oom.limit_bytes.map_or(String::new(), |bytes| format!(", under a limit of {}", megabytes(bytes as f64)));
    Some(format!("OOM-killed{when}, in {} of {} runs{limit}", killed.len(), variant.runs.len()))
}

/// "; as low: A; as low, at a higher cost: B": the cost only where it is known and all runs say so.
fn and_others(what: &str, others: &[(&str, &Summary)], best: Option<&Summary>) -> String {
    let dearer = |summary: &Summary| best.is_some_and(|best| cost::uses_more_cpu(summary, best));
    let mut text = String::new();
    for (words, wanted) in [("", false), (", at a higher cost", true)] {
        let names: Vec<&str> =
            others.iter().filter(|(_, summary)| dearer(summary) == wanted).map(|(name, _)| *name).collect();
        if !names.is_empty() {
            text += &format!("; {what}{words}: {}", names.join(", "));
        }
    }
    text
}

#[cfg(test)]
mod tests;
