//! Changes of a text: where, what, why. Used by every kind of file; pure.
//!
//! Edits of one text do not overlap. Those at one place go in the order in which they were made.

use std::ops::Range;

use serde::Serialize;
use similar::TextDiff;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The bytes that are replaced; empty for an insertion.
    pub at: Range<usize>,
    /// The new text.
    pub text: String,
    /// Why, in one sentence without a full stop.
    pub why: String,
}

/// A change as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Its first line in the new text, counted from one.
    pub line: usize,
    /// The new text, without the lines around it.
    pub text: String,
    /// The reason.
    pub why: String,
}

impl Edit {
    /// Replaces these bytes.
    pub fn replace(at: Range<usize>, text: impl Into<String>, why: impl Into<String>) -> Self {
        Self { at, text: text.into(), why: why.into() }
    }

    /// New lines after the line that holds the byte `place`, with the line ends of the text. A last line without
    /// an end keeps having none.
    pub fn below(text: &str, place: usize, lines: &[String], why: impl Into<String>) -> Self {
        let end = line_end(text);
        let rest = &text[place..];
        let is_at_start = rest.is_empty() && (text.is_empty() || text.ends_with('\n'));
        let (at, is_ended) = match rest.find('\n') {
            Some(length) => (place + length + 1, true),
            None => (text.len(), is_at_start),
        };
        let line = |it: &String| if is_ended { format!("{it}{end}") } else { format!("{end}{it}") };
        Self::replace(at..at, lines.iter().map(line).collect::<String>(), why)
    }
}

/// The line end of a text: that of its first line.
pub fn line_end(text: &str) -> &'static str {
    match text.find('\n') {
        Some(at) if text[..at].ends_with('\r') => "\r\n",
        _ => "\n",
    }
}

/// Where the line of a place begins.
pub fn line_start(text: &str, place: usize) -> usize {
    text[..place].rfind('\n').map_or(0, |it| it + 1)
}

/// The text after the edits.
pub fn apply(text: &str, edits: &[Edit]) -> String {
    let mut out = String::new();
    let mut done = 0;
    for edit in sorted(edits) {
        out.push_str(&text[done..edit.at.start]);
        out.push_str(&edit.text);
        done = edit.at.end;
    }
    out.push_str(&text[done..]);
    out
}

fn sorted(edits: &[Edit]) -> Vec<&Edit> {
    let mut edits: Vec<&Edit> = edits.iter().collect();
    // What is put in front of a piece that is replaced comes first.
    edits.sort_by_key(|edit| (edit.at.start, edit.at.end));
    edits
}

/// Each edit with its place in the new text.
pub fn lines(text: &str, edits: &[Edit]) -> Vec<Line> {
    let after = apply(text, edits);
    let mut grown = 0_isize;
    let mut shown = Vec::new();
    for edit in sorted(edits) {
        let at = edit.at.start.saturating_add_signed(grown);
        grown += edit.text.len() as isize - edit.at.len() as isize;
        // An insertion may begin with the end of the line before, and end with the start of the next.
        let start = at + (edit.text.len() - edit.text.trim_start_matches(['\r', '\n', ',']).len());
        let end = (at + edit.text.trim_end().len()).max(start.min(at + edit.text.len()));
        let from = line_start(&after, start);
        let to = after[end..].find('\n').map_or(after.len(), |it| end + it).max(from);
        let to = if edit.text.is_empty() { from } else { to };
        shown.push(Line {
            line: after[..from].matches('\n').count() + 1,
            text: after[from..to].trim_end_matches('\r').to_owned(),
            why: edit.why.clone(),
        });
    }
    shown
}

/// The unified diff of a file, as `patch -p1` and `git apply` take it; `before` is none for a new file.
pub fn diff(name: &str, before: Option<&str>, after: &str) -> String {
    let is_relative = !name.starts_with('/') && !name.starts_with("../");
    let side = |letter: &str| {
        if is_relative { format!("{letter}/{name}") } else { name.to_owned() }
    };
    let old = if before.is_some() { side("a") } else { "/dev/null".to_owned() };
    TextDiff::from_lines(before.unwrap_or_default(), after)
        .unified_diff()
        .context_radius(3)
        .header(&old, &side("b"))
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_at_one_place_keep_their_order() {
        let text = "a\nb\n";
        let one = Edit::below(text, 0, &["x".to_owned()], "1");
        let two = Edit::below(text, 0, &["y".to_owned()], "2");
        let three = Edit::replace(2..3, "B", "3");
        let edits = [three, one, two];
        assert_eq!(apply(text, &edits), "a\nx\ny\nB\n");
        let shown: Vec<_> = lines(text, &edits).into_iter().map(|it| (it.line, it.text, it.why)).collect();
        let line = |line: usize, text: &str, why: &str| (line, text.to_owned(), why.to_owned());
        assert_eq!(shown, [line(2, "x", "1"), line(3, "y", "2"), line(4, "B", "3")]);
    }

    #[test]
    fn line_ends_are_those_of_the_text() {
        for (text, after) in [("a\r\nb", "a\r\nb\r\nx"), ("a\nb\n", "a\nb\nx\n"), ("a", "a\nx"), ("", "x\n")] {
            let below = Edit::below(text, text.len(), &["x".to_owned()], "");
            assert_eq!(apply(text, &[below]), after);
        }
    }

    #[test]
    fn a_diff_names_files_as_patch_does() {
        for (name, before, start) in [
            ("d/f", Some("a\n"), "--- a/d/f\n+++ b/d/f\n@@ -1 +1 @@\n-a\n+b\n"),
            ("/d/f", None, "--- /dev/null\n+++ /d/f\n@@ -0,0 +1 @@\n+b\n"),
        ] {
            assert!(diff(name, before, "b\n").starts_with(start));
        }
    }
}
