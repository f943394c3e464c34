//! The table of what changed since an earlier trial.
//!
//! Used by `report/tables`, for `ebb compare --against`.

use super::table::{Cell, Row, Table, no_figure};
use super::{figures, notes};
use ebb_trial::results::against::{Against, Change};
use ebb_trial::results::{Column, Trial, Unit};

/// What changed since an earlier trial in those of `columns` that either has.
pub fn table(trial: &Trial, against: &Against, columns: &[Column]) -> Table {
    let has = |column: &Column| {
        against.variants.iter().any(|changes| changes.columns.contains_key(column))
    };
    let columns: Vec<Column> = columns.iter().copied().filter(has).collect();
    let rows = against.variants.iter().map(|changes| Row {
        name: changes.name.clone(),
        recommended: trial.recommends(&changes.name),
        cells: columns
            .iter()
            .map(|column| match changes.columns.get(column) {
                Some(change) => change_cell(change, column.unit()),
                None => no_figure("not measured"),
            })
            .collect(),
    });
    Table {
        title: format!("Against {}", against.started),
        caption: format!(
            "then → now, with the 95 % interval of the difference below; better or worse from {} %{}",
            (against.threshold_share * 1000.0).round() / 10.0,
            notes::disturbed(trial)
        ),
        rows: rows.collect(),
        columns: columns.iter().map(|column| column.label().to_owned()).collect(),
    }
}

fn change_cell(change: &Change, unit: Unit) -> Cell {
    let interval = match change.difference.interval {
        Some((low, high)) => {
            format!("{} … {}", figures::signed(low, unit), figures::signed(high, unit))
        }
        None => "one run".to_owned(),
    };
    Cell {
        main: format!(
            "{} → {}",
            figures::plain(change.before, unit),
            figures::plain(change.now, unit)
        ),
        detail: Some(format!("{interval}, {}", change.judgement.label())),
        is_figure: true,
    }
}
