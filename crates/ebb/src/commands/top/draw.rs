//! Draws the screen of `ebb top` from its state. Only rows in sight are touched; every write ends at the screen's edge.

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::widgets::{Block, Clear, Widget};

use super::model::{FOOT, Mode, Model, Shown, View};
use super::rows::{COLUMNS, Column, Row, fitting, mb};
use super::words;

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const MARKED: Style = Style::new().add_modifier(Modifier::REVERSED);
const PLAIN: Style = Style::new();

/// The whole screen. Without colours the marks and words alone carry the meaning.
pub fn draw(model: &Model, frame: &mut Frame, has_colours: bool) {
    let area = frame.area();
    let mut page = Page { out: frame.buffer_mut(), area, has_colours };
    if model.open.is_some() {
        page.detail(model);
    } else {
        page.list(model);
    }
    match &model.mode {
        Mode::List | Mode::Detail | Mode::Search | Mode::Filter => {}
        Mode::Help(from) => {
            let lines = words::help();
            let room = usize::from(area.height.saturating_sub(2));
            let from = (*from).min(lines.len().saturating_sub(room));
            page.window("Help (j k scroll, any other key closes)", &lines[from..], None);
        }
        Mode::Sort(at) => {
            let lines = COLUMNS.map(|column| {
                let (title, what) = column.title();
                format!("{title:<8} {what}")
            });
            page.window("Sort by (Enter)", &lines, Some(*at));
        }
        Mode::Trim(_, None) => page.window("Trim", &["Reading the heap...".to_owned()], None),
        Mode::Trim(_, Some((lines, _))) => page.window("Trim", lines, None),
        Mode::Note(lines) => page.window("Any key closes this", lines, None),
    }
}

struct Page<'a> {
    out: &'a mut Buffer,
    area: Rect,
    has_colours: bool,
}

impl Page<'_> {
    /// Writes as much of a text as fits into `width` columns.
    fn put(&mut self, at: (u16, u16), width: u16, text: &str, style: Style) {
        let room = self.area.width.saturating_sub(at.0).min(width);
        if at.1 < self.area.height && room > 0 {
            self.out.set_stringn(at.0, at.1, text, usize::from(room), style);
        }
    }

    fn coloured(&self, colour: Color) -> Style {
        if self.has_colours { PLAIN.fg(colour) } else { PLAIN }
    }

    fn list(&mut self, model: &Model) {
        let lines = model.lines();
        let width = self.area.width;
        for (y, text) in (0..lines.head).zip(words::head(model, usize::from(width))) {
            self.put((0, y), width, &text, if y == 0 { BOLD } else { PLAIN });
        }
        let columns = fitting(width);
        self.headings(model, lines.head, &columns);
        let mut count = 0;
        for (y, (row, shown, is_selected)) in (lines.rows..).zip(model.visible()) {
            self.row(model, y, row, shown, &columns);
            if is_selected {
                self.out.set_style(Rect { x: 0, y, width, height: 1 }, MARKED);
            }
            count += 1;
        }
        if count == 0 && lines.count > 0 {
            self.put((0, lines.rows), width, words::nothing(model), PLAIN);
        }
        if lines.has_foot {
            self.foot(model);
        }
    }

    fn headings(&mut self, model: &Model, y: u16, columns: &[(Column, u16, u16)]) {
        if y >= self.area.height {
            return;
        }
        let line = Rect { x: 0, y, width: self.area.width, height: 1 };
        self.out.set_style(line, MARKED);
        for &(column, x, width) in columns {
            let title = words::title_of(column, model.view);
            let wide = usize::from(width);
            let text = if column.is_text() { format!("{title:<wide$}") } else { format!("{title:>wide$}") };
            let style =
                if column == model.sort { MARKED.patch(BOLD).add_modifier(Modifier::UNDERLINED) } else { MARKED };
            self.put((x, y), width, &text, style);
        }
    }

    fn row(&mut self, model: &Model, y: u16, row: &Row, shown: Shown, columns: &[(Column, u16, u16)]) {
        for &(column, x, width) in columns {
            let wide = usize::from(width);
            let style = self.style(column, row);
            let text = match column {
                Column::Trend => trend(model.history(&row.key).into_iter().flatten(), wide),
                Column::Name if shown.depth > 0 => {
                    format!("{}└ {}", "  ".repeat((shown.depth - 1).min(wide / 4)), column.cell(row))
                }
                _ => column.cell(row),
            };
            let text = if column.is_text() { text } else { format!("{text:>wide$}") };
            self.put((x, y), width, &text, style);
        }
    }

    fn style(&self, column: Column, row: &Row) -> Style {
        match column {
            Column::Left if row.is_near_limit() => self.coloured(Color::Red).patch(BOLD),
            Column::Verdict => match row.heap.as_ref().map(|heap| heap.verdict) {
                Some("retention" | "mixed") => self.coloured(Color::Yellow),
                Some("in use") => self.coloured(Color::Green),
                Some("grows") => self.coloured(Color::Red),
                _ => PLAIN,
            },
            _ => PLAIN,
        }
    }

    fn foot(&mut self, model: &Model) {
        let y = self.area.height.saturating_sub(1);
        let width = self.area.width;
        let line = match model.mode {
            Mode::Search => Some(format!("Search: {}_  F3 next, Enter keeps, Esc clears", model.search)),
            Mode::Filter => Some(format!("Filter: {}_  Enter keeps, Esc clears", model.filter)),
            _ => None,
        };
        if let Some(line) = line {
            return self.put((0, y), width, &line, BOLD);
        }
        let mut x = 0;
        for (key, label, _) in FOOT {
            let label = if key == "Tab" && model.view == View::Groups { "Procs" } else { label };
            self.put((x, y), width, key, BOLD);
            x += key.len() as u16;
            self.put((x, y), width, label, MARKED);
            x += label.len() as u16 + 1;
        }
    }

    fn detail(&mut self, model: &Model) {
        let width = self.area.width;
        let row = model.rows().find(|row| Some(&row.key) == model.open.as_ref());
        let mut y = 0;
        let title = row.map_or_else(|| "It has ended.".to_owned(), words::title);
        self.put((0, y), width, &title, BOLD);
        y += 1;
        if let Some(points) = model.open.as_ref().and_then(|key| model.history(key))
            && self.area.height > 10
        {
            let least = points.iter().min().copied().unwrap_or(0);
            let most = points.iter().max().copied().unwrap_or(0);
            let line = format!("RSS {} to {} MB", mb(least), mb(most));
            let wide = usize::from(width).saturating_sub(line.len() + 2);
            self.put((0, y), width, &format!("{line}  {}", trend(points, wide)), PLAIN);
            y += 2;
        }
        let last = self.area.height.saturating_sub(1);
        match &model.detail {
            Some(lines) => {
                let lines = lines.iter().skip(model.scroll);
                let pieces = lines.flat_map(|line| words::folded(line, usize::from(width)));
                for (y, line) in (y..last).zip(pieces) {
                    self.put((0, y), width, &line, PLAIN);
                }
            }
            None => self.put((0, y), width, "Reading the heap...", PLAIN),
        }
        if last > 0 {
            self.put((0, last), width, "Esc back  j k PgUp PgDn scroll  T trim  S snap  F1 help", MARKED);
        }
    }

    /// A window in the middle with these lines; one of them may be marked, and is in sight.
    fn window(&mut self, title: &str, lines: &[String], marked: Option<usize>) {
        let longest = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
        let width = (longest.max(title.len() + 2) as u16).saturating_add(4).min(self.area.width);
        let height = (lines.len() as u16).saturating_add(2).min(self.area.height);
        let x = (self.area.width - width) / 2;
        let y = (self.area.height - height) / 2;
        let area = Rect { x, y, width, height };
        Clear.render(area, self.out);
        Block::bordered().title(format!(" {title} ")).render(area, self.out);
        let room = usize::from(height.saturating_sub(2));
        let first = marked.map_or(0, |at| (at + 1).saturating_sub(room));
        for (y, (at, line)) in (y + 1..).zip(lines.iter().enumerate().skip(first).take(room)) {
            let style = if marked == Some(at) { MARKED } else { PLAIN };
            self.put((x + 2, y), width.saturating_sub(4), line, style);
        }
    }
}

/// The last points as bars, from the least to the most of them; a flat line where they are within 1 % of each other.
fn trend<'a>(points: impl IntoIterator<Item = &'a u64>, width: usize) -> String {
    let points: Vec<u64> = points.into_iter().copied().collect();
    let points = &points[points.len().saturating_sub(width)..];
    let least = points.iter().min().copied().unwrap_or(0);
    let most = points.iter().max().copied().unwrap_or(0);
    let range = (most - least).max(most / 100).max(1);
    let bar = |point: &u64| BARS[(u128::from(point - least) * 7 / u128::from(range)) as usize];
    points.iter().map(bar).collect()
}

#[cfg(test)]
mod tests;
