//! Variables in a Dockerfile: replacement as its builder does it, and the assignments of `ENV`. Pure.

use std::collections::BTreeMap;

use crate::check::start::words;

/// Values by name.
pub type Known = BTreeMap<String, String>;

/// Replaces `$NAME`, `${NAME}`, `${NAME:-default}` and `${NAME:+other}` by what is known. What is not known
/// stays as `${NAME}`: the builder would put in an argument of the build, or nothing. Single quotes
/// and a backslash keep a dollar sign.
pub fn expand(text: &str, known: &Known) -> String {
    replace(text, known, false)
}

/// The same for a text that is split into words afterwards, as that of `ENV`: a value stays one word.
pub fn expand_words(text: &str, known: &Known) -> String {
    replace(text, known, true)
}

fn replace(text: &str, known: &Known, splits_later: bool) -> String {
    let mut out = String::new();
    let mut rest = text;
    let mut in_single_quotes = false;
    let mut in_double_quotes = false;
    while let Some(next) = rest.chars().next() {
        let mut used = next.len_utf8();
        match next {
            '"' if !in_single_quotes => {
                in_double_quotes = !in_double_quotes;
                out.push(next);
            }
            '\'' if !in_double_quotes => {
                in_single_quotes = !in_single_quotes;
                out.push(next);
            }
            '\\' if !in_single_quotes => {
                let escaped = rest[1..].chars().next();
                out.push(next);
                out.extend(escaped);
                used += escaped.map_or(0, char::len_utf8);
            }
            '$' if !in_single_quotes => {
                let (value, length) = variable(&rest[1..], known);
                if splits_later && !in_double_quotes {
                    out.push_str(&value.replace(' ', "\\ "));
                } else {
                    out.push_str(&value);
                }
                used += length;
            }
            _ => out.push(next),
        }
        rest = &rest[used..];
    }
    out
}

/// The value of the variable whose name `text` starts with, and the length of its text.
fn variable(text: &str, known: &Known) -> (String, usize) {
    let unknown = |name: &str| format!("${{{name}}}");
    let Some(inner) = text.strip_prefix('{') else {
        let length = name_length(text);
        let name = &text[..length];
        return match known.get(name) {
            Some(value) => (value.clone(), length),
            None if name.is_empty() => ("$".to_owned(), 0),
            None => (unknown(name), length),
        };
    };
    let Some(end) = inner.find('}') else {
        return ("$".to_owned(), 0);
    };
    let body = &inner[..end];
    let name = &body[..name_length(body)];
    let value = match (known.get(name), body[name.len()..].split_at_checked(2)) {
        (Some(value), Some((":-", _))) if !value.is_empty() => value.clone(),
        (_, Some((":-", default))) => default.to_owned(),
        (Some(_), Some((":+", other))) => other.to_owned(),
        (None, Some((":+", _))) => String::new(),
        (Some(value), _) => value.clone(),
        (None, _) => unknown(name),
    };
    (value, end + 2)
}

fn name_length(text: &str) -> usize {
    text.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count()
}

/// The pairs of `NAME=value NAME="value"`, or of the old form `NAME value`.
pub fn assignments(text: &str) -> Vec<(String, String)> {
    let text = text.trim();
    let first = text.split_whitespace().next().unwrap_or_default();
    if !first.contains('=') {
        return match text.split_once(char::is_whitespace) {
            Some((name, value)) => vec![(name.to_owned(), value.trim().to_owned())],
            None if text.is_empty() => Vec::new(),
            None => vec![(text.to_owned(), String::new())],
        };
    }
    let pair = |word: String| {
        let (name, value) = word.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    };
    words(text).into_iter().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_replaced_and_what_is_not_stays_visible() {
        let known = Known::from([("A".to_owned(), "1".to_owned())]);
        for (text, expected) in [
            ("x$A-${A}y", "x1-1y"),
            ("/usr/$LIB/a", "/usr/${LIB}/a"),
            ("${B:-d}${A:-d}${A:+o}${B:+o}", "d1o"),
            ("\\$A '$A' $", "\\$A '$A' $"),
            ("$(uname -m)", "$(uname -m)"),
            ("${A", "${A"),
        ] {
            assert_eq!(expand(text, &known), expected);
        }
        let spaced = Known::from([("S".to_owned(), "x y".to_owned())]);
        assert_eq!(expand_words("A=$S B=\"$S\"", &spaced), "A=x\\ y B=\"x y\"");
    }

    #[test]
    fn both_forms_of_env_are_read() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(assignments("A=1 B=\"x y\" C=\\$LIB"), [pair("A", "1"), pair("B", "x y"), pair("C", "$LIB")]);
        assert_eq!(assignments("A b c"), [pair("A", "b c")]);
        assert_eq!(assignments("A"), [pair("A", "")]);
    }
}
