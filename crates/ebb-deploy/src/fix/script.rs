//! A shell script that starts a service: `export` lines below its head, before its first command, so that they count
//! for everything that it starts. The value that `LD_PRELOAD` has when the script starts follows the allocator.

use std::path::Path;

use crate::check::declared::script::{INHERITED, Script, Set};

use super::desired::Setting;
use super::edit::{apply, line_end};
use super::{Desired, Edit, Fixed, OutsideValue, Refused, changes, quoted};

const SHELL: OutsideValue =
    OutsideValue { why: "is filled in by the shell", remedy: "write its value literally, then run ebb fix again" };

/// What puts the allocator in charge of what the script starts.
pub fn fix(name: &str, text: &str, desired: &Desired) -> Result<Fixed, Refused> {
    let read = |text: &str| Script::parse(Path::new(name), text).map_err(|why| Refused::in_file(name, why));
    let script = read(text)?;
    refuse_other_ways(name, &script)?;
    let library = desired.preload_entry();
    let present = script.all_exported();
    let (mut settings, mut fixed) = changes(desired, &library, &present, name, &SHELL)?;
    settings.extend(unexported(desired, &script, &settings));
    let mut lines = Vec::new();
    for setting in &settings {
        match replaceable(name, &script, setting)? {
            Some(set) => fixed.edits.push(replaced(name, set, setting)?),
            None => lines.push(setting),
        }
    }
    for setting in lines {
        let line = format!("export {}={}", setting.name, with_old(setting, true)?);
        let edit = below(text, script.top, &line, &setting.why);
        fixed.edits.push(edit);
    }
    if fixed.edits.is_empty() {
        return Ok(fixed);
    }
    let after = read(&apply(text, &fixed.edits))?;
    let is_set = |it: &Setting| {
        let variable = after.service.variable(&it.name);
        variable.and_then(|it| it.value.as_ref()) == Some(&it.value)
    };
    // The lines may differ.
    let words = |it: &Script| it.service.start.as_ref().map(|it| it.words.clone());
    if !settings.iter().all(is_set) || words(&script) != words(&after) {
        return Err(Refused::alters_more(name));
    }
    if desired.preloads() {
        fixed.notes.push(format!("install {library} where the script runs"));
        fixed.notes.push(
            "programs that are started without the script do not have it; ENV in the Dockerfile applies to them, too"
                .to_owned(),
        );
    }
    Ok(fixed)
}

/// Variables that hold what they should, and that no program gets.
fn unexported(desired: &Desired, script: &Script, settings: &[Setting]) -> Vec<Setting> {
    let names = desired.names().filter(|name| !settings.iter().any(|it| it.name == *name));
    let set = names.filter_map(|name| {
        let set = script.sets_of(name).filter(|it| !it.is_late).last()?;
        let value = set.value.clone().filter(|it| !set.is_exported && !it.is_empty())?;
        let why = "without `export` no program gets it".to_owned();
        Some(Setting { name: name.to_owned(), value, why })
    });
    set.collect()
}

/// The new value as a word of the shell; where it `inherits`, with what the variable held after it.
fn with_old(setting: &Setting, inherits: bool) -> Result<String, Refused> {
    let old = match (inherits && setting.name == "LD_PRELOAD", setting.value.is_empty()) {
        (true, false) => INHERITED,
        (true, true) => "${LD_PRELOAD:-}",
        (false, _) => "",
    };
    Ok(quoted(&setting.value)? + old)
}

/// A variable that a command itself is given has the last word.
fn refuse_other_ways(name: &str, script: &Script) -> Result<(), Refused> {
    let Some((line, _)) = script.given.first() else { return Ok(()) };
    let what = format!("{name}:{line}: a command itself sets LD_PRELOAD");
    Err(Refused::cannot(what, "remove it there, then run ebb fix again"))
}

/// The assignment that can take the new value; none where a line of its own has to be added.
fn replaceable<'a>(name: &str, script: &'a Script, setting: &'a Setting) -> Result<Option<&'a Set>, Refused> {
    let counts: Vec<&Set> = script.sets_of(&setting.name).filter(|it| !it.is_late).collect();
    let refused = |line: usize, why: &str| {
        let what = format!("{name}:{line}: {} {why}", setting.name);
        Err(Refused::cannot(what, "remove it there, then run ebb fix again"))
    };
    match counts.as_slice() {
        [] => Ok(None),
        [one] if one.is_plain => Ok(Some(one)),
        [one] => refused(one.line, "is set under a condition"),
        [.., last] => refused(last.line, "is set more than once"),
    }
}

fn replaced(name: &str, set: &Set, setting: &Setting) -> Result<Edit, Refused> {
    let value = with_old(setting, set.inherits)?;
    if set.is_exported {
        return Ok(Edit::replace(set.at.clone(), value, &*setting.why));
    }
    if !set.is_alone {
        let what = "is set without export, together with other variables";
        let what = format!("{name}:{}: {} {what}", set.line, set.name);
        return Err(Refused::cannot(what, "export it there, then run ebb fix again"));
    }
    let text = format!("export {}={value}", setting.name);
    Ok(Edit::replace(set.from..set.at.end, text, &*setting.why))
}

/// A line of its own at a place where lines begin.
fn below(text: &str, at: usize, line: &str, why: &str) -> Edit {
    let end = line_end(text);
    let is_open = at == text.len() && !text.is_empty() && !text.ends_with('\n');
    let line = if is_open { format!("{end}{line}") } else { format!("{line}{end}") };
    Edit::replace(at..at, line, why)
}
