//! An assignment of a script: its value, and whether the variable's old value is part of it. Pure.

use std::ops::Range;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    pub name: String,
    /// What the script adds to it; none where the shell fills that in.
    pub value: Option<String>,
    /// Whether the variable's old value is part of the new one.
    pub inherits: bool,
    pub from: usize,
    /// Place of the value, quotes included.
    pub at: Range<usize>,
    /// Counted from one.
    pub line: usize,
    /// Whether it always counts: outside of conditions, functions and subshells, and before the program starts.
    pub is_plain: bool,
    pub is_exported: bool,
    pub is_alone: bool,
    pub is_late: bool,
}

/// Appended to a value: adds what the variable held, with a colon, if it held something. Harmless under `set -u`.
pub const INHERITED: &str = "${LD_PRELOAD:+:$LD_PRELOAD}";

/// How scripts add the old value of a list, `N` being the variable; separated by `|`.
const FORMS: &str = "${N:+:$N}|${N:+:${N}}|${N+:$N}|${N:+ $N}|${N:+$N:}|${N:+${N}:}|:${N:-}| ${N:-}|${N:-}:|:${N}| ${N}|\
                     ${N}:|${N:-}|${N}|:$N|$N:|$N";

/// What is written, without the old value, and whether that is part of it. None where the shell fills in something else.
pub(super) fn read(name: &str, raw: &str) -> (Option<String>, bool) {
    let (own, inherits) = without_old(name, raw);
    let is_filled = own.contains(['$', '`']) && !is_literal(&own);
    let words = shlex::split(&own).filter(|_| !is_filled);
    (words.map(|it| it.concat()), inherits)
}

/// Whether the whole word is in single quotes.
fn is_literal(raw: &str) -> bool {
    let inner = raw.strip_prefix('\'').and_then(|it| it.strip_suffix('\''));
    inner.is_some_and(|it| !it.contains('\''))
}

fn without_old(name: &str, raw: &str) -> (String, bool) {
    if name != "LD_PRELOAD" || raw.contains('\'') {
        return (raw.to_owned(), false);
    }
    for form in FORMS.split('|') {
        let form = form.replace('N', name);
        let Some(at) = raw.find(&form) else { continue };
        let rest = &raw[at + form.len()..];
        // `$NAME` goes on as long as letters do.
        let goes_on = |it: char| it.is_ascii_alphanumeric() || it == '_';
        if form.ends_with(name) && rest.starts_with(goes_on) {
            continue;
        }
        return (format!("{}{rest}", &raw[..at]), true);
    }
    (raw.to_owned(), false)
}

pub(super) fn unquoted(word: &str) -> String {
    shlex::split(word).map_or_else(|| word.to_owned(), |it| it.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_value_is_told_from_the_new() {
        for (raw, own, inherits) in [
            ("/a.so${LD_PRELOAD:+:$LD_PRELOAD}", Some("/a.so"), true),
            ("\"/a.so:$LD_PRELOAD\"", Some("/a.so"), true),
            ("\"$LD_PRELOAD:/a.so\"", Some("/a.so"), true),
            ("\"/a.so ${LD_PRELOAD}\"", Some("/a.so"), true),
            ("/a.so:${LD_PRELOAD:-}", Some("/a.so"), true),
            ("\"${LD_PRELOAD:+$LD_PRELOAD:}/a.so\"", Some("/a.so"), true),
            ("/a.so", Some("/a.so"), false),
            ("'/a.so'", Some("/a.so"), false),
            ("\"$LD_PRELOAD\"", Some(""), true),
            ("", Some(""), false),
            ("$LIB", None, false),
            ("\"/l/$LD_PRELOAD_X\"", None, false),
            ("`x`", None, false),
            ("\"$(find / -name x.so)\"", None, false),
        ] {
            assert_eq!(read("LD_PRELOAD", raw), (own.map(str::to_owned), inherits), "{raw}");
        }
        assert_eq!(read("A", "\"1:$A\""), (None, false));
        assert_eq!(read("A", "'$1'"), (Some("$1".to_owned()), false));
    }
}
