//! The state of the screen of `ebb top`: events in, wishes to the reader out. Knows no terminal, no process and no clock.
//!
//! Once a person has moved, the selection stays on its process while rows are sorted anew, so that a key never acts on another one.
//! Before that, and after a jump to the top, the first row is selected, whichever it is.

use std::collections::{HashMap, VecDeque};

use ratatui::crossterm::event::{
    KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

use super::rows::{COLUMNS, Column, Key, Row, fitting};

/// Points of a trend: at 2 s a tick, four minutes.
const MOST_POINTS: usize = 120;
/// Rows that a turn of the wheel moves by.
const WHEEL: isize = 3;

/// What happened.
pub enum Event {
    Key(KeyEvent),
    Mouse(MouseEvent),
    Resize(u16, u16),
    Figures(Figures),
    /// The whole ledger of the row that is open, line by line.
    Detail(Key, Vec<String>),
    /// What a trim would return, and whether it is to be offered.
    Forecast(Key, Vec<String>, bool),
    /// The outcome of a trim or a snap.
    Done(Vec<String>),
    /// A signal, or a terminal that is gone.
    End,
}

/// What the screen wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    Quit,
    /// This row is selected: its heaps are read before others.
    Look(Key),
    Open(Key),
    Forecast(Key),
    Trim(Key),
    Snap(Key),
}

/// What a tick found.
#[derive(Debug, Default)]
pub struct Figures {
    pub processes: Vec<Row>,
    pub groups: Vec<Row>,
    pub cost: Cost,
    /// Whether memory was read anew, which is a point of the trend.
    pub is_tick: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Cost {
    /// CPU time of this program in the last minute, as a part of one core.
    pub share: f64,
    pub budget: f64,
    pub resident: Option<u64>,
    /// The time of day.
    pub clock: String,
    /// Time between two ticks, where it is longer than asked for.
    pub every_s: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    Processes,
    Groups,
}

/// What has the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    List,
    Detail,
    /// The help, from this line on.
    Help(usize),
    /// A column is chosen: its place in [`COLUMNS`].
    Sort(usize),
    Search,
    Filter,
    /// A trim is asked for; what it would return, once that is known.
    Trim(Key, Option<(Vec<String>, bool)>),
    /// Lines that a key closes.
    Note(Vec<String>),
}

/// A row on the screen.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    view: View,
    index: usize,
    pub depth: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lines {
    /// Lines above the headings.
    pub head: u16,
    pub rows: u16,
    pub count: u16,
    pub has_foot: bool,
}

/// The keys of the last line: what is shown, and the key that a click stands for.
pub const FOOT: [(&str, &str, KeyCode); 10] = [
    ("F1", "Help", KeyCode::F(1)),
    ("F3", "Search", KeyCode::F(3)),
    ("F4", "Filter", KeyCode::F(4)),
    ("F5", "Tree", KeyCode::F(5)),
    ("F6", "Sort", KeyCode::F(6)),
    ("F7", "Trim", KeyCode::F(7)),
    ("F8", "Snap", KeyCode::F(8)),
    ("Tab", "Groups", KeyCode::Tab),
    ("f", "Freeze", KeyCode::Char('f')),
    ("q", "Quit", KeyCode::Char('q')),
];

#[derive(Debug)]
pub struct Model {
    pub figures: Figures,
    pub view: View,
    pub is_tree: bool,
    pub sort: Column,
    pub is_inverted: bool,
    pub is_frozen: bool,
    pub filter: String,
    pub search: String,
    pub mode: Mode,
    pub open: Option<Key>,
    /// Its lines; none until they were read.
    pub detail: Option<Vec<String>>,
    pub scroll: usize,
    /// The first row on the screen.
    pub offset: usize,
    pub cursor: usize,
    pub size: (u16, u16),
    shown: Vec<Shown>,
    selected: Option<Key>,
    follows_top: bool,
    announced: Option<Key>,
    history: HashMap<Key, VecDeque<u64>>,
    was_g: bool,
}

impl Model {
    pub fn new(size: (u16, u16), view: View) -> Self {
        Self {
            figures: Figures::default(),
            view,
            is_tree: false,
            sort: Column::Held,
            is_inverted: false,
            is_frozen: false,
            filter: String::new(),
            search: String::new(),
            mode: Mode::List,
            open: None,
            detail: None,
            scroll: 0,
            offset: 0,
            cursor: 0,
            size,
            shown: Vec::new(),
            selected: None,
            follows_top: true,
            announced: None,
            history: HashMap::new(),
            was_g: false,
        }
    }

    pub fn update(&mut self, event: Event) -> Vec<Wish> {
        let mut wishes = Vec::new();
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.key(key, &mut wishes),
            Event::Key(_) => {}
            Event::Mouse(mouse) => self.mouse(mouse, &mut wishes),
            Event::Resize(width, height) => self.size = (width, height),
            Event::Figures(figures) => self.take(figures),
            Event::Detail(key, lines) if self.open.as_ref() == Some(&key) => {
                self.detail = Some(lines);
            }
            Event::Detail(..) => {}
            Event::Forecast(key, lines, offered) => {
                if self.mode == Mode::Trim(key.clone(), None) {
                    self.mode = Mode::Trim(key, Some((lines, offered)));
                }
            }
            Event::Done(lines) => self.mode = Mode::Note(lines),
            Event::End => wishes.push(Wish::Quit),
        }
        self.keep_in_sight();
        if self.selected != self.announced {
            self.announced.clone_from(&self.selected);
            wishes.extend(self.selected.clone().map(Wish::Look));
        }
        wishes
    }

    /// The rows that are on the screen, each with whether it is the selected one.
    pub fn visible(&self) -> impl Iterator<Item = (&Row, Shown, bool)> {
        let rows = self.shown.iter().enumerate().skip(self.offset);
        rows.take(usize::from(self.lines().count)).map(|(at, shown)| (self.row(*shown), *shown, at == self.cursor))
    }

    /// All rows in their order.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.shown.iter().map(|shown| self.row(*shown))
    }

    pub fn selected(&self) -> Option<&Row> {
        self.shown.get(self.cursor).map(|shown| self.row(*shown))
    }

    pub fn history(&self, key: &Key) -> Option<&VecDeque<u64>> {
        self.history.get(key)
    }

    pub fn lines(&self) -> Lines {
        let height = self.size.1;
        let head = match height {
            0..4 => 0,
            4..8 => 1,
            _ => 2,
        };
        let has_foot = height >= 6;
        let rows = head + 1;
        Lines { head, rows, count: height.saturating_sub(rows + u16::from(has_foot)), has_foot }
    }

    fn row(&self, shown: Shown) -> &Row {
        match shown.view {
            View::Processes => &self.figures.processes[shown.index],
            View::Groups => &self.figures.groups[shown.index],
        }
    }

    fn take(&mut self, figures: Figures) {
        if self.is_frozen {
            return;
        }
        let mut history = HashMap::with_capacity(self.history.len());
        for row in figures.processes.iter().chain(&figures.groups) {
            let mut points = self.history.remove(&row.key).unwrap_or_default();
            if figures.is_tick && points.len() == MOST_POINTS {
                points.pop_front();
            }
            points.extend(row.rss.filter(|_| figures.is_tick));
            history.insert(row.key.clone(), points);
        }
        self.history = history;
        self.figures = figures;
        self.arrange();
    }

    /// Puts the rows in order, and finds the selected one again.
    fn arrange(&mut self) {
        let mut all: Vec<Shown> = Vec::new();
        let of = |view, count| (0..count).map(move |index| Shown { view, index, depth: 0 });
        if self.view == View::Groups {
            all.extend(of(View::Groups, self.figures.groups.len()));
        }
        if self.view == View::Processes || self.is_tree {
            all.extend(of(View::Processes, self.figures.processes.len()));
        }
        all.sort_by(|a, b| self.sort.order(self.row(*a), self.row(*b), self.is_inverted));
        if self.is_tree {
            all = self.as_tree(&all);
        }
        self.shown = self.filtered(all);
        let key = self.selected.as_ref().filter(|_| !self.follows_top);
        let again = key.and_then(|key| self.shown.iter().position(|shown| self.row(*shown).key == *key));
        self.select(again.unwrap_or(if self.follows_top { 0 } else { self.cursor }));
    }

    /// Each row below its parent. Siblings are in the order of the first row in or below each.
    fn as_tree(&self, all: &[Shown]) -> Vec<Shown> {
        let key = |at: usize| &self.row(all[at]).key;
        let places: HashMap<&Key, usize> = (0..all.len()).map(|at| (key(at), at)).collect();
        let parent = |at: usize| {
            let row = self.row(all[at]);
            let above = if self.view == View::Groups { &row.group } else { &row.parent };
            places.get(above.as_ref()?).copied().filter(|&place| place != at)
        };
        let mut below: Vec<Vec<usize>> = vec![Vec::new(); all.len() + 1];
        // What has no parent is below the last, which is no row.
        (0..all.len()).for_each(|at| below[parent(at).unwrap_or(all.len())].push(at));
        let mut first: Vec<usize> = (0..=all.len()).collect();
        for (at, _) in depth_first(&below).into_iter().rev() {
            first[at] = below[at].iter().map(|&child| first[child]).fold(at, usize::min);
        }
        below.iter_mut().for_each(|children| children.sort_by_key(|&child| first[child]));
        let rows = depth_first(&below).into_iter();
        rows.map(|(at, depth)| Shown { depth, ..all[at] }).collect()
    }

    /// The rows that the filter finds; in a tree also their ancestors.
    fn filtered(&self, all: Vec<Shown>) -> Vec<Shown> {
        if self.filter.is_empty() {
            return all;
        }
        let words = self.filter.to_lowercase();
        let mut needed = 0;
        let mut kept: Vec<Shown> = Vec::new();
        for shown in all.into_iter().rev() {
            let is_above = shown.depth < needed;
            if is_above || self.row(shown).matches(&words) {
                needed = shown.depth;
                kept.push(shown);
            }
        }
        kept.reverse();
        kept
    }

    fn key(&mut self, key: KeyEvent, wishes: &mut Vec<Wish>) {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if is_control && key.code == KeyCode::Char('c') {
            wishes.push(Wish::Quit);
            return;
        }
        match &self.mode {
            Mode::Search | Mode::Filter => self.typed(key.code, is_control),
            Mode::Help(at) => match key.code {
                KeyCode::Down | KeyCode::Char('j') => self.mode = Mode::Help(at + 1),
                KeyCode::Up | KeyCode::Char('k') => self.mode = Mode::Help(at.saturating_sub(1)),
                _ => self.close(),
            },
            Mode::Note(_) => self.close(),
            Mode::Sort(at) => self.sort_key(key.code, *at),
            Mode::Trim(..) => self.trim_key(key.code, wishes),
            Mode::Detail => self.detail_key(key.code, is_control, wishes),
            Mode::List => self.list_key(key.code, is_control, wishes),
        }
    }

    /// Back to what is below a dialog.
    fn close(&mut self) {
        self.mode = if self.open.is_some() { Mode::Detail } else { Mode::List };
    }

    fn list_key(&mut self, code: KeyCode, is_control: bool, wishes: &mut Vec<Wish>) {
        let page = usize::from(self.lines().count).max(1) as isize;
        let was_g = std::mem::take(&mut self.was_g);
        match code {
            KeyCode::Char('d') if is_control => self.move_by(page / 2),
            KeyCode::Char('u') if is_control => self.move_by(-page / 2),
            _ if is_control => {}
            KeyCode::Char('q') | KeyCode::F(10) => wishes.push(Wish::Quit),
            KeyCode::Down | KeyCode::Char('j') => self.move_by(1),
            KeyCode::Up | KeyCode::Char('k') => self.move_by(-1),
            KeyCode::PageDown => self.move_by(page),
            KeyCode::PageUp => self.move_by(-page),
            KeyCode::Char('g') if !was_g => self.was_g = true,
            KeyCode::Home | KeyCode::Char('g') => {
                self.follows_top = true;
                self.select(0);
            }
            KeyCode::End | KeyCode::Char('G') => self.move_to(usize::MAX),
            KeyCode::F(5) | KeyCode::Char('t') => {
                self.is_tree = !self.is_tree;
                self.arrange();
            }
            KeyCode::Tab => {
                self.view = match self.view {
                    View::Processes => View::Groups,
                    View::Groups => View::Processes,
                };
                self.follows_top = true;
                self.arrange();
            }
            KeyCode::Char('I') => self.sort_by(self.sort, !self.is_inverted),
            KeyCode::F(3) | KeyCode::Char('n') if !self.search.is_empty() => self.find(1),
            KeyCode::F(3) | KeyCode::Char('/') => {
                self.search.clear();
                self.mode = Mode::Search;
            }
            KeyCode::F(4) | KeyCode::Char('\\') => self.mode = Mode::Filter,
            KeyCode::Esc => {
                self.search.clear();
                self.filter.clear();
                self.arrange();
            }
            KeyCode::Enter => {
                self.open.clone_from(&self.selected);
                self.detail = None;
                self.scroll = 0;
                self.close();
                wishes.extend(self.open.clone().map(Wish::Open));
            }
            _ => self.common_key(code, wishes),
        }
    }

    /// Keys of the list and of an open row.
    fn common_key(&mut self, code: KeyCode, wishes: &mut Vec<Wish>) {
        let key = self.open.as_ref().or(self.selected.as_ref()).cloned();
        match code {
            KeyCode::F(1) | KeyCode::Char('?' | 'h') => self.mode = Mode::Help(0),
            KeyCode::F(6) | KeyCode::Char('s' | '<' | '>') if self.open.is_none() => {
                let at = COLUMNS.iter().position(|column| *column == self.sort);
                self.mode = Mode::Sort(at.unwrap_or(0));
            }
            KeyCode::Char('Z' | 'f') => self.is_frozen = !self.is_frozen,
            KeyCode::F(7) | KeyCode::Char('T') => {
                if let Some(key) = key {
                    self.mode = Mode::Trim(key.clone(), None);
                    wishes.push(Wish::Forecast(key));
                }
            }
            KeyCode::F(8) | KeyCode::Char('S') => wishes.extend(key.map(Wish::Snap)),
            _ => {}
        }
    }

    fn detail_key(&mut self, code: KeyCode, is_control: bool, wishes: &mut Vec<Wish>) {
        let half = usize::from(self.size.1 / 2);
        match code {
            KeyCode::Char('d') if is_control => self.scroll += half,
            KeyCode::Char('u') if is_control => self.scroll = self.scroll.saturating_sub(half),
            _ if is_control => {}
            KeyCode::F(10) => wishes.push(Wish::Quit),
            KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q') => {
                self.open = None;
                self.close();
                wishes.extend(self.selected.clone().map(Wish::Look));
            }
            KeyCode::Down | KeyCode::Char('j') => self.scroll += 1,
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.scroll += 2 * half,
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(2 * half),
            KeyCode::Home | KeyCode::Char('g') => self.scroll = 0,
            KeyCode::End | KeyCode::Char('G') => self.scroll = usize::MAX,
            _ => self.common_key(code, wishes),
        }
        let last = self.detail.as_ref().map_or(0, Vec::len).saturating_sub(1);
        self.scroll = self.scroll.min(last);
    }

    fn sort_key(&mut self, code: KeyCode, at: usize) {
        match code {
            KeyCode::Down | KeyCode::Char('j' | '>') => {
                self.mode = Mode::Sort((at + 1).min(COLUMNS.len() - 1));
            }
            KeyCode::Up | KeyCode::Char('k' | '<') => self.mode = Mode::Sort(at.saturating_sub(1)),
            KeyCode::Enter => {
                self.close();
                self.sort_by(COLUMNS[at], false);
            }
            KeyCode::Esc | KeyCode::Char('q') => self.close(),
            _ => {}
        }
    }

    /// Only `y` trims: Enter may have been meant for the list.
    fn trim_key(&mut self, code: KeyCode, wishes: &mut Vec<Wish>) {
        match (&self.mode, code) {
            (Mode::Trim(key, Some((_, true))), KeyCode::Char('y')) => {
                wishes.push(Wish::Trim(key.clone()));
                self.mode = Mode::Note(vec!["Trimming...".to_owned()]);
            }
            (_, KeyCode::Char('n' | 'q') | KeyCode::Esc) => self.close(),
            (Mode::Trim(_, Some((_, false))), _) => self.close(),
            _ => {}
        }
    }

    /// A line that is typed works at each letter; Enter keeps it, Esc clears it.
    fn typed(&mut self, code: KeyCode, is_control: bool) {
        let is_filter = self.mode == Mode::Filter;
        let line = if is_filter { &mut self.filter } else { &mut self.search };
        match code {
            KeyCode::Char('u') if is_control => line.clear(),
            KeyCode::Char(c) if !is_control => line.push(c),
            KeyCode::Backspace => {
                line.pop();
            }
            KeyCode::F(3) if !is_filter => return self.find(1),
            KeyCode::Esc => {
                line.clear();
                self.close();
            }
            KeyCode::Enter => return self.close(),
            KeyCode::Down => return self.move_by(1),
            KeyCode::Up => return self.move_by(-1),
            _ => return,
        }
        if is_filter {
            self.arrange();
        } else if !self.search.is_empty() {
            self.find(0);
        }
    }

    fn mouse(&mut self, mouse: MouseEvent, wishes: &mut Vec<Wish>) {
        let turn = match mouse.kind {
            MouseEventKind::ScrollDown => WHEEL,
            MouseEventKind::ScrollUp => -WHEEL,
            MouseEventKind::Down(MouseButton::Left) => {
                return self.click(mouse.column, mouse.row, wishes);
            }
            _ => return,
        };
        match self.mode {
            Mode::List => self.move_by(turn),
            Mode::Detail => {
                let last = self.detail.as_ref().map_or(0, Vec::len).saturating_sub(1);
                self.scroll = self.scroll.saturating_add_signed(turn).min(last);
            }
            _ => {}
        }
    }

    fn click(&mut self, column: u16, row: u16, wishes: &mut Vec<Wish>) {
        let lines = self.lines();
        if lines.has_foot && row + 1 == self.size.1 && self.mode == Mode::List {
            if let Some(code) = foot_at(column) {
                self.list_key(code, false, wishes);
            }
            return;
        }
        match self.mode {
            Mode::List if row + 1 == lines.rows => {
                let columns = fitting(self.size.0);
                let hit = columns.iter().find(|(_, at, width)| column <= at + width);
                // Again on the same: the other way round.
                if let Some((hit, ..)) = hit {
                    self.sort_by(*hit, self.sort == *hit && !self.is_inverted);
                }
            }
            Mode::List if row >= lines.rows && row < lines.rows + lines.count => {
                let at = self.offset + usize::from(row - lines.rows);
                if at == self.cursor {
                    self.list_key(KeyCode::Enter, false, wishes);
                } else if at < self.shown.len() {
                    self.move_to(at);
                }
            }
            Mode::Help(_) | Mode::Note(_) => self.close(),
            _ => {}
        }
    }

    fn sort_by(&mut self, column: Column, is_inverted: bool) {
        (self.sort, self.is_inverted) = (column, is_inverted);
        self.arrange();
    }

    /// The next row that the search finds, `from` rows below the selected one or further, and from the top again.
    fn find(&mut self, from: usize) {
        let words = self.search.to_lowercase();
        let count = self.shown.len();
        let places = (0..count).map(|step| (self.cursor + from + step) % count);
        let found = places.into_iter().find(|at| self.row(self.shown[*at]).matches(&words));
        if let Some(at) = found {
            self.move_to(at);
        }
    }

    fn move_by(&mut self, rows: isize) {
        self.move_to(self.cursor.saturating_add_signed(rows));
    }

    fn move_to(&mut self, at: usize) {
        self.follows_top = false;
        self.select(at);
    }

    fn select(&mut self, at: usize) {
        self.cursor = at.min(self.shown.len().saturating_sub(1));
        self.selected = self.selected().map(|row| row.key.clone());
    }

    fn keep_in_sight(&mut self) {
        let count = usize::from(self.lines().count).max(1);
        let most = self.shown.len().saturating_sub(count);
        self.offset = self.offset.clamp((self.cursor + 1).saturating_sub(count), self.cursor);
        self.offset = self.offset.min(most);
    }
}

/// All below the last, each in front of its children, with its depth.
fn depth_first(below: &[Vec<usize>]) -> Vec<(usize, usize)> {
    let mut out = Vec::with_capacity(below.len());
    let roots = below.last().into_iter().flatten();
    let mut next: Vec<(usize, usize)> = roots.rev().map(|&at| (at, 0)).collect();
    while let Some((at, depth)) = next.pop() {
        out.push((at, depth));
        next.extend(below[at].iter().rev().map(|&child| (child, depth + 1)));
    }
    out
}

/// The key under a column of the last line.
fn foot_at(column: u16) -> Option<KeyCode> {
    let mut end = 0;
    let hit = FOOT.iter().find(|(key, label, _)| {
        end += key.len() + label.len() + 1;
        usize::from(column) < end
    });
    hit.map(|(_, _, code)| *code)
}

#[cfg(test)]
pub(super) mod tests;
