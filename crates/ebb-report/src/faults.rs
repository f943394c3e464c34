//! What page faults and refaults come to, at what one was measured to cost: the price of memory that goes back and is
//! wanted again.

use super::figures;
use ebb_trial::results::{Column, Trial, Unit};

/// A variant's name and how many it had.
type Counted<'a> = (&'a str, f64);

/// The faults of all variants; and the refaults of those that had any, the first variant's too, with what returning
/// their pages cost before. `None` where neither faults nor their cost were measured.
pub fn price(trial: &Trial) -> Option<String> {
    let cost_s = trial.machine.page_fault_s?;
    let faults = counted(trial, Column::PageFaults);
    if faults.is_empty() {
        return None;
    }
    let mut text = format!(
        "A page fault took {} (measured after the trial). Page faults cost: {}.",
        micros(cost_s),
        priced(&faults, cost_s)
    );
    let mut refaults = counted(trial, Column::Refaults);
    refaults.retain(|(_, pages)| *pages > 0.0);
    if let (false, Some(return_s)) = (refaults.is_empty(), trial.machine.page_return_s) {
        let both_s = cost_s + return_s;
        text += &format!(
            " Returning a page took {}; returning and touching it again {}. Refaults cost at least: {}.",
            micros(return_s),
            micros(both_s),
            priced(&refaults, both_s)
        );
    }
    Some(text)
}

/// The medians of a column, of the variants that have one.
fn counted(trial: &Trial, column: Column) -> Vec<Counted<'_>> {
    let variants = trial.variants.iter();
    variants.filter_map(|it| Some((it.name.as_str(), it.median(column)?))).collect()
}

fn priced(counted: &[Counted], each_s: f64) -> String {
    let price = |(name, count): &Counted| {
        let price = figures::plain(count * each_s, Unit::Seconds);
        format!("{name} {price} s")
    };
    counted.iter().map(price).collect::<Vec<_>>().join(", ")
}

fn micros(cost_s: f64) -> String {
    format!("{:.2} µs", cost_s * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
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
            price(&trial(&counts)).unwrap(),
            "A page fault took 1.50 µs (measured after the trial). Page faults cost: glibc 1.80 s, ebbmalloc 0.30 s. \
             Returning a page took 0.50 µs; returning and touching it again 2.00 µs. Refaults cost at least: \
             glibc 0.10 s, ebbmalloc 0.30 s."
        );
    }

    #[test]
    fn who_touched_nothing_again_has_no_price_for_it() {
        let text = price(&trial(&[(200_000.0, Some(0.0)), (100_000.0, Some(50_000.0))])).unwrap();
        assert!(text.ends_with("at least: ebbmalloc 0.10 s."), "{text}");
        let none = price(&trial(&[(200_000.0, Some(0.0)), (100_000.0, Some(0.0))])).unwrap();
        assert!(none.ends_with("ebbmalloc 0.15 s."), "{none}");
    }

    #[test]
    fn a_trial_without_refaults_or_the_cost_of_a_return_prices_faults_alone() {
        let earlier = price(&trial(&[(200_000.0, None), (1_200_000.0, None)])).unwrap();
        assert!(earlier.ends_with("ebbmalloc 1.80 s."), "{earlier}");
        let mut unmeasured = trial(&[(200_000.0, Some(1.0)), (1_200_000.0, Some(1.0))]);
        unmeasured.machine.page_return_s = None;
        assert_eq!(price(&unmeasured).unwrap(), earlier);
    }

    #[test]
    fn nothing_is_said_where_nothing_was_measured() {
        assert_eq!(price(&trial(&[])), None, "no faults");
        let mut unmeasured = trial(&[(1.0, Some(1.0)), (2.0, Some(1.0))]);
        unmeasured.machine.page_fault_s = None;
        assert_eq!(price(&unmeasured), None, "no cost of one");
    }
}
