//! What page faults and refaults cost, by the measured cost of one: the cost of memory that is returned and
//! wanted again.

use super::figures;
use ebb_trial::results::{Column, Trial, Unit};

/// A variant's name and how many it had.
type Counted<'a> = (&'a str, f64);

/// The faults of all variants; and the refaults of variants that had any, and of the first variant, with what returning
/// their pages cost before. `None` where neither faults nor their cost were measured.
pub fn cost_in_words(trial: &Trial) -> Option<String> {
    let cost_s = trial.machine.page_fault_s?;
    let faults = counted(trial, Column::PageFaults);
    if faults.is_empty() {
        return None;
    }
    let mut text = format!(
        "A page fault took {} (measured after the trial). Page faults cost: {}.",
        micros(cost_s),
        costs_in_words(&faults, cost_s)
    );
    let mut refaults = counted(trial, Column::Refaults);
    refaults.retain(|(_, pages)| *pages > 0.0);
    if let (false, Some(return_s)) = (refaults.is_empty(), trial.machine.page_return_s) {
        let both_s = cost_s + return_s;
        text += &format!(
            " Returning a page took {}; returning and touching it again {}. Refaults cost at least: {}.",
            micros(return_s),
            micros(both_s),
            costs_in_words(&refaults, both_s)
        );
    }
    Some(text)
}

/// The medians of a column, of the variants that have one.
fn counted(trial: &Trial, column: Column) -> Vec<Counted<'_>> {
    let variants = trial.variants.iter();
    variants.filter_map(|it| Some((it.name.as_str(), it.median(column)?))).collect()
}

fn costs_in_words(counted: &[Counted], each_s: f64) -> String {
    let cost = |(name, count): &Counted| {
        let seconds = figures::plain(count * each_s, Unit::Seconds);
        format!("{name} {seconds} s")
    };
    counted.iter().map(cost).collect::<Vec<_>>().join(", ")
}

fn micros(cost_s: f64) -> String {
    format!("{:.2} µs", cost_s * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_trial::example;
    use ebb_trial::results::Figure;

    /// The example's trial, whose variants had so many page faults and refaults.
    fn trial(counts: &[(f64, Option<f64>)]) -> Trial {
        let mut trial = example::trial();
        trial.machine.page_fault_s = Some(1.5e-6);
        trial.machine.page_return_s = Some(0.5e-6);
        for (variant, (faults, refaults)) in trial.variants.iter_mut().zip(counts) {
            let figures = &mut variant.summary.as_mut().unwrap().figures;
            figures.insert(Column::PageFaults, figure(*faults));
            figures.extend(refaults.map(|pages| (Column::Refaults, figure(pages))));
        }
        trial
    }

    fn figure(median: f64) -> Figure {
        Figure { n: 3, median, min: median, max: median, versus_first: None }
    }

    #[test]
    fn pages_that_went_and_came_again_are_priced_both_ways() {
        // The first variant has the most faults: that says nothing about what the others touched again.
        let counts = [(1_200_000.0, Some(50_000.0)), (200_000.0, Some(150_000.0))];
        assert_eq!(
            cost_in_words(&trial(&counts)).unwrap(),
            "A page fault took 1.50 µs (measured after the trial). Page faults cost: glibc 1.80 s, ebbmalloc 0.30 s. \
             Returning a page took 0.50 µs; returning and touching it again 2.00 µs. Refaults cost at least: \
             glibc 0.10 s, ebbmalloc 0.30 s."
        );
    }

    #[test]
    fn what_was_not_measured_has_no_price() {
        let faults = |refaults: [Option<f64>; 2]| trial(&[(200_000.0, refaults[0]), (100_000.0, refaults[1])]);
        let without = |refaults, fault_s, return_s| {
            let mut trial = faults(refaults);
            trial.machine.page_fault_s = fault_s;
            trial.machine.page_return_s = return_s;
            trial
        };
        let touched = [Some(1.0), Some(1.0)];
        for (what, trial, end) in [
            ("one touched nothing", faults([Some(0.0), Some(50_000.0)]), Some("at least: ebbmalloc 0.10 s.")),
            ("nobody touched anything", faults([Some(0.0), Some(0.0)]), Some("cost: glibc 0.30 s, ebbmalloc 0.15 s.")),
            ("no refaults", faults([None, None]), Some("cost: glibc 0.30 s, ebbmalloc 0.15 s.")),
            (
                "no cost of a return",
                without(touched, Some(1.5e-6), None),
                Some("cost: glibc 0.30 s, ebbmalloc 0.15 s."),
            ),
            ("no cost of a fault", without(touched, None, Some(0.5e-6)), None),
            ("no faults", trial(&[]), None),
        ] {
            let text = cost_in_words(&trial);
            assert_eq!(text.is_some(), end.is_some(), "{what}: {text:?}");
            assert!(text.unwrap_or_default().ends_with(end.unwrap_or("")), "{what}");
        }
    }
}
