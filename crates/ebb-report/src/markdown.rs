//! `report.md`: the report for a pull request or a ticket.

use super::diagnosis::words::capital;
use super::table::Cell;
use super::{notes, tables};
use ebb_trial::results::Trial;
use std::fmt::Write;

/// The whole file.
pub fn render(trial: &Trial) -> String {
    let mut out = format!("# {}: what each allocator keeps\n\n", escape(&trial.workload.name));
    for sentence in notes::conclusions(trial) {
        let _ = writeln!(out, "**{}**\n", escape(sentence));
    }
    for table in tables::of(trial) {
        let _ = writeln!(out, "## {}\n\n{}.\n", table.title, capital(&table.caption));
        let _ = writeln!(out, "| variant | {} |", table.columns.join(" | "));
        let _ = writeln!(out, "|---|{}", "---:|".repeat(table.columns.len()));
        for row in &table.rows {
            let name = escape(&row.name);
            let name = if row.recommended { format!("**{name}**") } else { name };
            let cells: Vec<String> = row.cells.iter().map(Cell::in_one_line).collect();
            let _ = writeln!(out, "| {name} | {} |", cells.join(" | "));
        }
        if table.recommends() {
            out.push_str("\nBold: recommended.\n");
        }
        out.push('\n');
    }
    let notes = notes::of(trial);
    if !notes.is_empty() {
        out.push_str("## What did not go as asked\n\n");
        for note in notes {
            let _ = writeln!(out, "- {}", escape(&note.sentence()));
            if !note.lines.is_empty() {
                let _ = writeln!(out, "\n  ```text\n  {}\n  ```", note.lines.join("\n  "));
            }
        }
        out.push('\n');
    }
    out.push_str("## How it was measured\n\n");
    for line in notes::method(trial) {
        let _ = writeln!(out, "- {}", escape(&line));
    }
    out.push_str("\n| variant | preloaded | environment, command |\n|---|---|---|\n");
    for variant in &trial.variants {
        let preloaded: Vec<String> =
            variant.preloaded().iter().map(|path| escape(&path.display().to_string())).collect();
        let preloaded = if preloaded.is_empty() { escape(&variant.without_preload()) } else { preloaded.join("<br>") };
        let command = variant.command_line(&trial.workload);
        let env: Vec<String> = variant
            .env
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .chain(command)
            .map(|text| format!("`{text}`"))
            .collect();
        let _ = writeln!(out, "| {} | {} | {} |", escape(&variant.name), preloaded, env.join("<br>"));
    }
    out
}

/// What would be read as markup.
pub(super) fn escape(text: &str) -> String {
    let escaped = |letter| {
        let before = matches!(letter, '|' | '*' | '_' | '`' | '<' | '[' | '\\').then_some('\\');
        before.into_iter().chain([letter])
    };
    text.chars().flat_map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_trial::example;

    #[test]
    fn the_file_says_what_the_terminal_says() {
        let mut trial = example::trial();
        trial.variants[0].name = "a|b".into();
        trial.workload.vars.insert("bots".into(), "12".into());
        let words = ["service", "--port", "{port}", "--bots", "{bots}"];
        trial.variants[1].command = Some(words.map(str::to_owned).to_vec());
        let text = render(&trial);
        for expected in [
            "# sse: what each allocator keeps\n\n**ebbmalloc holds 61 MB",
            "| **ebbmalloc** | 61.0 (60.0–62.0) |",
            "| a\\|b |",
            "- tcmalloc: not run: not installed",
            "<segfault> & nothing",
            "Workload: sse, profile demo. Streams & subscribers",
            "`service --port {port} --bots 12`",
        ] {
            assert!(text.contains(expected), "{expected} is not in\n{text}");
        }
    }
}
