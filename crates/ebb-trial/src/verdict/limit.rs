//! The verdict of a trial with a memory limit that somebody did not survive.

use super::words::{and_others, mb};
use crate::cost;
use crate::results::{Column, Run, Summary, Variant, Verdict, VerdictKind};

/// The verdict if the first variant was killed for lack of memory; `None` where it was not, and
/// the figures decide as ever.
pub(super) fn judge(variants: &[Variant]) -> Option<Verdict> {
    let (first, others) = variants.split_first()?;
    let fate = fate(first)?;
    // A variant with something beside its allocator is a reference, not a choice.
    let choices = || others.iter().filter(|variant| variant.beside.is_none());
    let mut survivors: Vec<&Variant> =
        choices().filter(|variant| variant.summary.is_some() && !is_killed(variant)).collect();
    let disturbed = cost::is_disturbed(variants);
    let cpu = |variant: &Variant| {
        let summary = variant.summary.as_ref().filter(|_| !disturbed);
        summary.and_then(|summary| summary.median(Column::Cpu)).unwrap_or(f64::INFINITY)
    };
    survivors.sort_by(|left, right| {
        cpu(left).total_cmp(&cpu(right)).then(left.env.len().cmp(&right.env.len()))
    });
    let Some((best, rest)) = survivors.split_first() else {
        let tried: Vec<&str> = choices()
            .filter(|variant| is_killed(variant))
            .map(|variant| variant.name.as_str())
            .collect();
        let also = match tried[..] {
            [] => String::new(),
            _ => format!(", and so is every other variant ({})", tried.join(", ")),
        };
        return Some(Verdict {
            kind: VerdictKind::NoneHelps,
            variant: None,
            sentence: format!("No allocator helps: {} is {fate}{also}.", first.name),
        });
    };
    let peak = best.summary.as_ref().and_then(|summary| summary.median(Column::Peak));
    let peak = peak.map_or(String::new(), |peak| format!(" with a peak of {}", mb(peak)));
    let mut sentence =
        format!("{} stays within the limit{peak} where {} is {fate}", best.name, first.name);
    let rest: Vec<(&str, &Summary)> = rest
        .iter()
        .filter_map(|variant| Some((variant.name.as_str(), variant.summary.as_ref()?)))
        .collect();
    let known = best.summary.as_ref().filter(|_| !disturbed);
    sentence.push_str(&and_others("so do", &rest, known));
    sentence.push('.');
    Some(Verdict { kind: VerdictKind::Recommend, variant: Some(best.name.clone()), sentence })
}

/// Whether a process of it was killed for lack of memory in any run.
pub(super) fn is_killed(variant: &Variant) -> bool {
    variant.runs.iter().any(|run| run.oom.is_some())
}

/// `OOM-killed after 12 s, in 3 of 3 runs, under a limit of 64 MB`
fn fate(variant: &Variant) -> Option<String> {
    let killed: Vec<&Run> = variant.runs.iter().filter(|run| run.oom.is_some()).collect();
    let oom = killed.first()?.oom?;
    let times: Vec<f64> = killed.iter().filter_map(|run| run.oom?.at_s).collect();
    let when = match ebb_statistics::median(&times) {
        Some(seconds) => format!(" after {seconds:.0} s"),
        None => " before it was ready".to_owned(),
    };
    let limit = oom
        .limit_bytes
        .map_or(String::new(), |bytes| format!(", under a limit of {}", mb(bytes as f64)));
    Some(format!("OOM-killed{when}, in {} of {} runs{limit}", killed.len(), variant.runs.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use crate::results::Oom;

    /// The example's glibc and ebbmalloc, of which those named were killed in their first `runs`.
    fn killed(names: &[(&str, usize)]) -> Vec<Variant> {
        let mut variants = example::trial().variants;
        variants.truncate(2);
        for (name, runs) in names {
            let variant = variants.iter_mut().find(|variant| variant.name == *name).unwrap();
            for (at_s, run) in variant.runs.iter_mut().take(*runs).enumerate() {
                run.oom = Some(Oom {
                    at_s: Some(at_s as f64 + 10.0),
                    kills: 1,
                    limit_bytes: Some(64_000_000),
                });
            }
            if *runs == variant.runs.len() {
                variant.summary = None;
            }
        }
        variants
    }

    #[test]
    fn nobody_killed_is_a_matter_of_the_figures() {
        assert_eq!(judge(&killed(&[])), None);
        assert_eq!(judge(&killed(&[("ebbmalloc", 3)])), None);
        assert_eq!(judge(&[]), None);
    }

    #[test]
    fn who_lives_is_recommended_with_the_fate_of_the_first() {
        let verdict = judge(&killed(&[("glibc", 3)])).unwrap();
        assert_eq!(verdict.kind, VerdictKind::Recommend);
        assert_eq!(
            verdict.sentence,
            "ebbmalloc stays within the limit where glibc is OOM-killed after 11 s, in 3 of 3 runs, under a limit of 64 MB."
        );
        let verdict = judge(&killed(&[("glibc", 1)])).unwrap();
        assert!(verdict.sentence.contains("in 1 of 3 runs"), "{}", verdict.sentence);
    }

    #[test]
    fn who_was_killed_once_is_not_recommended() {
        let verdict = judge(&killed(&[("glibc", 3), ("ebbmalloc", 1)])).unwrap();
        assert_eq!((verdict.kind, verdict.variant), (VerdictKind::NoneHelps, None));
        assert!(
            verdict.sentence.contains("so is every other variant (ebbmalloc)"),
            "{}",
            verdict.sentence
        );
    }
}
