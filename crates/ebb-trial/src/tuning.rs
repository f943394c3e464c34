//! How much the settings of an allocator matter, against none.
//!
//! Used by `commands/compare --tune`, whose first variant has no settings. Pure.

use super::cost::{self, Share, megabytes};
use crate::results::sureness::{Reading, Tuned};
use crate::results::{Column, Figure, Variant};

/// What the trial says of the settings; `None` where the variant without any gave no figure.
pub fn of(allocator: &str, variants: &[Variant]) -> Option<Tuned> {
    let first = variants.first()?;
    let held = first.median(Column::AfterRest)?;
    let mut order: Vec<(&Variant, &Figure)> =
        variants.iter().filter_map(|variant| Some((variant, variant.figure(Column::AfterRest)?))).collect();
    order.sort_by(|left, right| left.1.median.total_cmp(&right.1.median));
    let ((best, lowest), (worst, highest)) = (order.first()?, order.last()?);
    let readings: Vec<Reading> = order.iter().filter_map(|(_, figure)| figure.versus_first?.reading).collect();
    let matters = readings.is_empty() || readings.contains(&Reading::Real);
    let one_run = if readings.is_empty() { " One run, direction only." } else { "" };
    let sentence = if order.len() < 2 {
        format!("No setting of {allocator} has a complete run, except {}.", first.name)
    } else if matters {
        format!(
            "Settings of {allocator} matter: from {} ({}) to {} ({}) after the rest, {} with none.{}{one_run}",
            megabytes(lowest.median),
            best.name,
            megabytes(highest.median),
            worst.name,
            megabytes(held),
            cost_in_words(best, cost::is_disturbed(variants))
        )
    } else {
        format!(
            "Settings of {allocator} do not matter here: none certainly changes the {} after the rest.",
            megabytes(held)
        )
    };
    Some(Tuned {
        allocator: allocator.to_owned(),
        order: order.iter().map(|(variant, _)| variant.name.clone()).collect(),
        sentence,
    })
}

/// What the best costs in CPU time against none.
fn cost_in_words(best: &Variant, disturbed: bool) -> String {
    let figure = best.figure(Column::Cpu).filter(|figure| figure.versus_first.is_some());
    let Some(figure) = figure else {
        return String::new();
    };
    if disturbed {
        return " The CPU time of the lowest is unknown: disturbed.".to_owned();
    }
    let Some(share) = Share::of(Column::Cpu, figure) else {
        return String::new();
    };
    let interval = share.interval_in_words();
    match share.reading {
        Some(Reading::NoRealDifference) => {
            format!(" The lowest costs no more CPU time{interval}.")
        }
        Some(Reading::Unclear) => {
            format!(" The CPU time of the lowest is unclear{interval}.")
        }
        _ => format!(" The lowest takes {:+.0} % CPU time{interval}.", share.value * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn the_range_of_the_settings_is_said_best_first() {
        let mut trial = example::trial();
        let tuned = of("glibc", &trial.variants).unwrap();
        assert_eq!(tuned.order, ["ebbmalloc", "glibc"]);
        assert!(
            tuned.sentence.starts_with(
                "Settings of glibc matter: from 61 MB (ebbmalloc) to 343 MB (glibc) after the rest, 343 MB with none."
            ),
            "{}",
            tuned.sentence
        );
        let summary = trial.variants[1].summary.as_mut().unwrap();
        let figure = summary.figures.get_mut(&Column::AfterRest).unwrap();
        let difference = figure.versus_first.as_mut().unwrap();
        difference.reading = Some(Reading::NoRealDifference);
        let tuned = of("glibc", &trial.variants).unwrap();
        assert!(tuned.sentence.contains("do not matter"), "{}", tuned.sentence);
        trial.variants.remove(0);
        trial.variants.remove(0);
        assert_eq!(of("glibc", &trial.variants), None);
    }
}
