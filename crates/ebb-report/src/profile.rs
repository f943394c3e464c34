//! A heap profile as text, as a tree, and in the formats of other tools. Pure.
//!
//! Used by `ebb profile` and `ebb diff`. Figures are estimates from samples; `±` is their standard deviation.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;

use ebb_allocators::Allocator;
use ebb_process::profile::{Growth, Profile, Stack, Sum};
use ebb_process::symbols::Line;
use serde_json::{Value, json};

use super::figures::{self, signed};
use ebb_trial::results::Unit;

/// Rows of a table.
const ROWS: usize = 15;
/// Stacks that are shown whole.
const STACKS: usize = 3;
/// Functions of such a stack.
const DEPTH: usize = 12;
/// A branch of the tree with less is left out.
const LEAST_SHARE: f64 = 0.01;
/// Standard deviations that noise rarely comes to.
const SURE: f64 = 3.0;

/// Which figure is shown first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// What is still there.
    Live,
    /// What was allocated.
    Allocated,
}

impl Shown {
    fn of(self, stack: &Stack) -> Sum {
        match self {
            Shown::Live => stack.live,
            Shown::Allocated => stack.allocated,
        }
    }

    /// Its name in a heading.
    pub fn heading(self) -> &'static str {
        match self {
            Shown::Live => "still there",
            Shown::Allocated => "allocated",
        }
    }
}

/// Functions that allocate for their callers, whose own code says nothing.
const HELPERS: [&str; 30] = [
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "aligned_alloc",
    "posix_memalign",
    "memalign",
    "valloc",
    "pvalloc",
    "strdup",
    "__strdup",
    "strndup",
    "__strndup",
    "__libc_",
    "operator new",
    "__rust_",
    "__rdl_",
    "__rg_",
    "alloc::",
    "<alloc::",
    "std::alloc::",
    "std::allocator",
    "__gnu_cxx::new_allocator",
    "std::__new_allocator",
    "std::_Vector_base",
    "std::vector<",
    "std::__cxx11::basic_string",
    "hashbrown::",
    "<hashbrown::",
    "core::",
];

fn is_helper(function: &str) -> bool {
    // A method of another type by a trait of the library.
    let is_of_library = |name| function.starts_with('<') && function.contains(name);
    // The allocator itself, where it is linked in.
    let own = Allocator::Ebbmalloc.name();
    if is_of_library(" as alloc::")
        || is_of_library(" as core::")
        || function.trim_start_matches('<').starts_with(own)
    {
        return true;
    }
    HELPERS.iter().any(|name| {
        // A name that ends like a word is the whole of it.
        let is_whole =
            name.ends_with(|end: char| end.is_alphanumeric()) && !name.starts_with("operator");
        function.strip_prefix(name).is_some_and(|rest| {
            !is_whole || !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_')
        })
    })
}

/// Whether a function only starts a program or a thread, so that everything is below it.
fn is_start(function: &str) -> bool {
    const STARTS: [&str; 9] = [
        "_start",
        "__libc_start",
        "start_thread",
        "clone",
        "__clone",
        "std::",
        "core::ops::",
        "<&dyn core::",
        "__rust_",
    ];
    function == "main" || STARTS.iter().any(|name| function.starts_with(name))
}

/// The functions of a stack from the first on that is the program's own.
fn own<'a>(profile: &'a Profile, stack: &'a Stack) -> Vec<&'a Line> {
    let all: Vec<&Line> = profile.lines(stack).collect();
    let first = all.iter().position(|line| !is_helper(&line.function)).unwrap_or(0);
    all[first..].to_vec()
}

/// What one function allocated.
#[derive(Default)]
struct Row {
    own: Sum,
    variance: f64,
    growth: Growth,
    with_callees: f64,
    other: f64,
    place: String,
}

/// The figures, the functions with the most, and the largest stacks.
pub fn render(profile: &Profile, shown: Shown, columns: usize) -> String {
    let mut out = head(profile);
    let rows = rows(profile, shown);
    if rows.is_empty() {
        return out + &notes(profile);
    }
    let _ = writeln!(out, "\n{}", table(profile, shown, &rows, columns));
    let mut stacks: Vec<&Stack> = profile.stacks.iter().collect();
    let by = |stack: &Stack| (rank(stack.growth.unwrap_or_default(), shown), shown.of(stack).bytes);
    stacks.sort_by(|a, b| by(b).partial_cmp(&by(a)).unwrap_or(std::cmp::Ordering::Equal));
    for stack in stacks.iter().take(STACKS).filter(|it| shown.of(it).bytes > 0.0) {
        let sum = shown.of(stack);
        let _ = writeln!(
            out,
            "{} ±{} {}, {:.0} blocks, from",
            figures::megabytes(sum.bytes),
            mb(sum.error(profile.interval as f64)),
            shown.heading(),
            sum.objects
        );
        write_stack(&mut out, &own(profile, stack), columns);
    }
    out + &notes(profile)
}

fn write_stack(out: &mut String, lines: &[&Line], columns: usize) {
    for line in lines.iter().take(DEPTH) {
        let _ = writeln!(out, "  {}", cut(&in_words(line), columns.saturating_sub(2)));
    }
    if lines.len() > DEPTH {
        let _ = writeln!(out, "  and {} more", lines.len() - DEPTH);
    }
}

fn notes(profile: &Profile) -> String {
    profile.notes.iter().map(|note| format!("! {note}\n")).collect()
}

fn head(profile: &Profile) -> String {
    let (allocated, live) = profile.total();
    let interval = profile.interval as f64;
    let error = |stacks: fn(&Stack) -> Sum| {
        let variance: f64 =
            profile.stacks.iter().map(|it| stacks(it).error(interval).powi(2)).sum();
        mb(variance.sqrt())
    };
    let mut out = format!("{}: ", profile.title);
    let _ = match profile.seconds {
        Some(seconds) => writeln!(
            out,
            "{} MB ±{} were allocated in {}, {} MB ±{} of that are still there",
            mb(allocated.bytes),
            error(|it| it.allocated),
            figures::duration(seconds),
            mb(live.bytes),
            error(|it| it.live)
        ),
        None => writeln!(
            out,
            "{} MB ±{} are live, by the profile that its settings switch on",
            mb(live.bytes),
            error(|it| it.live)
        ),
    };
    if let (Some(heap), Some(_)) = (profile.heap, profile.seconds) {
        let before = (heap as f64 - live.bytes).max(0.0);
        let _ = writeln!(
            out,
            "live heap {} MB: {} MB are from before the profile",
            mb(heap as f64),
            mb(before)
        );
    }
    out
}

/// What grows is first, by what it grows at least, if what is still there is shown.
fn rank(growth: Growth, shown: Shown) -> f64 {
    match shown {
        Shown::Live => (growth.bytes - 2.0 * growth.variance.sqrt()).max(0.0),
        Shown::Allocated => 0.0,
    }
}

/// By function, what grows first, then the largest.
fn rows(profile: &Profile, shown: Shown) -> Vec<(String, Row)> {
    let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
    let other = match shown {
        Shown::Live => Shown::Allocated,
        Shown::Allocated => Shown::Live,
    };
    for stack in &profile.stacks {
        let sum = shown.of(stack);
        let lines = own(profile, stack);
        let mut seen = HashSet::new();
        for (depth, line) in lines.iter().enumerate() {
            // A function that calls itself has its callees once.
            if !seen.insert(&line.function) {
                continue;
            }
            let row = rows.entry(&line.function).or_default();
            row.with_callees += sum.bytes;
            if depth == 0 {
                row.own.add(sum);
                row.variance += sum.error(profile.interval as f64).powi(2);
                row.other += other.of(stack).bytes;
                row.growth.add(stack.growth.unwrap_or_default());
            }
            if row.place.is_empty() {
                row.place = in_words(line);
            }
        }
    }
    let mut rows: Vec<(String, Row)> =
        rows.into_iter().map(|(name, row)| (name.to_owned(), row)).collect();
    rows.retain(|(name, row)| row.own.bytes > 0.0 || row.with_callees > 0.0 && !is_start(name));
    rows.sort_by(|(_, a), (_, b)| {
        let by = |row: &Row| (rank(row.growth, shown), row.own.bytes, row.with_callees);
        by(b).partial_cmp(&by(a)).unwrap_or(std::cmp::Ordering::Equal)
    });
    rows
}

fn table(profile: &Profile, shown: Shown, rows: &[(String, Row)], columns: usize) -> String {
    let has_growth = profile.stacks.iter().any(|it| it.growth.is_some());
    let other = match (profile.seconds, shown) {
        (None, _) => "",
        (Some(_), Shown::Live) => "allocated",
        (Some(_), Shown::Allocated) => "still there",
    };
    let heading = format!("{} MB", shown.heading());
    let mut out = format!("{heading:>14} {:>7} {other:>11} {:>12}", "±", "with callees");
    out += if has_growth { "  2nd half       ±  function\n" } else { "  function\n" };
    for (_, row) in rows.iter().take(ROWS) {
        let other = if other.is_empty() { String::new() } else { mb(row.other) };
        let head = format!(
            "{:>14} {:>7} {other:>11} {:>12}",
            mb(row.own.bytes),
            mb(row.variance.sqrt()),
            mb(row.with_callees),
        );
        let growth = match has_growth {
            true => format!(
                " {:>9} {:>7}",
                signed(row.growth.bytes, Unit::Bytes),
                mb(row.growth.variance.sqrt())
            ),
            false => String::new(),
        };
        let room = columns.saturating_sub(head.chars().count() + growth.chars().count() + 2);
        let _ = writeln!(out, "{head}{growth}  {}", cut(&row.place, room.max(30)));
    }
    if rows.len() > ROWS {
        let _ = writeln!(out, "and {} more functions", rows.len() - ROWS);
    }
    if has_growth && shown == Shown::Live {
        let grow = rows.iter().filter(|(_, row)| row.growth.is_sure()).count();
        let _ = match grow {
            0 => writeln!(out, "\nNo function surely grew in the second half."),
            _ => writeln!(
                out,
                "\n{} surely grew in the second half.",
                figures::counted(grow, "function")
            ),
        };
    }
    out
}

fn mb(bytes: f64) -> String {
    figures::plain(bytes, Unit::Bytes)
}

/// "function file:line", without the file's folders.
fn in_words(line: &Line) -> String {
    let file = line.file.as_deref().map(|file| file.rsplit('/').next().unwrap_or(file));
    match file {
        Some(file) if line.line > 0 => format!("{} {file}:{}", line.function, line.line),
        Some(file) => format!("{} {file}", line.function),
        None => line.function.clone(),
    }
}

/// At most so many letters: the middle of a long name is left out, which has the parameters of templates.
fn cut(text: &str, most: usize) -> String {
    let letters: Vec<char> = text.chars().collect();
    if letters.len() <= most || most < 3 {
        return text.to_owned();
    }
    let head = (most - 1) / 2;
    let tail = most - 1 - head;
    letters[..head].iter().chain(&['…']).chain(&letters[letters.len() - tail..]).collect()
}

/// A function in the tree of calls, with all that was allocated below it.
#[derive(Debug, Default)]
struct Node {
    live: f64,
    allocated: f64,
    children: BTreeMap<String, Node>,
}

impl Node {
    fn of(profile: &Profile) -> Self {
        let mut root = Node::default();
        for stack in &profile.stacks {
            let mut node = &mut root;
            node.add(stack);
            for line in profile.lines(stack).rev() {
                node = node.children.entry(in_words(line)).or_default();
                node.add(stack);
            }
        }
        root
    }

    fn add(&mut self, stack: &Stack) {
        self.live += stack.live.bytes;
        self.allocated += stack.allocated.bytes;
    }

    /// Name, bytes that are still there, bytes allocated, children. Deeper stacks than any page shows were cut when they
    /// were walked.
    fn json(&self, name: &str) -> Value {
        let children: Vec<Value> = self.children.iter().map(|(name, it)| it.json(name)).collect();
        json!([name, self.live.round(), self.allocated.round(), children])
    }

    fn shown(&self, shown: Shown) -> f64 {
        match shown {
            Shown::Live => self.live,
            Shown::Allocated => self.allocated,
        }
    }

    fn sorted(&self, shown: Shown) -> Vec<(&String, &Node)> {
        let mut children: Vec<_> = self.children.iter().collect();
        children.sort_by(|(_, a), (_, b)| b.shown(shown).total_cmp(&a.shown(shown)));
        children
    }
}

/// The tree of calls from the outermost function on, as far as it has 1 % of all.
pub fn tree(profile: &Profile, shown: Shown, columns: usize) -> String {
    let root = Node::of(profile);
    let mut out = head(profile) + "\n";
    let total = root.shown(shown);
    let mut todo: Vec<(usize, &String, &Node)> = Vec::new();
    todo.extend(root.sorted(shown).into_iter().rev().map(|(name, node)| (0, name, node)));
    while let Some((depth, name, node)) = todo.pop() {
        let bytes = node.shown(shown);
        if total <= 0.0 || bytes < LEAST_SHARE * total {
            continue;
        }
        let indent = depth.min(40);
        let head =
            format!("{:>9} MB {:>5.1} % {}", mb(bytes), bytes / total * 100.0, " ".repeat(indent));
        let room = columns.saturating_sub(head.chars().count()).max(24);
        let _ = writeln!(out, "{head}{}", cut(name, room));
        let children = node.sorted(shown);
        todo.extend(children.into_iter().rev().map(|(name, node)| (depth + 1, name, node)));
    }
    out + &notes(profile)
}

/// Folded stacks: a line each, the outermost function first, and its bytes.
pub fn folded(profile: &Profile, shown: Shown) -> String {
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    for stack in &profile.stacks {
        let names: Vec<String> =
            profile.lines(stack).rev().map(|it| it.function.replace([';', '\n'], ":")).collect();
        *sums.entry(names.join(";")).or_default() += shown.of(stack).bytes;
    }
    let lines = sums.into_iter().filter(|(_, bytes)| bytes.round() > 0.0);
    lines.map(|(names, bytes)| format!("{names} {bytes:.0}\n")).collect()
}

/// A file of speedscope, with what is still there and what was allocated.
pub fn speedscope(profile: &Profile) -> String {
    let mut frames: BTreeMap<&Line, usize> = BTreeMap::new();
    let mut list: Vec<Value> = Vec::new();
    let mut samples: Vec<Vec<usize>> = Vec::new();
    for stack in &profile.stacks {
        let places = profile.lines(stack).rev().map(|line| {
            *frames.entry(line).or_insert_with(|| {
                list.push(json!({
                    "name": line.function, "file": line.file, "line": (line.line > 0).then_some(line.line),
                }));
                list.len() - 1
            })
        });
        samples.push(places.collect());
    }
    let one = |shown: Shown| {
        let weights: Vec<f64> =
            profile.stacks.iter().map(|it| shown.of(it).bytes.round()).collect();
        json!({
            "type": "sampled", "name": shown.heading(), "unit": "bytes", "startValue": 0,
            "endValue": weights.iter().sum::<f64>(), "samples": samples, "weights": weights,
        })
    };
    let file = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": concat!("ebb ", env!("CARGO_PKG_VERSION")),
        "name": profile.title,
        "shared": { "frames": list },
        "profiles": [one(Shown::Live), one(Shown::Allocated)],
    });
    file.to_string()
}

/// One page with a flame graph, which needs nothing from the network.
pub fn page(profile: &Profile) -> Result<String, String> {
    let rows = rows(profile, Shown::Live);
    let row = |row: &Row| {
        [row.place.clone(), mb(row.own.bytes), mb(row.variance.sqrt()), mb(row.with_callees)]
    };
    let tree = Node::of(profile).json(&profile.title).to_string();
    let contents = json!({
        "script": include_str!("page/flame.js"),
        "title": profile.title,
        "head": head(profile).lines().collect::<Vec<_>>(),
        "rows": rows.iter().take(ROWS).map(|(_, it)| row(it)).collect::<Vec<_>>(),
        "notes": profile.notes,
        // What ends a script has this letter.
        "data": tree.replace('<', "\\u003c"),
    });
    super::html::fill(include_str!("page/flame.html"), contents).map_err(|error| error.to_string())
}

/// The figures for programs (docs/json.md), the largest stack first.
pub fn json(profile: &Profile) -> Value {
    let interval = profile.interval as f64;
    let sum = |sum: Sum| json!({ "bytes": sum.bytes.round(), "objects": sum.objects.round(), "error_bytes": sum.error(interval).round() });
    let mut stacks: Vec<&Stack> = profile.stacks.iter().collect();
    stacks.sort_by(|a, b| b.live.bytes.total_cmp(&a.live.bytes));
    let stacks: Vec<Value> = stacks
        .into_iter()
        .map(|stack| {
            let frames = profile.lines(stack).map(|line| json!({ "function": line.function, "file": line.file, "line": line.line }));
            let growth = stack.growth.map(|it| json!({ "bytes": it.bytes.round(), "error_bytes": it.variance.sqrt().round() }));
            json!({
                "live": sum(stack.live), "allocated": sum(stack.allocated), "second_half": growth,
                "frames": frames.collect::<Vec<_>>(),
            })
        })
        .collect();
    let (allocated, live) = profile.total();
    json!({
        "ebb_version": env!("CARGO_PKG_VERSION"),
        "target": profile.title,
        "seconds": profile.seconds,
        "interval_bytes": profile.interval,
        "heap_live_bytes": profile.heap,
        "live_bytes": live.bytes.round(),
        "allocated_bytes": allocated.bytes.round(),
        "stacks": stacks,
        "notes": profile.notes,
    })
}

/// A stack that has more, or less, in the second of two profiles.
#[derive(Debug, serde::Serialize)]
pub struct Change {
    /// Bytes by which what is live grew.
    pub bytes: f64,
    /// The standard deviation of that.
    pub error_bytes: f64,
    /// Bytes in the first profile.
    pub before_bytes: f64,
    /// Functions, the innermost first.
    pub frames: Vec<String>,
}

/// Stacks whose live bytes differ by more than noise does, the largest growth first. Stacks are the same by their
/// functions, so that the two may be of different processes and builds.
pub fn changes(before: &Profile, after: &Profile) -> Vec<Change> {
    let mut sums: BTreeMap<Vec<String>, [(f64, f64); 2]> = BTreeMap::new();
    for (side, profile) in [before, after].into_iter().enumerate() {
        for stack in &profile.stacks {
            let frames = own(profile, stack).iter().map(|line| line.function.clone()).collect();
            let sum = &mut sums.entry(frames).or_default()[side];
            sum.0 += stack.live.bytes;
            sum.1 += stack.live.error(profile.interval as f64).powi(2);
        }
    }
    let mut changes: Vec<Change> = sums
        .into_iter()
        .map(|(frames, [before, after])| Change {
            bytes: after.0 - before.0,
            error_bytes: (before.1 + after.1).sqrt(),
            before_bytes: before.0,
            frames,
        })
        .filter(|it| it.bytes.abs() > SURE * it.error_bytes && it.bytes.abs() >= 1.0)
        .collect();
    changes.sort_by(|a, b| b.bytes.total_cmp(&a.bytes));
    changes
}

/// What grew, and what shrank.
pub fn render_changes(before: &Profile, after: &Profile, columns: usize) -> String {
    let changes = changes(before, after);
    let [from, to] = [before, after].map(|it| it.total().1.bytes);
    let mut out =
        format!("{} and {} MB live, {} MB\n", mb(from), mb(to), signed(to - from, Unit::Bytes));
    if changes.is_empty() {
        out += "no stack grew or shrank by more than three times its sampling error\n";
    }
    for change in changes.iter().take(ROWS) {
        let _ = writeln!(
            out,
            "\n{} MB ±{} (from {})",
            signed(change.bytes, Unit::Bytes),
            mb(change.error_bytes),
            mb(change.before_bytes)
        );
        for name in change.frames.iter().take(DEPTH) {
            let _ = writeln!(out, "  {}", cut(name, columns.saturating_sub(2)));
        }
    }
    if changes.len() > ROWS {
        let _ = writeln!(out, "\nand {} smaller changes", changes.len() - ROWS);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_process::profile::Location;

    /// Two stacks below `main`: one leaks, one allocates and frees. `main` calls itself.
    fn example(leaked: f64) -> Profile {
        let location = |name: &str| Location {
            lines: vec![Line { function: name.to_owned(), file: Some("/src/a.c".into()), line: 3 }],
            ..Location::default()
        };
        let sum = |bytes| Sum { bytes, objects: bytes / 100.0 };
        Profile {
            title: "service (7)".to_owned(),
            seconds: Some(60.0),
            interval: 1 << 19,
            heap: Some(500_000_000),
            stacks: vec![
                Stack {
                    locations: vec![0, 1, 3, 3],
                    allocated: sum(leaked),
                    live: sum(leaked),
                    growth: None,
                },
                Stack {
                    locations: vec![2, 3, 3],
                    allocated: sum(9e8),
                    live: sum(1e6),
                    growth: None,
                },
            ],
            locations: ["operator new(unsigned long)", "leak", "churn;x", "main"]
                .map(location)
                .into(),
            ..Profile::default()
        }
    }

    #[test]
    fn the_leak_is_the_first_row_and_the_first_stack() {
        let text = render(&example(5e7), Shown::Live, 80);
        assert!(text.starts_with("service (7): 950.0 MB ±"), "{text}");
        assert!(
            text.contains("live heap 500.0 MB: 449.0 MB are from before the profile"),
            "{text}"
        );
        let rows: Vec<&str> = text.lines().skip_while(|it| !it.contains("function")).collect();
        assert!(rows[1].ends_with(" leak a.c:3"), "{text}");
        assert!(
            !rows
                .iter()
                .any(|row| row.starts_with(' ') && row.ends_with(" main a.c:3") && row.len() > 50),
            "{text}"
        );
        assert!(text.contains("blocks, from\n  leak a.c:3\n  main a.c:3\n"), "{text}");
        let text = render(&example(5e7), Shown::Allocated, 80);
        assert!(text.lines().nth(4).is_some_and(|row| row.ends_with("churn;x a.c:3")), "{text}");
    }

    #[test]
    fn a_small_leak_comes_before_a_large_cache_that_is_full() {
        let mut profile = example(5e6);
        let growth = |bytes: f64, error: f64| Some(Growth { bytes, variance: error * error });
        profile.stacks[0].growth = growth(2e6, 0.5e6);
        profile.stacks[1].live.bytes = 400e6;
        profile.stacks[1].growth = growth(30e6, 20e6);
        let text = render(&profile, Shown::Live, 80);
        let rows: Vec<&str> = text.lines().skip_while(|it| !it.contains("function")).collect();
        assert!(rows[1].contains("+2.00    0.50  leak"), "{text}");
        assert!(text.contains("1 function surely grew"), "{text}");
        assert!(text.contains("blocks, from\n  leak a.c:3\n"), "{text}");
    }

    #[test]
    fn formats_of_other_tools_have_every_stack() {
        let profile = example(5e7);
        let text = folded(&profile, Shown::Live);
        assert_eq!(
            text,
            "main;main;churn:x 1000000\nmain;main;leak;operator new(unsigned long) 50000000\n"
        );
        let file: Value = serde_json::from_str(&speedscope(&profile)).unwrap();
        let live = &file["profiles"][0];
        assert_eq!(
            (&live["endValue"], live["samples"].as_array().unwrap().len()),
            (&json!(51e6), 2)
        );
        assert!(tree(&profile, Shown::Live, 80).contains("50.0 MB  98.0 %   leak a.c:3"));
        let page = page(&example(5e7)).unwrap();
        assert!(page.contains("\"leak a.c:3\"") && !page.contains("://"), "{page}");
    }

    #[test]
    fn only_what_is_more_than_noise_has_changed() {
        let (before, after) = (example(5e7), example(9e7));
        let found = changes(&before, &after);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].bytes, found[0].frames[0].as_str()), (4e7, "leak"));
        assert_eq!(changes(&before, &example(5.5e7)).len(), 0);
        assert!(render_changes(&before, &before, 80).contains("no stack grew"));
        assert!(render_changes(&before, &after, 80).contains("+40.0 MB ±"));
    }

    #[test]
    fn helpers_are_whole_names_or_paths() {
        for name in
            ["malloc", "operator new(unsigned long)", "alloc::vec::Vec::push", "hashbrown::raw::x"]
        {
            assert!(is_helper(name), "{name}");
        }
        for name in ["malloc_pool", "allocate", "corelib", "my::alloc::x"] {
            assert!(!is_helper(name), "{name}");
        }
    }
}
