//! Clauses and figures of a verdict's sentence.

use crate::cost;
use crate::results::Summary;

/// "; as low: A; as low, at a higher cost: B": the cost only where it is known and all runs say so.
pub(super) fn and_others(
    what: &str,
    others: &[(&str, &Summary)],
    best: Option<&Summary>,
) -> String {
    let dearer = |summary: &Summary| best.is_some_and(|best| cost::is_dearer(summary, best));
    let mut text = String::new();
    for (words, wanted) in [("", false), (", at a higher cost", true)] {
        let names: Vec<&str> = others
            .iter()
            .filter(|(_, summary)| dearer(summary) == wanted)
            .map(|(name, _)| *name)
            .collect();
        if !names.is_empty() {
            text += &format!("; {what}{words}: {}", names.join(", "));
        }
    }
    text
}

/// Bytes in MB.
pub(super) fn mb(bytes: f64) -> String {
    format!("{:.0} MB", bytes / 1e6)
}
