//! What page faults come to, at what one was measured to cost: the price of memory that goes back and is wanted
//! again.

use super::figures;
use crate::facts::trial::{Column, Trial, Unit, Variant};

/// A variant's name and its page faults.
type Faults<'a> = (&'a str, f64);

/// The faults of all variants; and those beyond the first variant's with what returning their pages cost before. `None`
/// where neither faults nor their cost were measured.
pub fn price(trial: &Trial) -> Option<String> {
    let cost_s = trial.machine.page_fault_s?;
    let all: Vec<Faults> = trial.variants.iter().filter_map(faults).collect();
    let (first, rest) = all.split_first()?;
    let mut text = format!(
        "A page fault took {} when the trial was over; page faults come to: {}.",
        micros(cost_s),
        priced(&all, cost_s)
    );
    let beyond: Vec<Faults> = rest
        .iter()
        .map(|(name, faults)| (*name, faults - first.1))
        .filter(|(_, more)| *more > 0.0)
        .collect();
    if let (false, Some(return_s)) = (beyond.is_empty(), trial.machine.page_return_s) {
        text += &format!(
            " Returning a page took {}; those beyond {}'s, returned before and touched again: {}.",
            micros(return_s),
            first.0,
            priced(&beyond, cost_s + return_s)
        );
    }
    Some(text)
}

fn faults(variant: &Variant) -> Option<Faults<'_>> {
    let faults = variant.summary.as_ref()?.median(Column::PageFaults)?;
    Some((variant.name.as_str(), faults))
}

fn priced(faults: &[Faults], each_s: f64) -> String {
    let price = |(name, count): &Faults| {
        let price = figures::plain(count * each_s, Unit::Seconds);
        format!("{name} {price} s")
    };
    faults.iter().map(price).collect::<Vec<_>>().join(", ")
}

fn micros(cost_s: f64) -> String {
    format!("{:.2} µs", cost_s * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::example;
    use crate::facts::trial::Figure;

    /// The example's trial, whose variants had so many page faults.
    fn trial(faults: &[f64]) -> Trial {
        let mut trial = example::trial();
        trial.machine.page_fault_s = Some(1.5e-6);
        trial.machine.page_return_s = Some(0.5e-6);
        for (variant, faults) in trial.variants.iter_mut().zip(faults) {
            let figure = Figure {
                n: 3,
                median: *faults,
                min: *faults,
                max: *faults,
                versus_first: None,
            };
            let summary = variant.summary.as_mut().unwrap();
            summary.figures.insert(Column::PageFaults, figure);
        }
        trial
    }

    #[test]
    fn pages_that_went_and_came_again_are_priced_both_ways() {
        let text = price(&trial(&[200_000.0, 1_200_000.0])).unwrap();
        assert_eq!(
            text,
            "A page fault took 1.50 µs when the trial was over; page faults come to: glibc 0.30 s, ebbmalloc 1.80 s. \
             Returning a page took 0.50 µs; those beyond glibc's, returned before and touched again: ebbmalloc 2.00 s."
        );
    }

    #[test]
    fn fewer_faults_than_the_first_were_not_returned() {
        let text = price(&trial(&[200_000.0, 100_000.0])).unwrap();
        assert!(text.ends_with("ebbmalloc 0.15 s."), "{text}");
    }

    #[test]
    fn nothing_is_said_where_nothing_was_measured() {
        assert_eq!(price(&trial(&[])), None, "no faults");
        let mut unmeasured = trial(&[1.0, 2.0]);
        unmeasured.machine.page_fault_s = None;
        assert_eq!(price(&unmeasured), None, "no cost of one");
    }
}
