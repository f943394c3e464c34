//! The text of one variable's value in a stage's `ENV`. Pure.

use std::ops::Range;

use crate::check::dockerfile::Stage;

/// Place of the last value of the variable, quotes included.
pub(super) fn of(text: &str, stage: &Stage, name: &str) -> Option<Range<usize>> {
    let pieces = stage.pieces.iter().rev().filter(|it| it.keyword == "ENV");
    pieces.filter_map(|it| in_piece(text, it.at.clone(), name)).next()
}

fn in_piece(text: &str, at: Range<usize>, name: &str) -> Option<Range<usize>> {
    let arguments = text[at.clone()].find(char::is_whitespace)? + at.start;
    let words = words(text, arguments..at.end);
    let first = words.first()?;
    if !text[first.clone()].contains('=') {
        // The old form: all the rest of the line is the value.
        let value = words.get(1)?;
        return (&text[first.clone()] == name).then(|| value.start..words[words.len() - 1].end);
    }
    let of_name = |word: &Range<usize>| {
        let rest = text[word.clone()].strip_prefix(name)?.strip_prefix('=')?;
        Some(word.end - rest.len()..word.end)
    };
    words.iter().rev().find_map(of_name)
}

/// The words of an instruction over its lines; quotes and backslashes join.
fn words(text: &str, at: Range<usize>) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut start: Option<usize> = None;
    let mut quote = None;
    let mut letters = text[at.clone()].char_indices().map(|(place, it)| (at.start + place, it)).peekable();
    let mut at_line_start = false;
    while let Some((place, letter)) = letters.next() {
        if at_line_start && letter == '#' && quote.is_none() {
            // A comment between the lines.
            while letters.next_if(|(_, it)| *it != '\n').is_some() {}
            continue;
        }
        at_line_start = letter == '\n' || at_line_start && letter.is_whitespace();
        match (quote, letter) {
            (_, '\\') => {
                let is_continued = text[place + 1..at.end].trim_start_matches([' ', '\t', '\r']).starts_with('\n');
                if is_continued && quote.is_none() {
                    found.extend(start.take().map(|it| it..place));
                } else {
                    start.get_or_insert(place);
                    letters.next();
                }
            }
            (Some(open), _) if letter == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => {
                quote = Some(letter);
                start.get_or_insert(place);
            }
            (None, _) if letter.is_whitespace() => found.extend(start.take().map(|it| it..place)),
            (None, _) => {
                start.get_or_insert(place);
            }
        }
    }
    found.extend(start.map(|it| it..at.end));
    found
}

/// A value without its quotes, and the quotes.
pub(super) fn unquoted(value: &str) -> (&str, &str) {
    for quote in ["\"", "'"] {
        if let Some(inner) = value.strip_prefix(quote).and_then(|it| it.strip_suffix(quote)) {
            return (inner, quote);
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::dockerfile::Stages;

    fn value(text: &str) -> Option<String> {
        let stages = Stages::parse(text).unwrap();
        let stage = stages.chain(None).unwrap()[0];
        of(text, stage, "A").map(|at| text[at].to_owned())
    }

    #[test]
    fn a_value_is_found_in_every_form() {
        for (env, expected) in [
            ("ENV A=x", "x"),
            ("ENV B=1 A=\"x y\" C=2", "\"x y\""),
            ("ENV B=1 \\\n    A='x' \\\n    C=2", "'x'"),
            ("ENV B=1 \\\n# A=no\n    A=x:$A", "x:$A"),
            ("ENV A x y", "x y"),
            ("env A=x\\ y B=2", "x\\ y"),
            ("ENV A=1\nENV A=2", "2"),
            ("ENV A=", ""),
        ] {
            assert_eq!(value(&format!("FROM a\n{env}\n")).as_deref(), Some(expected), "{env}");
        }
        assert_eq!(value("FROM a\nENV AA=1 B=A=2\nRUN A=3 x\n"), None);
    }
}
