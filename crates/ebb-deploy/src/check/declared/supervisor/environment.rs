//! The value of `environment`: `KEY="value",KEY2="value"`, read as supervisor reads it, by Python's `shlex` without its
//! POSIX mode: quotes do not join, nothing is escaped, and a value with a comma, `=` or `@` needs quotes.

use std::ops::Range;

/// The pairs of one `environment`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// Right after the `=` of the option.
    pub start: usize,
    /// The pairs, in order.
    pub pairs: Vec<Pair>,
    /// The end of a separator after the last pair.
    pub separator: Option<usize>,
}

/// One variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Its name.
    pub name: String,
    /// Its value; none where an expansion such as `%(ENV_X)s` is in it.
    pub value: Option<String>,
    /// Counted from one.
    pub line: usize,
    /// Where the name begins.
    pub from: usize,
    /// Place of the value, quotes included.
    pub at: Range<usize>,
}

/// What an expansion stands for: anything.
const UNKNOWN: char = '\0';

#[derive(Debug)]
struct Token {
    text: String,
    at: Range<usize>,
}

impl Environment {
    /// Reads the lines of a value, `pieces` of the text.
    pub(super) fn parse(text: &str, start: usize, pieces: &[Range<usize>]) -> Result<Self, String> {
        let tokens = tokens(&letters(text, pieces)?)?;
        let mut pairs = Vec::new();
        // A fourth token stands between two pairs, whatever it is.
        for four in tokens.chunks(4) {
            let [name, equals, value, ..] = four else {
                return Err(not_pairs());
            };
            if equals.text != "=" {
                return Err(not_pairs());
            }
            if name.text.contains(UNKNOWN) {
                return Err("a name is set outside this file".to_owned());
            }
            let inner = value.text.trim_matches(['"', '\'']);
            pairs.push(Pair {
                name: name.text.clone(),
                value: (!inner.contains(UNKNOWN)).then(|| inner.to_owned()),
                line: text[..name.at.start].matches('\n').count() + 1,
                from: name.at.start,
                at: value.at.clone(),
            });
        }
        let is_separated = !tokens.is_empty() && tokens.len().is_multiple_of(4);
        let last = tokens.last().filter(|_| is_separated);
        Ok(Self { start, pairs, separator: last.map(|it| it.at.end) })
    }

    /// The last pair of that name, which wins.
    pub fn pair(&self, name: &str) -> Option<&Pair> {
        self.pairs.iter().rev().find(|it| it.name == name)
    }
}

fn not_pairs() -> String {
    "supervisor refuses it: it is not KEY=\"value\",KEY2=\"value\" (a value with a comma or = needs quotes)".to_owned()
}

/// A value as supervisor reads it back; none where its syntax has no way to say it.
pub fn quoted(value: &str) -> Option<String> {
    let is_line = !value.contains(['\n', '\r', UNKNOWN]);
    // After a space these begin a comment, inside quotes as well.
    let mut pairs = value.chars().zip(value.chars().skip(1));
    let is_cut = pairs.any(|(before, it)| before.is_whitespace() && matches!(it, ';' | '#'));
    let is_stripped = value.starts_with(['"', '\'']) || value.ends_with(['"', '\'']);
    if !is_line || is_cut || is_stripped {
        return None;
    }
    let quote = ['"', '\''].into_iter().find(|it| !value.contains(*it))?;
    Some(format!("{quote}{}{quote}", value.replace('%', "%%")))
}

/// The letters after the expansion of `%`, each with its place.
fn letters(text: &str, pieces: &[Range<usize>]) -> Result<Vec<(Range<usize>, char)>, String> {
    let mut found = Vec::new();
    for piece in pieces {
        let mut letters = text[piece.clone()].char_indices().peekable();
        while let Some((place, letter)) = letters.next() {
            let from = piece.start + place;
            let mut to = from + letter.len_utf8();
            let mut means = letter;
            if letter == '%' {
                match letters.next() {
                    Some((_, '%')) => to += 1,
                    Some((_, '(')) => {
                        let rest = &text[to..piece.end];
                        let length = rest.find(')').map(|it| it + 1);
                        let length = length.filter(|it| rest[*it..].starts_with(['s', 'd']));
                        let Some(length) = length else {
                            return Err(LONE_PERCENT.to_owned());
                        };
                        to += length + 1;
                        while letters.next_if(|it| piece.start + it.0 < to).is_some() {}
                        means = UNKNOWN;
                    }
                    _ => return Err(LONE_PERCENT.to_owned()),
                }
            }
            found.push((from..to, means));
        }
        found.push((piece.end..piece.end, '\n'));
    }
    Ok(found)
}

const LONE_PERCENT: &str = "supervisor refuses it: write %% for a %";

fn tokens(letters: &[(Range<usize>, char)]) -> Result<Vec<Token>, String> {
    let is_word =
        |it: char| it.is_ascii_alphanumeric() || matches!(it, UNKNOWN | '_' | '/' | '.' | '+' | '-' | '(' | ')' | ':');
    let is_quote = |it: char| matches!(it, '"' | '\'');
    let letter = |place: usize| letters.get(place).map(|it| it.1);
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(first) = letter(from) {
        let mut to = from + 1;
        if matches!(first, ' ' | '\t' | '\r' | '\n') {
            from = to;
            continue;
        }
        if is_quote(first) {
            let rest = letters[to..].iter().position(|it| it.1 == first);
            to += rest.ok_or("a quote is not closed")? + 1;
        } else if is_word(first) {
            while letter(to).is_some_and(|it| is_word(it) || is_quote(it)) {
                to += 1;
            }
        }
        if first == '#' || is_word(first) && letter(to) == Some('#') {
            return Err("supervisor treats # outside quotes as a comment".to_owned());
        }
        found.push(Token {
            text: letters[from..to].iter().map(|it| it.1).collect(),
            at: letters[from].0.start..letters[to - 1].0.end,
        });
        from = to;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pairs, those with an unknown value with `?`.
    fn read(text: &str) -> Result<String, String> {
        let whole = 0..text.len();
        let read = Environment::parse(text, 0, std::slice::from_ref(&whole))?;
        let shown = |it: &Pair| format!("{}={}", it.name, it.value.as_deref().unwrap_or("?"));
        Ok(read.pairs.iter().map(shown).collect::<Vec<_>>().join("|"))
    }

    /// The expected values are what supervisor 4.2.5 itself reads.
    #[test]
    fn pairs_are_those_that_supervisor_reads() {
        for (text, pairs) in [
            ("A=1,B=\"2,3\",C='4 5'", "A=1|B=2,3|C=4 5"),
            ("A=/l/x.so:/l/y.so,", "A=/l/x.so:/l/y.so"),
            ("A = \"\" , B=100%%", "A=|B=100"),
            ("A=\"100%%\";B=2", "A=100%|B=2"),
            ("A=\"%(ENV_X)s/y\",B=%(here)s", "A=?|B=?"),
            ("", ""),
        ] {
            assert_eq!(read(text).as_deref(), Ok(pairs), "{text}");
        }
    }

    #[test]
    fn what_supervisor_refuses_is_refused() {
        let one_on_a_line = "A\nA=\n,A=1\nA=b,c\nA=b=c\nA=1 B=2\nA=\"1\nA=50%\nA=\"50% off\"\nA=\"%(x\"\n%(ENV_X)s=1";
        for text in one_on_a_line.lines() {
            assert!(read(text).is_err(), "{text}: {:?}", read(text));
        }
    }

    #[test]
    fn a_quoted_value_is_read_back() {
        for value in ["", "a b", "/l/x.so:/l/y.so", "100%", "%(x)s", "a'b", "a\"b", "a;b#c", "ü"] {
            let text = format!("A={}", quoted(value).unwrap());
            assert_eq!(read(&text), Ok(format!("A={value}")), "{text}");
        }
        for value in ["a ;b", "a #b", "a\nb", "'a", "a\"", "a\"b'c"] {
            assert_eq!(quoted(value), None, "{value}");
        }
    }
}
