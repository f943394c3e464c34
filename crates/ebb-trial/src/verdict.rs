//! What a trial comes to, in one sentence.
//!
//! Used by the engine at its end. Pure: the figures in, the sentence out. It recommends whatever the
//! data say, a competitor or no change at all, and stays silent where they say nothing.

use super::cost;
use crate::results::{Column, Metric, Summary, Variant, Verdict, VerdictKind};

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
    if let Some(verdict) = limit::judge(variants) {
        return verdict;
    }
    let Some(first) = variants.first() else {
        return not_enough("no variant was run".into());
    };
    let Some(before) = first.summary.as_ref() else {
        return not_enough(format!(
            "{} has no complete run, so there is nothing to compare with",
            first.name
        ));
    };
    let Some(held) = before.median(Column::AfterRest) else {
        return not_enough(format!("the {} of {} could not be read", metric.label(), first.name));
    };
    let alive = variants[1..].iter().filter(|variant| !limit::is_killed(variant));
    let others: Vec<Candidate> = alive.filter_map(Candidate::of).collect();
    if others.is_empty() {
        let was_tried = variants[1..].iter().any(|other| other.beside.is_none());
        let missing = if was_tried {
            "but no other variant has a complete run"
        } else {
            "and no variant that could replace it was tried"
        };
        return not_enough(format!("{} holds {} after the rest, {missing}", first.name, mb(held)));
    }
    let runs =
        others.iter().map(|other| other.summary.runs).chain([before.runs]).min().unwrap_or(0);
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
        // A reference: nobody deploys it.
        if variant.beside.is_some() {
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

    /// What it is chosen by among those that are as low: CPU time, where that is to be trusted, then the number
    /// of its settings, then memory.
    fn cost(&self, disturbed: bool) -> (f64, usize, f64) {
        let cpu = self.summary.median(Column::Cpu).filter(|_| !disturbed);
        (cpu.unwrap_or(f64::INFINITY), self.variant.env.len(), self.after_rest)
    }
}

fn compare(
    first: &Variant,
    before: &Summary,
    held: f64,
    others: &[Candidate],
    disturbed: bool,
) -> Verdict {
    let growth = before.median(Column::Growth);
    let gaining: Vec<&Candidate> = others.iter().filter(|other| other.gains(held)).collect();
    if gaining.is_empty() {
        return nobody_is_lower(first, before, held, growth);
    }
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
        mb(best.after_rest),
        first.name,
        mb(held),
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

/// Why nobody is lower: nothing was kept, the program itself holds it, or it cannot be told.
fn nobody_is_lower(first: &Variant, before: &Summary, held: f64, growth: Option<f64>) -> Verdict {
    let small = WORTH_BYTES.max(held * WORTH_SHARE);
    if growth.is_some_and(|growth| growth < small) {
        let sentence = format!(
            "Nothing to gain: {} is back at {} after the rest, {} above its baseline.",
            first.name,
            mb(held),
            mb(growth.unwrap_or(0.0).max(0.0))
        );
        return Verdict { kind: VerdictKind::NothingToGain, variant: None, sentence };
    }
    if let Some(live) = before.median(Column::Live).filter(|live| *live >= held * LIVE_SHARE) {
        let sentence = format!(
            "No allocator helps, because the live heap grows: {2} of the {0} that {1} holds after the rest are live.",
            mb(held),
            first.name,
            mb(live)
        );
        return Verdict { kind: VerdictKind::LiveHeapGrows, variant: None, sentence };
    }
    let trim = before.median(Column::Reclaimable);
    let reason = match trim {
        Some(trim) if trim >= small => {
            format!("although malloc_trim returns {} there", mb(trim))
        }
        Some(trim) => format!(
            "and malloc_trim returns only {}, so most of it is in use or on pages with live blocks",
            mb(trim.max(0.0))
        ),
        None => "so it is in use or on pages with live blocks".to_owned(),
    };
    let sentence = format!(
        "No allocator helps: after the rest every variant holds about what {} holds, {}, {reason}.",
        first.name,
        mb(held)
    );
    Verdict { kind: VerdictKind::NoneHelps, variant: None, sentence }
}

fn not_enough(reason: String) -> Verdict {
    Verdict {
        kind: VerdictKind::NotEnough,
        variant: None,
        sentence: format!("Not enough evidence: {reason}."),
    }
}

mod limit;
mod words;

use words::{and_others, mb};
#[cfg(test)]
mod tests;
