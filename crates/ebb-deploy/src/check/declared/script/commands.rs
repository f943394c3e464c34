//! The commands of a shell script: their words, and whether each of them runs whenever the script does. Pure.
//!
//! It knows these parts of the shell's grammar: quotes, substitutions, comments, here documents, blocks. What is not
//! known for certain counts as conditional.
//!
//! brush-parser 0.4 has the whole grammar with places, but a script of nested `$(` overflows its stack, and it brings dozens of
//! packages. yash-syntax is under the GPL, tree-sitter-bash is C, conch-parser is not maintained.

use std::ops::Range;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Command {
    /// Places of its words, in order; redirections are left out.
    pub(super) words: Vec<Range<usize>>,
    /// Counted from one.
    pub(super) line: usize,
    /// Whether it runs whenever the script comes there, in the script's own shell.
    pub(super) is_plain: bool,
}

/// The commands of a script. The error names what the reader does not understand.
pub(super) fn commands(text: &str) -> Result<Vec<Command>, String> {
    let mut reader = Reader {
        text,
        at: 0,
        found: Vec::new(),
        words: Vec::new(),
        open: Vec::new(),
        documents: Vec::new(),
        is_linked: false,
        is_target: false,
    };
    reader.read()?;
    Ok(reader.found)
}

/// Deeper nesting is not read: the reader calls itself for each level.
const MOST_LEVELS: usize = 64;

struct Reader<'a> {
    text: &'a str,
    at: usize,
    found: Vec<Command>,
    /// Of the command that is being read.
    words: Vec<Range<usize>>,
    /// What each open block ends with.
    open: Vec<&'static str>,
    /// Here documents that begin with the next line: their last line, and whether tabs in front of it count.
    documents: Vec<(String, bool)>,
    /// Whether `&&`, `||` or `|` stands before the command.
    is_linked: bool,
    /// Whether the next word belongs to a redirection.
    is_target: bool,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn line(&self, at: usize) -> usize {
        self.text[..at].matches('\n').count() + 1
    }

    fn read(&mut self) -> Result<(), String> {
        while let Some(letter) = self.rest().chars().next() {
            match letter {
                '\n' => {
                    self.end(false);
                    self.at += 1;
                    self.skip_documents();
                }
                ' ' | '\t' => self.at += 1,
                '\r' if self.rest().starts_with("\r\n") => self.at += 1,
                '\\' if self.rest().starts_with("\\\n") => self.at += 2,
                '\\' if self.rest().starts_with("\\\r\n") => self.at += 3,
                '#' => self.at += self.rest().find('\n').unwrap_or(self.rest().len()),
                ';' | '&' | '|' => self.separator(letter),
                '(' => self.bracket(),
                ')' => {
                    // Without its other half it ends the pattern of a `case`.
                    if self.open.last() == Some(&")") {
                        self.end(false);
                        self.open.pop();
                    }
                    self.words.clear();
                    self.is_linked = false;
                    self.at += 1;
                }
                '<' | '>' if !self.rest()[1..].starts_with('(') => self.redirection()?,
                _ => {
                    let from = self.at;
                    self.at = word_end(self.text, from)
                        .map_err(|(what, at)| format!("line {}: {what} is not closed", self.line(at)))?;
                    if !std::mem::take(&mut self.is_target) {
                        self.words.push(from..self.at);
                    }
                }
            }
        }
        self.end(false);
        Ok(())
    }

    fn separator(&mut self, letter: char) {
        let rest = self.rest();
        if let Some(target) = rest.strip_prefix("&>") {
            self.at += 2 + usize::from(target.starts_with('>'));
            self.is_target = true;
            return;
        }
        let is_link = rest.starts_with("&&") || letter == '|';
        let is_apart = letter == '|' && !rest.starts_with("||") || letter == '&' && !is_link;
        let length = match rest.as_bytes() {
            [first, second, ..] if first == second || rest.starts_with("|&") => 2,
            _ => 1,
        };
        self.end(is_apart);
        self.is_linked = is_link;
        self.at += length;
    }

    fn bracket(&mut self) {
        let rest = self.rest();
        if self.words.is_empty() && rest.starts_with("((") {
            // Arithmetic: `<<` is no here document there.
            self.at += rest.find("))").map_or(rest.len(), |it| it + 2);
            return;
        }
        let inner = rest[1..].trim_start_matches([' ', '\t']);
        if self.words.len() == 1 && inner.starts_with(')') {
            // `name()`, the head of a function.
            self.at += rest.len() - inner.len() + 1;
            self.words.clear();
            return;
        }
        self.words.clear();
        self.open.push(")");
        self.at += 1;
    }

    fn redirection(&mut self) -> Result<(), String> {
        let rest = self.rest();
        // A number in front belongs to it.
        let is_number =
            |it: &Range<usize>| it.end == self.at && self.text[it.clone()].bytes().all(|it| it.is_ascii_digit());
        if self.words.last().is_some_and(is_number) {
            self.words.pop();
        }
        if !rest.starts_with("<<") || rest.starts_with("<<<") {
            let signs = rest.len() - rest.trim_start_matches(['<', '>', '&', '|']).len();
            self.at += signs;
            self.is_target = true;
            return Ok(());
        }
        let strips = rest[2..].starts_with('-');
        let lead = &rest[2 + usize::from(strips)..];
        let blanks = lead.len() - lead.trim_start_matches([' ', '\t']).len();
        let from = self.at + 2 + usize::from(strips) + blanks;
        self.at =
            word_end(self.text, from).map_err(|(what, at)| format!("line {}: {what} is not closed", self.line(at)))?;
        let end = self.text[from..self.at].replace(['\'', '"', '\\'], "");
        self.documents.push((end, strips));
        Ok(())
    }

    fn skip_documents(&mut self) {
        for (end, strips) in std::mem::take(&mut self.documents) {
            while self.at < self.text.len() {
                let line = self.rest().split_inclusive('\n').next().unwrap_or_default();
                self.at += line.len();
                let line = line.trim_end_matches(['\n', '\r']);
                let line = if strips { line.trim_start_matches('\t') } else { line };
                if line == end {
                    break;
                }
            }
        }
    }

    /// The command that was read is complete. `is_apart`: it runs in a shell of its own.
    fn end(&mut self, is_apart: bool) {
        let words = std::mem::take(&mut self.words);
        let is_linked = std::mem::take(&mut self.is_linked);
        self.is_target = false;
        let mut words = words.as_slice();
        while let [first, rest @ ..] = words {
            match &self.text[first.clone()] {
                "then" | "do" | "else" | "elif" | "!" | "time" => {}
                "if" => self.open.push("fi"),
                "while" | "until" => self.open.push("done"),
                "{" => self.open.push("}"),
                "for" | "select" => {
                    self.open.push("done");
                    return;
                }
                "case" => {
                    self.open.push("esac");
                    return;
                }
                // `function name {`
                "function" => {
                    words = rest.get(1..).unwrap_or_default();
                    continue;
                }
                closer @ ("fi" | "done" | "esac" | "}") => {
                    if self.open.last() == Some(&closer) {
                        self.open.pop();
                    }
                    return;
                }
                _ => break,
            }
            words = rest;
        }
        if let [first, ..] = words {
            self.found.push(Command {
                line: self.line(first.start),
                words: words.to_vec(),
                is_plain: self.open.is_empty() && !is_linked && !is_apart,
            });
        }
    }
}

/// The quotes and constructs around a part of a word.
#[derive(Clone, Copy, Default)]
struct Nesting {
    level: usize,
    /// Double quotes, where a single one is a letter.
    is_quoted: bool,
}

/// A construct without its end: its name, and where it begins.
type Unclosed = (&'static str, usize);

fn word_end(text: &str, from: usize) -> Result<usize, Unclosed> {
    let mut at = from;
    while let Some(letter) = text[at..].chars().next() {
        at = match letter {
            ' ' | '\t' | '\n' | ';' | '&' | '|' | '(' | ')' => break,
            '\r' if text[at..].starts_with("\r\n") => break,
            '<' | '>' if text[at + 1..].starts_with('(') => closed(text, at, at + 2, ')', Nesting::default())?,
            '<' | '>' => break,
            _ => part_end(text, at, letter, Nesting::default())?,
        };
    }
    Ok(at)
}

/// The end of the part of a word that begins at `at` with `letter`: a quotation, a substitution, or the letter.
fn part_end(text: &str, at: usize, letter: char, around: Nesting) -> Result<usize, Unclosed> {
    let rest = &text[at..];
    let behind = at + letter.len_utf8();
    Ok(match letter {
        '\\' => behind + text[behind..].chars().next().map_or(0, char::len_utf8),
        '\'' if around.is_quoted => behind,
        '\'' => {
            let end = text[behind..].find('\'');
            behind + end.ok_or(("a quotation", at))? + 1
        }
        '"' => closed(text, at, behind, '"', around)?,
        '`' => closed(text, at, behind, '`', around)?,
        '$' if rest.starts_with("$(") => closed(text, at, behind + 1, ')', around)?,
        '$' if rest.starts_with("${") => closed(text, at, behind + 1, '}', around)?,
        '$' if rest.starts_with("$'") && !around.is_quoted => {
            let mut end = behind + 1;
            loop {
                match text[end..].chars().next() {
                    None => return Err(("a quotation", at)),
                    Some('\'') => break end + 1,
                    Some('\\') => end = part_end(text, end, '\\', around)?,
                    Some(other) => end += other.len_utf8(),
                }
            }
        }
        _ => behind,
    })
}

/// The end of what `closer` closes, with everything nested in it.
fn closed(text: &str, begin: usize, from: usize, closer: char, around: Nesting) -> Result<usize, Unclosed> {
    if around.level > MOST_LEVELS {
        return Err(("a deeply nested substitution", begin));
    }
    let mut at = from;
    let in_quotes = closer == '"';
    let inside = Nesting { level: around.level + 1, is_quoted: in_quotes || closer == '}' && around.is_quoted };
    while let Some(letter) = text[at..].chars().next() {
        at = match letter {
            _ if letter == closer => return Ok(at + 1),
            '(' if closer == ')' => closed(text, at, at + 1, ')', inside)?,
            // Inside backquotes others are escaped.
            _ if closer == '`' && letter != '\\' => at + letter.len_utf8(),
            _ => part_end(text, at, letter, inside)?,
        };
    }
    let what = if in_quotes { "a quotation" } else { "a substitution" };
    Err((what, begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The commands, the conditional ones in brackets.
    fn shown(text: &str) -> String {
        let read = commands(text).unwrap();
        let all = read.iter().map(|it| {
            let words: Vec<&str> = it.words.iter().map(|at| &text[at.clone()]).collect();
            let words = words.join(" ");
            if it.is_plain { words } else { format!("[{words}]") }
        });
        all.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn commands_and_blocks_are_told_apart() {
        for (text, expected) in [
            ("a b # c\nd", "a b, d"),
            ("a; b && c || d\ne", "a, b, [c], [d], e"),
            ("a | b\nc & d", "[a], [b], [c], d"),
            ("if a; then b; else c; fi\nd", "[a], [b], [c], d"),
            ("for x in 1 2; do a; done; b", "[a], b"),
            ("while a\ndo b\ndone < f\nc", "[a], [b], c"),
            ("case \"$1\" in a|b) c ;; *) d ;; esac\ne", "[c], [d], e"),
            ("f() {\n a\n}\nf \"$@\"", "[a], f \"$@\""),
            ("function f { a; }\nb", "[a], b"),
            ("(a; b)\nc", "[a], [b], c"),
            ("exec 2>&1 >/dev/null\na >b c", "exec, a c"),
            ("a \"b ; 'c\" 'd | \"e' \\; f", "a \"b ; 'c\" 'd | \"e' \\; f"),
            ("a $(b; c \"$(d)\") `e; f` ${g:-h i}", "a $(b; c \"$(d)\") `e; f` ${g:-h i}"),
            ("a \\\n b\nc", "a b, c"),
            ("a <<E <<-'F'\nb\nE\nc\n\tF\nd", "a, d"),
            ("a <<< b\nc", "a, c"),
            ("(( x = 1 << 2 ))\na", "a"),
            ("a\r\nb\r\n", "a, b"),
            ("cat <<E\r\nx\r\nE\r\na\r\n", "cat, a"),
            ("a$'b\\'c' d", "a$'b\\'c' d"),
            ("a \"${b:-it's}\" c", "a \"${b:-it's}\" c"),
            ("a &>b c", "a c"),
            ("diff <(a) <(b)", "diff <(a) <(b)"),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_not_closed_is_said_by_its_line() {
        for text in ["a\n\"b", "a\n'b", "a\n$(b", "a\n${b", "a\n`b", "a\n<(b", "a\n$'b"] {
            let why = commands(text).unwrap_err();
            assert!(why.starts_with("line 2: a "), "{text}: {why}");
        }
        assert!(commands(&"$(".repeat(100_000)).is_err());
    }
}
