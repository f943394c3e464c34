//! Rows of `ebb top` and their columns: what a cell shows, how rows are ordered by it, which columns fit. Pure.
//!
//! Memory is in MB (10^6 bytes). An unknown figure is `-` and comes last in either order.

use std::cmp::Ordering;

use serde::Serialize;

/// What a row is about. A number that is used again is another process.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(untagged)]
pub enum Key {
    Process {
        pid: i32,
        started_ticks: u64,
    },
    /// A container, a unit or another cgroup, by its path.
    Group {
        cgroup: String,
    },
}

/// One process or group.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    #[serde(flatten)]
    pub key: Key,
    /// What a process is below in a tree: its parent, and its group.
    #[serde(skip)]
    pub parent: Option<Key>,
    #[serde(skip)]
    pub group: Option<Key>,
    pub name: String,
    /// The command line. It may contain passwords, so it is not written to files.
    #[serde(skip)]
    pub command: Option<String>,
    pub processes: usize,
    pub rss: Option<u64>,
    pub limit: Option<u64>,
    /// What is charged to the cgroup that has the limit.
    pub limit_usage: Option<u64>,
    #[serde(flatten)]
    pub heap: Option<Heap>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Heap {
    /// What the allocator holds of freed memory, of all kinds.
    pub held: Option<u64>,
    pub live: Option<u64>,
    pub returnable: Option<u64>,
    pub pinned: Option<u64>,
    pub cached: Option<u64>,
    pub interpreter: Option<u64>,
    pub huge_excess: Option<u64>,
    pub file: Option<u64>,
    pub other: Option<u64>,
    pub allocator: Option<String>,
    /// Whether it is the allocator that the process was started with.
    pub in_charge: Option<bool>,
    /// A word; `no right` where the kernel refused.
    pub verdict: &'static str,
    pub look_age_s: f64,
}

impl Row {
    /// The room below the limit.
    pub fn left(&self) -> Option<u64> {
        Some(self.limit?.saturating_sub(self.limit_usage?))
    }

    /// Whether nine tenths of the limit are used.
    pub fn is_near_limit(&self) -> bool {
        let pair = Option::zip(self.left(), self.limit);
        pair.is_some_and(|(left, limit)| left <= limit / 10)
    }

    /// Whether a search for `words`, in lower case, finds it: by name, number, group, allocator or verdict.
    pub fn matches(&self, words: &str) -> bool {
        let heap = self.heap.as_ref();
        let allocator = heap.and_then(|heap| heap.allocator.as_deref()).unwrap_or_default();
        let verdict = heap.map_or("", |heap| heap.verdict);
        let (pid, group) = match (&self.key, &self.group) {
            (Key::Process { pid, .. }, Some(Key::Group { cgroup })) => (pid.to_string(), &**cgroup),
            (Key::Process { pid, .. }, _) => (pid.to_string(), ""),
            (Key::Group { cgroup }, _) => (String::new(), &**cgroup),
        };
        let group = group.to_lowercase();
        let command = self.command.as_deref().unwrap_or_default().to_lowercase();
        [self.name.to_lowercase().as_str(), &command, &pid, &group, allocator, verdict]
            .iter()
            .any(|text| text.contains(words))
    }
}

impl Default for Key {
    fn default() -> Self {
        Self::Process { pid: 0, started_ticks: 0 }
    }
}

/// The columns from left to right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    Id,
    Name,
    Held,
    Rss,
    Live,
    Returnable,
    Pinned,
    Cached,
    Interpreter,
    Huge,
    File,
    Other,
    Limit,
    Left,
    Allocator,
    Verdict,
    Age,
    Trend,
}

use Column::*;

pub const COLUMNS: [Column; 18] = [
    Id, Name, Held, Rss, Live, Returnable, Pinned, Cached, Interpreter, Huge, File, Other, Limit, Left, Allocator,
    Verdict, Age, Trend,
];

/// Columns by need: on a narrow screen the last ones are left out. A name is always shown.
const BY_NEED: [Column; 17] = [
    Held, Id, Rss, Verdict, Live, Returnable, Left, Allocator, Pinned, Trend, Age, Limit, Cached, Interpreter, File,
    Other, Huge,
];

const LEAST_NAME: u16 = 12;

impl Column {
    /// The heading, and the words of the help.
    pub fn title(self) -> (&'static str, &'static str) {
        match self {
            Id => ("PID", "the process; of a group, how many processes it has"),
            Name => ("NAME", "the program; of a group, its unit or container"),
            Held => ("HELD", "freed by the program and still held by the allocator"),
            Rss => ("RSS", "resident memory"),
            Live => ("LIVE", "blocks in use"),
            Returnable => ("RETURN", "held, and a trim would return it"),
            Pinned => ("PINNED", "held on pages that also have live blocks"),
            Cached => ("CACHED", "held in caches of threads"),
            Interpreter => ("INTERP", "CPython's objects and free arenas"),
            Huge => ("HUGE", "held only because of huge pages"),
            File => ("FILE", "mapped files and shared memory"),
            Other => ("OTHER", "stacks, data, mappings of its own, and what is not known"),
            Limit => ("LIMIT", "the lowest memory limit that holds here"),
            Left => ("LEFT", "the room below the limit"),
            Allocator => ("ALLOC", "what serves malloc; ! if another was asked for"),
            Verdict => ("VERDICT", "as ebb why says it"),
            Age => ("AGE", "how old the figures of the heap are; RSS and LEFT are of now"),
            Trend => ("TREND", "resident memory over time, from its least to its most"),
        }
    }

    pub fn width(self) -> u16 {
        match self {
            Id => 7,
            Verdict => 9,
            Name => LEAST_NAME,
            Allocator => 10,
            Trend => 12,
            Age => 4,
            _ => 6,
        }
    }

    pub fn is_text(self) -> bool {
        matches!(self, Name | Allocator | Verdict | Trend)
    }

    pub fn bytes(self, row: &Row) -> Option<u64> {
        let heap = row.heap.as_ref();
        match self {
            Rss => row.rss,
            Limit => row.limit,
            Left => row.left(),
            Held => heap?.held,
            Live => heap?.live,
            Returnable => heap?.returnable,
            Pinned => heap?.pinned,
            Cached => heap?.cached,
            Interpreter => heap?.interpreter,
            Huge => heap?.huge_excess,
            File => heap?.file,
            Other => heap?.other,
            Id | Name | Allocator | Verdict | Age | Trend => None,
        }
    }

    /// The text of a cell. The trend is drawn from the history instead.
    pub fn cell(self, row: &Row) -> String {
        let unknown = || "-".to_owned();
        let heap = row.heap.as_ref();
        match self {
            Id => match &row.key {
                Key::Process { pid, .. } => pid.to_string(),
                Key::Group { .. } => row.processes.to_string(),
            },
            Name => row.command.as_ref().unwrap_or(&row.name).clone(),
            Allocator => heap.and_then(|heap| heap.allocator.as_ref()).map_or_else(unknown, |name| {
                let mark = if heap.is_some_and(|it| it.in_charge == Some(false)) { " !" } else { "" };
                format!("{name}{mark}")
            }),
            Verdict => heap.map_or_else(unknown, |heap| heap.verdict.to_owned()),
            Age => heap.map_or_else(unknown, |heap| match heap.look_age_s {
                s if s < 99.5 => format!("{s:.0}s"),
                s if s < 5970.0 => format!("{:.0}m", s / 60.0),
                s => format!("{:.0}h", s / 3600.0),
            }),
            Trend => String::new(),
            _ => self.bytes(row).map_or_else(unknown, mb),
        }
    }

    /// The order of two rows by this column: the largest or the first letter in front. Without a figure the larger
    /// process is in front, at last the number decides, so that rows do not jump.
    pub fn order(self, left: &Row, right: &Row, inverted: bool) -> Ordering {
        let turn = |order: Ordering| if inverted { order.reverse() } else { order };
        let by_size = || right.rss.cmp(&left.rss);
        let own = match self {
            Id => turn(number(left).cmp(&number(right))),
            Name => turn(left.name.cmp(&right.name)),
            Allocator | Verdict => {
                let (a, b) = (self.cell(left), self.cell(right));
                (a == "-").cmp(&(b == "-")).then_with(|| turn(a.cmp(&b)))
            }
            Trend => turn(by_size()),
            Age => {
                let age = |row: &Row| row.heap.as_ref().map_or(f64::MAX, |heap| heap.look_age_s);
                turn(age(left).total_cmp(&age(right)))
            }
            _ => match (self.bytes(left), self.bytes(right)) {
                (Some(a), Some(b)) => turn(b.cmp(&a)),
                (a, b) => b.is_some().cmp(&a.is_some()),
            },
        };
        own.then_with(by_size).then_with(|| number(left).cmp(&number(right)))
    }
}

fn number(row: &Row) -> (i32, &str) {
    match &row.key {
        Key::Process { pid, .. } => (*pid, ""),
        Key::Group { cgroup } => (-(row.processes as i32), cgroup),
    }
}

/// MB in at most six letters; from a million on TB, with their letter.
pub fn mb(bytes: u64) -> String {
    match bytes as f64 / 1e6 {
        mb if mb < 999.95 => format!("{mb:.1}"),
        mb if mb < 999_999.5 => format!("{mb:.0}"),
        mb => format!("{:.1}T", mb / 1e6),
    }
}

/// The columns that fit, each with where it begins and its width; the name takes the rest.
pub fn fitting(width: u16) -> Vec<(Column, u16, u16)> {
    let mut used = LEAST_NAME;
    let mut kept = vec![Name];
    for column in BY_NEED {
        used += column.width() + 1;
        if used > width {
            used -= column.width() + 1;
            break;
        }
        kept.push(column);
    }
    let name = LEAST_NAME + width.saturating_sub(used);
    let mut at = 0;
    let columns = COLUMNS.into_iter().filter(|column| kept.contains(column));
    let placed = columns.map(|column| {
        let wide = if column == Name { name.min(width) } else { column.width() };
        let place = (column, at, wide);
        at += wide + 1;
        place
    });
    placed.collect()
}
