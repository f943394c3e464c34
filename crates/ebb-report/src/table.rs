//! A table of a report: headings, rows and cells, independent of how it is drawn.

use ebb_trial::results::Trial;

#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Table {
    pub title: String,
    pub caption: String,
    /// The headings of the columns after the variant's name.
    pub columns: Vec<String>,
    pub rows: Vec<Row>,
}

impl Table {
    /// Whether a cell has a figure, or says why there is none.
    pub(super) fn has_figures(&self) -> bool {
        let mut cells = self.rows.iter().flat_map(|row| &row.cells);
        cells.any(|cell| cell.main != NOTHING)
    }

    /// Whether a row is the recommended one.
    pub(super) fn recommends(&self) -> bool {
        self.rows.iter().any(|row| row.recommended)
    }
}

/// Where a long name may be broken: after the signs between its words.
pub(super) const WORD_ENDS: [char; 7] = ['+', '=', ',', ':', '/', '_', '-'];

/// The text of a cell without a run.
pub(super) const NOTHING: &str = "–";

#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Row {
    pub name: String,
    pub recommended: bool,
    pub cells: Vec<Cell>,
}

/// A cell: a figure and what belongs to it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Cell {
    /// The figure, or why there is none.
    pub main: String,
    /// Spread or interval, where there is one.
    pub detail: Option<String>,
    /// Whether `main` is a figure.
    pub is_figure: bool,
}

impl Row {
    pub(super) fn of(trial: &Trial, name: &str, cells: impl Iterator<Item = Cell>) -> Row {
        Row { name: name.to_owned(), recommended: trial.recommends(name), cells: cells.collect() }
    }
}

impl Cell {
    pub(super) fn figure(main: String, detail: Option<String>) -> Cell {
        Cell { main, detail, is_figure: true }
    }

    /// The figure with its detail in brackets.
    pub(super) fn in_one_line(&self) -> String {
        match &self.detail {
            Some(detail) => format!("{} ({detail})", self.main),
            None => self.main.clone(),
        }
    }
}

/// A cell without a figure, and why.
pub(super) fn no_figure(text: &str) -> Cell {
    Cell { main: text.to_owned(), detail: None, is_figure: false }
}
