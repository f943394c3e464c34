//! The phases of a program's life in a terminal: one table, then for each phase what explains it and what is ruled out.

use std::fmt::Write;

use comfy_table::{CellAlignment, presets};

use super::diagnosis::words::wrap;
use super::figures::duration;
use ebb_diagnosis::facts::life::{Left, Life, Phase, Suspect};

/// Changes below this are not worth a line in the list of a phase.
const LEAST_CHANGE: u64 = 1 << 20;

/// The whole.
pub fn render(life: &Life, columns: usize) -> String {
    let mut out = format!("{}\n\n", life.sentence);
    for caution in &life.cautions {
        let _ = writeln!(out, "! {caution}");
    }
    let _ = writeln!(out, "{}", table(&life.phases));
    for phase in &life.phases {
        let Some(left) = phase.left.as_ref().filter(|it| it.total.unsigned_abs() >= LEAST_CHANGE) else {
            continue;
        };
        let _ = writeln!(out, "\n{}", phase.label);
        for line in explained(left) {
            for line in wrap(&line, columns.saturating_sub(2), 2) {
                let _ = writeln!(out, "  {line}");
            }
        }
    }
    out
}

/// One row per point.
fn table(phases: &[Phase]) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["phase", "at", "MB", "left", "live", "held", "other"]);
    for phase in phases {
        let left = phase.left.as_ref();
        let of = |figure: fn(&Left) -> Option<i64>| left.and_then(figure).map_or_else(String::new, signed);
        let at = phase.at_s.map_or_else(String::new, duration);
        let total = format!("{:.1}", phase.total as f64 / 1e6);
        table.add_row([
            phase.label.clone(),
            at,
            total,
            of(|left| Some(left.total)),
            of(|left| left.live),
            of(|left| left.held),
            of(|left| Some(left.total - left.live? - left.held?)),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

/// What is in it, what is ruled out, and what is not known.
fn explained(left: &Left) -> Vec<String> {
    let list = |all: Vec<&Suspect>| all.into_iter().map(suspect).collect::<Vec<_>>().join(", ");
    let (known, unknown): (Vec<&Suspect>, Vec<&Suspect>) =
        left.suspects.iter().partition(|suspect| suspect.bytes.is_some());
    let (out, part): (Vec<&Suspect>, Vec<&Suspect>) = known.into_iter().partition(|it| it.ruled_out);
    let lines = [("has a part", part), ("ruled out", out), ("not known", unknown)];
    let lines = lines.into_iter().filter(|(_, all)| !all.is_empty());
    lines.map(|(what, all)| format!("{what}: {}", list(all))).collect()
}

fn suspect(suspect: &Suspect) -> String {
    let count = suspect.count.filter(|count| *count != 0).zip(suspect.counted.as_ref());
    let count = count.map(|(count, noun)| {
        let noun = if count.abs() == 1 { noun.trim_end_matches('s') } else { noun };
        format!("{count:+} {noun}")
    });
    let bytes = suspect.bytes.map(|bytes| format!("{} MB", signed(bytes)));
    let figures: Vec<String> = bytes.into_iter().chain(count).collect();
    match figures.as_slice() {
        [] => suspect.what.clone(),
        figures => format!("{} ({})", suspect.what, figures.join(", ")),
    }
}

fn signed(bytes: i64) -> String {
    let text = format!("{:+.1}", bytes as f64 / 1e6);
    if text == "-0.0" { "+0.0".to_owned() } else { text.replace('-', "\u{2212}") }
}
