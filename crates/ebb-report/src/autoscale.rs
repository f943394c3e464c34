//! The figures of a simulated autoscaler as text, for trials and periods.

use super::figures::plain;
use ebb_diagnosis::facts::autoscale::Outcome;
use ebb_trial::results::Unit;

/// A figure by its name.
pub type Figure = (&'static str, fn(&Outcome) -> String);

/// All figures.
pub const FIGURES: [Figure; 4] = [
    ("replicas, mean (most)", |it| format!("{:.1} ({})", it.replicas, it.most)),
    ("replicas started", |it| it.started.to_string()),
    ("VPA request, MB (bounds)", |it| {
        let [request, lower, upper] = [it.vertical.request, it.vertical.lower, it.vertical.upper]
            .map(|bytes| plain(bytes as f64, Unit::Bytes));
        format!("{request} ({lower} … {upper})")
    }),
    ("VPA restarts", |it| it.vertical.restarts.to_string()),
];
