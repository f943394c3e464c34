//! The sentences on the screen of `ebb top`, and its help.

use super::model::{Model, View};
use super::rows::{Column, Key, Row, fitting, mb};

/// The two lines at the top.
pub fn head(model: &Model, width: usize) -> [String; 2] {
    let cost = &model.figures.cost;
    let resident = cost.resident.map_or_else(|| "-".to_owned(), mb);
    let every = cost.every_s.map_or_else(String::new, |s| format!(", ticks every {s:.0} s"));
    let own = format!(
        "ebb: {:.2} % of a core (budget {:.1} %), {resident} MB{every}",
        cost.share * 100.0,
        cost.budget * 100.0
    );
    let all = &model.figures.processes;
    let held: Vec<u64> = all.iter().filter_map(|row| Column::Held.bytes(row)).collect();
    let resident: u64 = all.iter().filter_map(|row| row.rss).sum();
    let found = format!(
        "{} processes, RSS {} MB; the heaps of {} were read and hold {} MB",
        all.len(),
        mb(resident),
        held.len(),
        mb(held.iter().sum())
    );
    let second = status(model);
    let first = format!("{}  {found}", cost.clock);
    if first.len() + own.len() + 2 <= width {
        let gap = width - first.len() - own.len();
        [format!("{first}{:gap$}{own}", ""), second]
    } else {
        let gap = width.saturating_sub(own.len() + second.len()).max(2);
        [first, format!("{second}{:gap$}{own}", "")]
    }
}

fn status(model: &Model) -> String {
    let mut parts = Vec::new();
    if model.is_frozen {
        parts.push("FROZEN (f)".to_owned());
    }
    let (title, _) = model.sort.title();
    let order = if model.is_inverted { ", least first" } else { "" };
    parts.push(format!("MB, by {title}{order}"));
    if !model.filter.is_empty() {
        parts.push(format!("filter \"{}\"", model.filter));
    }
    if !model.search.is_empty() {
        parts.push(format!("search \"{}\"", model.search));
    }
    parts.join(", ")
}

/// All rows as a table, for a file or a pipe.
pub fn table(model: &Model) -> String {
    let columns = fitting(model.size.0);
    let columns: Vec<_> = columns.into_iter().filter(|(it, ..)| *it != Column::Trend).collect();
    let line = |cell: &dyn Fn(Column) -> String| {
        let cells = columns.iter().map(|&(column, _, width)| {
            let wide = usize::from(width);
            let text: String = cell(column).chars().take(wide).collect();
            if column.is_text() { format!("{text:<wide$}") } else { format!("{text:>wide$}") }
        });
        cells.collect::<Vec<_>>().join(" ").trim_end().to_owned() + "\n"
    };
    let heading = line(&|column| title_of(column, model.view).to_owned());
    let rows = model.rows().map(|row| line(&|column| column.cell(row)));
    std::iter::once(heading).chain(rows).collect()
}

pub fn title_of(column: Column, view: View) -> &'static str {
    match (column, view) {
        (Column::Id, View::Groups) => "PROCS",
        _ => column.title().0,
    }
}

/// The sentence in place of rows.
pub fn nothing(model: &Model) -> &'static str {
    if model.figures.processes.is_empty() {
        "Reading..."
    } else if model.filter.is_empty() && model.view == View::Groups {
        "No container, unit or other cgroup has processes that ebb sees. Tab shows processes."
    } else {
        "No row matches the filter. Esc clears it."
    }
}

pub fn title(row: &Row) -> String {
    match &row.key {
        Key::Process { pid, .. } => {
            let command = row.command.as_ref().map_or_else(String::new, |it| format!(": {it}"));
            format!("{} ({pid}){command}", row.name)
        }
        Key::Group { cgroup } => format!("{} ({} processes), {cgroup}", row.name, row.processes),
    }
}

/// A line in pieces of at most `width`, broken between words; later ones are indented.
pub fn folded(line: &str, width: usize) -> Vec<String> {
    const INDENT: &str = "    ";
    let mut out = Vec::new();
    let mut rest = line.to_owned();
    while let Some((end, _)) = rest.char_indices().nth(width) {
        // Not in the indent, where nothing would be gained.
        let space = rest[..end].rfind(' ').filter(|&at| !rest[..at].trim().is_empty());
        let Some(at) = space.filter(|&at| at > INDENT.len()) else { break };
        let later = format!("{INDENT}{}", rest[at..].trim_start());
        rest.truncate(at);
        out.push(std::mem::replace(&mut rest, later));
    }
    out.push(rest);
    out
}

/// Keys and columns.
pub fn help() -> Vec<String> {
    const KEYS: [(&str, &str); 12] = [
        ("j k, arrows", "move; Ctrl-d Ctrl-u, PgDn PgUp by pages; gg G to the ends"),
        ("Enter", "the whole ledger of a row; Esc back"),
        ("Tab", "processes, or containers and units"),
        ("F5 t", "as a tree"),
        ("F6 s < >", "sort; I the other way round; or click a heading"),
        ("F3 /", "search; F3 or n the next one"),
        ("F4 \\", "filter; Esc clears"),
        ("f Z", "freeze"),
        ("F7 T", "trim: says what it would return, and asks"),
        ("F8 S", "snap: write a file for ebb diff"),
        ("q F10", "quit"),
        ("", ""),
    ];
    let keys = KEYS.map(|(key, what)| format!("{key:<12} {what}"));
    let columns = super::rows::COLUMNS.map(|column| {
        let (title, what) = column.title();
        format!("{title:<12} {what}")
    });
    keys.into_iter().chain(columns).collect()
}
