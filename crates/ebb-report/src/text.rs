//! The report in a terminal: tables, notes, and the verdict last, where the eye ends.

use super::table::{Cell, Table, WORD_ENDS};
use super::{notes, tables};
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Width, presets};
use ebb_trial::results::Trial;
use std::fmt::Write;

/// The whole report. `width` is the terminal's.
pub fn render(trial: &Trial, width: u16) -> String {
    let mut out = String::new();
    for table in tables::of(trial) {
        let mark = if table.recommends() { "* recommended\n" } else { "" };
        let _ = writeln!(out, "{} ({})\n{}\n{mark}", table.title, table.caption, draw(&table, width));
    }
    let notes = notes::of(trial);
    for note in &notes {
        let _ = writeln!(out, "! {}", note.sentence());
        for line in &note.lines {
            let _ = writeln!(out, "    | {line}");
        }
    }
    if !notes.is_empty() {
        out.push('\n');
    }
    let _ = writeln!(out, "Verdict: {}", notes::conclusions(trial).join("\n"));
    out
}

fn draw(table: &Table, width: u16) -> String {
    let mut drawn = comfy_table::Table::new();
    drawn.load_style(presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    drawn.set_width(width);
    drawn.set_header(std::iter::once("variant".to_owned()).chain(table.columns.clone()));
    let mut widest = 0;
    for row in &table.rows {
        let mark = if row.recommended { " *" } else { "" };
        let cells = row.cells.iter().map(lines);
        let name = in_lines(&row.name) + mark;
        let longest = name.lines().map(|line| line.chars().count()).max();
        widest = widest.max(longest.unwrap_or(0));
        drawn.add_row(std::iter::once(name).chain(cells));
    }
    if let Some(column) = drawn.column_mut(0) {
        // With its padding.
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(widest as u16 + 2)));
    }
    for column in drawn.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    drawn.to_string()
}

fn lines(cell: &Cell) -> String {
    match &cell.detail {
        Some(detail) => format!("{}\n{detail}", cell.main),
        None => cell.main.clone(),
    }
}

/// A long name in several lines, which end where a word of it does.
fn in_lines(name: &str) -> String {
    const LETTERS: usize = 20;
    let mut lines = vec![String::new()];
    for part in name.split_inclusive(WORD_ENDS) {
        let is_full =
            lines.last().is_some_and(|line| !line.is_empty() && line.chars().count() + part.chars().count() > LETTERS);
        if is_full {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            line.push_str(part);
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_trial::example;

    #[test]
    fn a_terminal_sees_figures_notes_and_the_verdict_last() {
        let text = render(&example::trial(), 100);
        for expected in [
            "Memory (RSS of the process tree in MB",
            "ebbmalloc *",
            "340.0–345.0",
            "not measured",
            "Difference to glibc",
            "\u{2212}282.0",
            "\u{2212}283.0 … \u{2212}281.0",
            "! tcmalloc: not run: not installed (Debian package libtcmalloc-minimal4)",
            "! jemalloc: run 1 failed: the service was ended by SIGSEGV during burst",
            "    | <segfault> & nothing",
            "! mimalloc: run 1 discarded: python3 (7) uses malloc from libc",
        ] {
            assert!(text.contains(expected), "{expected} is not in\n{text}");
        }
        assert!(text.trim_end().lines().last().unwrap().starts_with("Verdict: ebbmalloc holds 61 MB"));
    }

    /// What the trial is made into, whether the text has a part, and the part.
    #[test]
    fn spread_star_tables_and_interruption_follow_the_trial() {
        type Case = (fn(&mut Trial), &'static [(bool, &'static str)]);
        let cases: [Case; 4] = [
            (
                |trial| {
                    for summary in trial.variants.iter_mut().filter_map(|it| it.summary.as_mut()) {
                        summary.runs = 1;
                        for figure in summary.figures.values_mut() {
                            figure.n = 1;
                            if let Some(difference) = &mut figure.versus_first {
                                difference.interval = None;
                            }
                        }
                    }
                },
                &[
                    (true, "one run, direction only"),
                    (false, "340.0–345.0"),
                    (true, "\n* recommended\n"),
                    (true, " * "),
                ],
            ),
            (|trial| trial.verdict.variant = None, &[(false, "recommended")]),
            (
                |trial| {
                    for variant in &mut trial.variants {
                        variant.summary = None;
                        variant.runs.clear();
                    }
                },
                &[(false, "Cost ("), (false, "─"), (true, "Verdict: ")],
            ),
            (|trial| trial.interrupted = true, &[(true, "! interrupted: finished runs are kept")]),
        ];
        for (change, parts) in cases {
            let mut trial = example::trial();
            change(&mut trial);
            let text = render(&trial, 100);
            for (has, part) in parts {
                assert_eq!(text.contains(part), *has, "{part} in\n{text}");
            }
        }
    }

    #[test]
    fn long_names_are_broken_between_their_words() {
        let mut trial = example::trial();
        trial.variants[0].name = "jemalloc-1000+PYTHONMALLOC=malloc".into();
        for width in [80, 120] {
            let text = render(&trial, width);
            for line in ["jemalloc-1000+ ", "PYTHONMALLOC=malloc "] {
                assert!(text.contains(line), "{text}");
            }
        }
        assert_eq!(in_lines("ebbmalloc"), "ebbmalloc");
    }
}
