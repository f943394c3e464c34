//! `{name}` in the workload's commands, addresses and environment.
//!
//! Used by the workload's check before anything is started (every name must be known) and by each
//! run (with that run's values). `{{` and `}}` are literal braces. Pure.

use std::collections::BTreeMap;

/// The values of the names.
pub type Values = BTreeMap<String, String>;

/// A template that cannot be filled in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// An undefined name.
    #[error("\"{text}\": {{{name}}} is not known here; known are {known}")]
    Unknown {
        /// The whole template.
        text: String,
        /// The name.
        name: String,
        /// What would have been understood.
        known: String,
    },
    /// A brace without its partner.
    #[error("\"{text}\": an unmatched brace (write {{{{ or }}}} for a literal brace)")]
    Brace {
        /// The whole template.
        text: String,
    },
}

/// Puts the values in.
pub fn fill(text: &str, values: &Values) -> Result<String, TemplateError> {
    let unbalanced = || TemplateError::Brace { text: text.to_owned() };
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
        let value = values.get(name).ok_or_else(|| TemplateError::Unknown {
            text: text.to_owned(),
            name: name.to_owned(),
            known: values.keys().cloned().collect::<Vec<_>>().join(", "),
        })?;
        filled.push_str(value);
        rest = &tail[end + 1..];
    }
    filled.push_str(rest);
    Ok(filled)
}

/// Puts the values into each part of a command.
pub fn fill_all(parts: &[String], values: &Values) -> Result<Vec<String>, TemplateError> {
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
    fn names_are_replaced_and_doubled_braces_stay() {
        assert_eq!(
            fill("http://h:{port}/{{x}}?r={port.redis}", &values()).unwrap(),
            "http://h:8123/{x}?r=7000"
        );
        assert_eq!(fill("plain", &values()).unwrap(), "plain");
    }

    #[test]
    fn an_unknown_name_is_told_with_the_known_ones() {
        let message = fill("--port {prot}", &values()).unwrap_err().to_string();
        assert!(message.contains("{prot} is not known here"), "{message}");
        assert!(message.contains("port, port.redis"), "{message}");
    }

    #[test]
    fn braces_of_somebody_elses_text_become_literal() {
        for text in ["{\"a\": {}}", "plain", "}{", "{prot}", "}"] {
            assert_eq!(fill(&keep_known(text), &values()).unwrap(), text);
        }
        assert_eq!(fill(&keep_known("{{port}}"), &values()).unwrap(), "{8123}");
    }

    #[test]
    fn a_lonely_brace_is_refused() {
        assert!(matches!(fill("{port", &values()), Err(TemplateError::Brace { .. })));
        assert!(matches!(fill("port}", &values()), Err(TemplateError::Brace { .. })));
    }
}
