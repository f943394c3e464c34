//! Workers side by side: a table with one row per worker, and what one more would cost.

use comfy_table::{CellAlignment, presets};

use super::words::mb;
use crate::figures::duration;
use ebb_diagnosis::facts::workers::{Pool, Worker};

/// A heading, and the text of a worker's figure.
type Column = (&'static str, fn(&Worker) -> Option<String>);

const COLUMNS: [Column; 9] = [
    ("live", |it| size(it.live)),
    ("held", |it| size(it.held)),
    ("interpreter", |it| size(it.interpreter)),
    ("private", |it| size(it.private)),
    ("shared", |it| size(it.shared)),
    ("PSS", |it| size(Some(it.total))),
    ("peak", |it| size(it.peak)),
    ("CPU s", |it| Some(format!("{:.1}", it.cpu_s))),
    ("age", |it| it.age_s.map(duration)),
];

fn size(bytes: Option<u64>) -> Option<String> {
    bytes.map(|bytes| mb(bytes as i64))
}

/// One row per worker; a column without any figure is left out.
pub(super) fn table(pool: &Pool) -> String {
    let columns: Vec<&Column> =
        COLUMNS.iter().filter(|(_, figure)| pool.workers.iter().any(|worker| figure(worker).is_some())).collect();
    let mut table = comfy_table::Table::new();
    table.load_style(presets::NOTHING);
    let title = format!("{} of parent {}, MB", pool.name, pool.parent);
    let headings = columns.iter().map(|(heading, _)| (*heading).to_owned());
    table.set_header(std::iter::once(title).chain(headings));
    for worker in &pool.workers {
        let mark = if pool.outliers.contains(&worker.pid) { "* " } else { "  " };
        let cells = columns.iter().map(|(_, figure)| figure(worker).unwrap_or_default());
        table.add_row(std::iter::once(format!("{mark}{}", worker.pid)).chain(cells));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let room = room(pool).map_or_else(String::new, |room| format!("\n{room}"));
    format!("{table}{room}")
}

/// How many fit below the limit, and what one more costs.
pub(super) fn room(pool: &Pool) -> Option<String> {
    let room = pool.room?;
    let mb = |bytes: u64| mb(bytes as i64);
    Some(format!(
        "One more {} costs {} MB ({} at its floor, {} at its peak); the limit holds {} at their floor, {} at their peak.",
        pool.name,
        mb(room.each),
        mb(room.floor),
        mb(room.peak),
        room.fit_at_floor,
        room.fit_at_peak,
    ))
}
