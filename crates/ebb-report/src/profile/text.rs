//! A profile in a terminal: the functions with the most and the largest stacks, or the tree of calls.

use std::fmt::Write;

use ebb_process::profile::{Profile, Stack};
use ebb_process::symbols::Line;

use super::functions::{Row, own, rows};
use super::shown::{DEPTH, ROWS, Shown, cut, head, in_words, mb, notes, rank};
use super::tree::{Node, Tree};
use crate::figures::{self, signed};
use ebb_trial::results::Unit;

/// Stacks that are shown whole.
const STACKS: usize = 3;
/// A branch of the tree with less is left out.
const LEAST_SHARE: f64 = 0.01;

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
            true => format!(" {:>9} {:>7}", signed(row.growth.bytes, Unit::Bytes), mb(row.growth.variance.sqrt())),
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
            _ => writeln!(out, "\n{} surely grew in the second half.", figures::counted(grow, "function")),
        };
    }
    out
}

/// The tree of calls from the outermost function on, as far as it has 1 % of all.
pub fn tree(profile: &Profile, shown: Shown, columns: usize) -> String {
    let tree = Tree::of(profile);
    let mut out = head(profile) + "\n";
    let total = tree.root().bytes(shown);
    let mut todo = branches(tree.root(), shown, LEAST_SHARE * total, 0);
    while let Some((depth, bytes, node)) = todo.pop() {
        let indent = depth.min(40);
        let head = format!("{:>9} MB {:>5.1} % {}", mb(bytes), bytes / total * 100.0, " ".repeat(indent));
        let room = columns.saturating_sub(head.chars().count()).max(24);
        let _ = writeln!(out, "{head}{}", cut(&tree.names[node.name()], room));
        todo.extend(branches(node, shown, LEAST_SHARE * total, depth + 1));
    }
    out + &notes(profile)
}

/// What a function calls with `least` bytes and more, the largest last.
fn branches(node: Node<'_>, shown: Shown, least: f64, depth: usize) -> Vec<(usize, f64, Node<'_>)> {
    let all = node.children().map(|child| (depth, child.bytes(shown), child));
    let mut branches: Vec<_> = all.filter(|(_, bytes, _)| *bytes > 0.0 && *bytes >= least).collect();
    branches.sort_by(|(_, a, _), (_, b, _)| a.total_cmp(b));
    branches
}
