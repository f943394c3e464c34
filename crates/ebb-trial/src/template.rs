//! `{name}` in the workload's commands, addresses and environment.
//!
//! Used by the workload's check before anything is started (every name must be known) and by each
//! run (with that run's values). `{{` and `}}` are literal braces. Pure.

use std::collections::BTreeMap;

/// The values of the names.
pub type Values = BTreeMap<String, String>;

/// Puts the values in. The error names the unknown name, and lists the known ones.
pub fn fill(text: &str, values: &Values) -> Result<String, String> {
    let unbalanced = || format!("\"{text}\": an unmatched brace (write {{{{ or }}}} for a literal brace)");
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        filled.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        let tail = &rest[at + 1..];
        if let Some(after) = tail.strip_prefix(brace) {
            filled.push_str(brace);
            rest = after;
            continue;
        }
        if brace == "}" {
            return Err(unbalanced());
        }
        let end = tail.find('}').ok_or_else(unbalanced)?;
        let name = &tail[..end];
        let value = values.get(name).ok_or_else(|| {
            let known = values.keys().cloned().collect::<Vec<_>>().join(", ");
            format!("\"{text}\": {{{name}}} is not known here; known are {known}")
        })?;
        filled.push_str(value);
        rest = &tail[end + 1..];
    }
    filled.push_str(rest);
    Ok(filled)
}

/// Puts the values into each part of a command.
pub fn fill_all(parts: &[String], values: &Values) -> Result<Vec<String>, String> {
    parts.iter().map(|part| fill(part, values)).collect()
}

/// The names that every run defines.
pub const NAMES: [&str; 7] = ["port", "dir", "workload", "variant", "cycle", "pid", "ebb"];

/// A text of somebody who may not know of templates: the names of [`NAMES`] stay, all other braces become
/// literal ones.
pub fn keep_known(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        kept.push_str(&rest[..at]);
        let name = rest[at..]
            .strip_prefix('{')
            .and_then(|tail| tail.split_once('}'))
            .map(|(name, _)| name)
            .filter(|name| NAMES.contains(name));
        let end = match name {
            Some(name) => {
                kept.push_str(&format!("{{{name}}}"));
                at + name.len() + 2
            }
            None => {
                kept.push_str(&rest[at..=at].repeat(2));
                at + 1
            }
        };
        rest = &rest[end..];
    }
    kept.push_str(rest);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Values {
        Values::from([("port".into(), "8123".into()), ("port.redis".into(), "7000".into())])
    }

    #[test]
    fn names_are_replaced_doubled_braces_stay_and_a_lonely_brace_is_refused() {
        for (text, expected) in [
            ("http://h:{port}/{{x}}?r={port.redis}", Ok("http://h:8123/{x}?r=7000")),
            ("plain", Ok("plain")),
            ("--port {prot}", Err("{prot} is not known here; known are port, port.redis")),
            ("{port", Err("an unmatched brace")),
            ("port}", Err("an unmatched brace")),
        ] {
            match (fill(text, &values()), expected) {
                (Err(message), Err(part)) => assert!(message.contains(part), "{text}: {message}"),
                (filled, expected) => {
                    assert_eq!(filled.as_deref(), Ok(expected.unwrap()), "{text}")
                }
            }
        }
    }

    #[test]
    fn braces_of_somebody_elses_text_become_literal() {
        for text in ["{\"a\": {}}", "plain", "}{", "{prot}", "}"] {
            assert_eq!(fill(&keep_known(text), &values()).unwrap(), text);
        }
        assert_eq!(fill(&keep_known("{{port}}"), &values()).unwrap(), "{8123}");
    }
}
