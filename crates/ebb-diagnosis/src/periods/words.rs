//! The sentence of a comparison, and what speaks against its figures.

use crate::facts::periods::{Comparison, Figure, Level, Period};
use ebb_statistics::Reading;

/// Gaps of this part of a period are worth a word.
const GAPS_MATTER: f64 = 0.1;

/// The answer in one or two sentences.
pub fn sentence(comparison: &Comparison) -> String {
    let target = &comparison.target;
    let real: Vec<&Level> = comparison.levels.iter().filter(|level| level.is_real()).collect();
    let Some((main, rest)) = real.split_first() else {
        let typical = &comparison.levels[0];
        return match (typical.reading, typical.interval) {
            (Some(Reading::NoRealDifference), Some((low, high))) => format!(
                "No real difference in the memory of {target}: {} to {} %.",
                percent(typical.share(low)),
                percent(typical.share(high)),
            ),
            (Some(_), Some((low, high))) => format!(
                "Not clear yet whether the memory of {target} changed: {} to {} %; record longer.",
                percent(typical.share(low)),
                percent(typical.share(high)),
            ),
            _ => format!(
                "Too few records of {target} for an interval: {} % between both periods; record longer.",
                percent(typical.share(typical.change)),
            ),
        };
    };
    let subject = match main.figure {
        Figure::Typical => format!("The memory of {target}"),
        figure => format!("The typical memory of {target} did not clearly change, but its {}", noun(figure)),
    };
    let sustained = match comparison.sustained_s {
        Some(seconds) if seconds < comparison.after.seconds => {
            format!(", but only for the first {}", duration(seconds))
        }
        Some(seconds) => format!(", sustained over {}", duration(seconds)),
        None => String::new(),
    };
    let mut text = format!(
        "{subject} is {}{sustained}: {:.0} MB before, {:.0} MB after.",
        by_how_much(main),
        main.before / 1e6,
        main.after / 1e6
    );
    if let Some(floor) = rest.iter().find(|level| level.figure == Figure::Floor) {
        text += &format!(" Its floor is {}.", by_how_much(floor));
    }
    text
}

/// "47 % lower (45 to 49 %)".
fn by_how_much(level: &Level) -> String {
    let (low, high) = level.interval.unwrap_or((level.change, level.change));
    let shares = [low, high].map(|it| level.share(it).abs() * 100.0);
    let word = if level.change < 0.0 { "lower" } else { "higher" };
    format!(
        "{} % {word} ({} to {} %)",
        plain(level.share(level.change).abs() * 100.0),
        plain(shares[0].min(shares[1])),
        plain(shares[0].max(shares[1]))
    )
}

fn noun(figure: Figure) -> &'static str {
    match figure {
        Figure::Typical => "typical memory",
        Figure::Floor => "floor",
        Figure::Peak => "peak",
    }
}

/// Two digits.
fn plain(percent: f64) -> String {
    if percent < 9.95 { format!("{percent:.1}") } else { format!("{percent:.0}") }
}

fn percent(share: f64) -> String {
    let sign = if share < 0.0 { "\u{2212}" } else { "+" };
    format!("{sign}{}", plain(share.abs() * 100.0))
}

/// "17 h", "3 days", "40 min".
pub fn duration(seconds: f64) -> String {
    const UNITS: [(f64, &str); 3] = [(2.0 * 86_400.0, "days"), (3600.0, "h"), (60.0, "min")];
    let unit = UNITS.iter().find(|(least, _)| seconds >= *least);
    match unit {
        Some((_, "days")) => format!("{:.0} days", seconds / 86_400.0),
        Some((unit, word)) => format!("{:.0} {word}", seconds / unit),
        None => format!("{seconds:.0} s"),
    }
}

/// What speaks against the figures; `hourly` where the windows are hours.
pub fn cautions(before: &Period, after: &Period, same_hours: bool, hourly: bool) -> Vec<String> {
    let mut cautions = Vec::new();
    if !hourly {
        cautions.push(
            "a period is shorter than 6 hours: the change may be a wave of the day; compare whole days".to_owned(),
        );
    } else if !same_hours {
        cautions.push(
            "the periods have too few hours of the day in common: the change may be a wave of the day; compare whole days"
                .to_owned(),
        );
    }
    for (name, period) in [("before", before), ("after", after)] {
        let share = |seconds: f64| seconds / period.seconds.max(1.0);
        if share(period.gaps_s) >= GAPS_MATTER {
            let percent = share(period.gaps_s) * 100.0;
            cautions.push(format!("{name}: {percent:.0} % of the time has no records"));
        }
        if period.absent_s > 0.0 {
            let absent = duration(period.absent_s);
            cautions.push(format!("{name}: nothing ran for about {absent}; that time does not count"));
        }
        if period.allocators.len() > 1 {
            let list = period.allocators.join(", ");
            cautions.push(format!("{name}: processes ran on different allocators: {list}"));
        }
    }
    if before.target != after.target {
        let (before, after) = (&before.target, &after.target);
        cautions.push(format!("the records are of {before}, then of {after}"));
    }
    cautions
}
