//! A systemd service: a drop-in next to it. The unit stays as it is: it belongs to a package or to
//! somebody else, and a drop-in outlives their updates.

use std::path::Path;

use crate::check::declared::unit::Unit;

use super::edit::apply;
use super::{Desired, Edit, Fixed, OutsideValue, Refused, changes};

/// The name of our drop-in: that of the allocator.
pub fn drop_in(desired: &Desired) -> String {
    format!("{}.conf", desired.allocator)
}

const SPECIFIER: OutsideValue =
    OutsideValue { why: "contains a systemd specifier", remedy: "write its value literally, then run ebb fix again" };

/// What is known of a unit.
pub struct Files<'a> {
    /// The unit as it was named.
    pub name: &'a str,
    /// Its text.
    pub text: &'a str,
    /// The drop-ins that are there, by file name in order, ours among them.
    pub drop_ins: &'a [(String, String)],
}

/// What has to be in the drop-in, as edits of the text that is there (none: an empty one).
pub fn fix(files: &Files<'_>, desired: &Desired) -> Result<Fixed, Refused> {
    let unreadable = |why: String| Refused::in_file(files.name, why);
    let mut unit = Unit::parse(files.text).map_err(unreadable)?;
    if unit.values("ExecStart").is_empty() && unit.values("ExecStartPre").is_empty() {
        let what = "starts no program: it has no ExecStart= in [Service]";
        return Err(Refused::not_understood(format!("{} {what}", files.name)));
    }
    let own_name = drop_in(desired);
    let own = files.drop_ins.iter().find(|(name, _)| *name == own_name).map(|(_, text)| text.as_str());
    for (name, text) in files.drop_ins.iter().filter(|(_, text)| !text.trim().is_empty()) {
        let other = Unit::parse(text).map_err(|why| Refused::in_file(name, why))?;
        if *name > own_name {
            let service = other.service(Path::new(files.name));
            let names = || desired.names();
            if let Some(set) = names().find(|it| service.variable(it).is_some()) {
                let what = format!("the drop-in {name} comes after {own_name} and sets {set}, too");
                return Err(Refused::cannot(what, "remove it there, then run ebb fix again"));
            }
        }
        unit.extend(other);
    }
    let service = unit.service(Path::new(files.name));
    let library = desired.preload_entry_of_host();
    let (settings, mut fixed) = changes(desired, &library, &service, files.name, &SPECIFIER)?;
    let text = own.unwrap_or_default();
    let is_open = !text.trim().is_empty() && Unit::parse(text).is_ok_and(|it| it.last_section() == Some("Service"));
    for (number, setting) in settings.iter().enumerate() {
        let mut lines = Vec::new();
        if number == 0 && !is_open {
            lines.push("[Service]".to_owned());
        }
        let word = format!("{}={}", setting.name, setting.value);
        lines.push(format!("Environment={}", quoted(&word)));
        fixed.edits.push(Edit::below(text, text.len(), &lines, &*setting.why));
    }
    if fixed.edits.is_empty() {
        return Ok(fixed);
    }
    Unit::parse(&apply(text, &fixed.edits)).map_err(unreadable)?;
    for (file, _) in unit.values("EnvironmentFile") {
        let file = file.trim_start_matches('-');
        fixed.notes.push(format!("{file} is read after Environment=: look for LD_PRELOAD there"));
    }
    for key in ["RootDirectory", "RootImage"] {
        if let Some((root, _)) = unit.values(key).last() {
            fixed.notes.push(format!("the service runs in {key}={root}: install {library} there"));
        }
    }
    let name = &service.name;
    fixed.notes.push(format!("then: systemctl daemon-reload && systemctl restart {name}"));
    if desired.preloads() && library.starts_with('/') {
        fixed.notes.push(format!("install {library}, readable for the service's user"));
    }
    Ok(fixed)
}

/// A word of `Environment=`, with `%` doubled, which is a specifier's sign otherwise.
fn quoted(word: &str) -> String {
    let word = word.replace('%', "%%");
    let is_plain = word.chars().all(|it| it.is_ascii_alphanumeric() || "-_./:,=+@%".contains(it));
    if is_plain { word } else { format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"")) }
}
